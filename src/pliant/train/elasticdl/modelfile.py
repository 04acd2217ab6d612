"""Runs a model file and gives its functions in the form that PyTorch needs; blames its errors on the file."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pliant.train.elasticdl.columns import BytesCodec, Column, columns_of
from pliant.train.elasticdl.contract import SIGNATURES, BadModelFile, Found, defined, kept, require
from pliant.train.elasticdl.example_proto import ExampleCodec
from pliant.train.errors import GenerationOver, TrainError

_LABELS = ("label", "target", "y_true")  # first parameters that begin so take the labels, not the output
_MODEL = ("model", "net", "module")


class ModelFile:
    """The parts of one model file. The methods raise BadModelFile for errors of the file's own code."""

    def __init__(self, path: Path, mode: str, names: Mapping[str, str], folder: Path | None = None) -> None:
        """Run the file, or the copy that the job in `folder` has kept. `mode`: train, evaluate or predict;
        `names`: the file's name of each part."""
        self.path = path
        self._names = names
        text = kept(path, folder)
        self._module = _run(path, text)
        lines = {one.name: one.line for one in defined(text)}
        require(path, mode, names, [Found(name, lines.get(name, 0)) for name in vars(self._module)])

    def has(self, symbol: str) -> bool:
        """True if the file defines that part of the contract."""
        return hasattr(self._module, self._names[symbol])

    def part(self, symbol: str) -> Any:
        """The file's object for that part."""
        return getattr(self._module, self._names[symbol])

    def where(self, symbol: str) -> str:
        """The part's name for error messages."""
        return f"{self._names[symbol]}() of {self.path}"

    # -- the parts -------------------------------------------------------------------------------------

    def model(self) -> torch.nn.Module:
        """A new model if the file has a function for it, else the file's own module."""
        made = self.part("model")
        if not isinstance(made, torch.nn.Module):
            made = self.call("model")
        if not isinstance(made, torch.nn.Module):
            raise self._wrong("model", f"it is a {type(made).__name__}, not a torch.nn.Module")
        return made

    def optimizer(self, model: torch.nn.Module) -> tuple[Any, Any]:
        """(optimizer, scheduler or None) over the model's parameters."""
        wanted = self._parameters("optimizer")
        first = wanted[0] if wanted and wanted[0].default is inspect.Parameter.empty else None
        if isinstance(self.part("optimizer"), torch.optim.Optimizer):
            made = self.part("optimizer")
        elif first is None:
            made = self.call("optimizer")
        else:
            made = self.call("optimizer", model if first.name in _MODEL else list(model.parameters()))
        scheduler = None
        if isinstance(made, tuple) and len(made) == 2:
            made, scheduler = made
        if callable(made) and not isinstance(made, torch.optim.Optimizer):  # a function of the parameters
            with self.blamed("optimizer"):
                made = made(list(model.parameters()))
        if not isinstance(made, torch.optim.Optimizer):
            raise self._wrong("optimizer", f"it gave a {type(made).__name__}")
        own = {id(parameter) for parameter in model.parameters()}
        if not any(id(parameter) in own for group in made.param_groups for parameter in group["params"]):
            raise self._wrong("optimizer", "it holds none of the model's parameters: take them as argument")
        return made, scheduler

    def loss(self) -> Callable[[Any, Any], torch.Tensor]:
        """loss(output, labels), for either order of the file's parameters: the mean over the records."""
        function = self._pairwise("loss", self.part("loss"))

        def mean(output: Any, labels: Any) -> torch.Tensor:
            with self.blamed("loss"):
                value = function(output, labels)
            if not isinstance(value, torch.Tensor):
                raise self._wrong("loss", f"it gave a {type(value).__name__}, not a tensor")
            return value if value.dim() == 0 else value.mean()

        return mean

    def metrics(self) -> dict[str, Callable[[Any, Any], Any]]:
        """The metrics by name: function(output, labels)."""
        if not self.has("eval_metrics_fn"):
            return {}
        found = self.call("eval_metrics_fn")
        if not isinstance(found, dict) or not all(callable(function) for function in found.values()):
            raise self._wrong("eval_metrics_fn", f"it gave {found!r}")
        return {str(n): self._pairwise("eval_metrics_fn", function) for n, function in found.items()}

    def callbacks(self) -> list[Any]:
        """The file's callbacks; [] if it has none."""
        found = self.call("callbacks") if self.has("callbacks") else []
        if not isinstance(found, (list, tuple)):
            raise self._wrong("callbacks", f"it gave a {type(found).__name__}")
        return list(found)

    def columns(self, symbol: str) -> list[Column]:
        """The columns of feature_columns or label_columns; [] if the file does not define them."""
        return columns_of(self.call(symbol), self.where(symbol)) if self.has(symbol) else []

    def codec(self, kind: str, where: str, *, labels_optional: bool) -> Callable[[bytes, int], Any]:
        """A function (record, number) -> columns; with `bytes` and no columns it returns the record."""
        features, labels = self.columns("feature_columns"), self.columns("label_columns")
        if kind == "bytes" and not features and not labels:
            return lambda record, _number: record
        made = BytesCodec if kind == "bytes" else ExampleCodec
        return made(features, labels, where, labels_optional=labels_optional).decode

    # -- calling ---------------------------------------------------------------------------------------

    def call(self, symbol: str, *values: Any) -> Any:
        """Call a function of the file with as many of the values as it takes."""
        function = self.part(symbol)
        if not callable(function):
            raise self._wrong(symbol, f"it is a {type(function).__name__}")
        wanted = self._parameters(symbol)
        star = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in wanted)
        with self.blamed(symbol):
            return function(*(values if star else values[: len(wanted)]))

    @contextmanager
    def blamed(self, symbol: str, *, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Turns errors of the block into BadModelFile, but not a RuntimeError if `unless()` is true."""
        try:
            yield
        except (TrainError, GenerationOver):
            raise
        except Exception as error:
            if isinstance(error, RuntimeError) and unless():
                raise
            raise _blame(self.path, f"{self._names[symbol]}()", error) from error

    def _pairwise(self, symbol: str, function: Any) -> Callable[[Any, Any], Any]:
        if not callable(function):
            raise self._wrong(symbol, f"it is a {type(function).__name__}")
        try:
            names = list(inspect.signature(function).parameters)
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise self._wrong(symbol, f"it takes ({', '.join(names)})") from error
        except ValueError:  # a built-in without a signature
            return function  # type: ignore[no-any-return]
        if names[0].lower().startswith(_LABELS):
            return lambda output, labels: function(labels, output)
        return function  # type: ignore[no-any-return]

    def _parameters(self, symbol: str) -> list[inspect.Parameter]:
        try:
            found = list(inspect.signature(self.part(symbol)).parameters.values())
        except (TypeError, ValueError):
            return []
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.VAR_POSITIONAL,
        )
        return [parameter for parameter in found if parameter.kind in positional]

    def _wrong(self, symbol: str, what: str) -> BadModelFile:
        wanted = SIGNATURES[symbol].replace(symbol, self._names[symbol], 1)
        return BadModelFile(f"{self._names[symbol]} in {self.path} is wrong: {what}. Needed is {wanted}.")


def forward(model: torch.nn.Module, network: Any, features: Any) -> Any:
    """Call `network` (the model or its wrapper) on features. A dict is passed by name if the model's forward
    has such parameters; otherwise a dict with one entry is passed as that entry."""
    if isinstance(features, dict):
        if features.keys() <= set(inspect.signature(model.forward).parameters):
            return network(**features)
        if len(features) == 1:
            return network(*features.values())
    return network(features)


def _run(path: Path, text: str) -> Any:
    spec = importlib.util.spec_from_loader("model_file", None, origin=str(path))
    assert spec is not None, "a loader is not asked for"
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules["model_file"] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # for modules beside it
    try:
        exec(
            compile(text, str(path), "exec", dont_inherit=True), vars(module)
        )  # the user's own model, run as that user  # nosec B102
    except TrainError:
        raise
    except Exception as error:
        raise _blame(path, "", error) from error
    return module


def _blame(path: Path, what: str, error: Exception) -> BadModelFile:
    """An error of the user's code, with its traceback from the first frame of their file on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = next((i for i, frame in enumerate(frames) if frame.filename == str(path)), 0)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    place = f"{path}, line {lines[-1]}" if lines else str(path)
    shown = "".join(traceback.format_list(list(frames)[own:]))
    last = "".join(traceback.format_exception_only(error)).strip()
    return BadModelFile(
        f"{place}{', in ' + what if what else ''}: {last}\nTraceback (most recent call last):\n{shown}{last}"
    )
