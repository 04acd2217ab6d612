"""Checks what a model file defines, without running it. No torch: the master checks this first."""

import ast
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.train.errors import TrainError

SIGNATURES = {
    "model": "model: a torch.nn.Module, or model() that makes one",
    "feature_columns": "feature_columns(): a list of columns",
    "label_columns": "label_columns(): a list of columns",
    "loss": "loss(output, labels): the mean over the minibatch",
    "optimizer": "optimizer(parameters): a torch.optim.Optimizer",
    "input_fn": "input_fn(records): (features, labels) of a minibatch",
    "feed": "feed(records, mode): (features, labels) of a minibatch",
    "dataset_fn": "dataset_fn(dataset, mode): a dataset of (features, label)",
    "eval_metrics_fn": "eval_metrics_fn(): {name: function(output, labels)}",
    "callbacks": "callbacks(): a list of objects with on_..._end methods",
    "on_applied": "on_applied(step, record_ids)",
}
READERS = ("input_fn", "feed", "dataset_fn")  # one of them is needed
NEEDED = {"train": ("model", "loss", "optimizer"), "evaluate": ("model", "loss"), "predict": ("model",)}


_KEPT = "model_file.py"


class BadModelFile(TrainError):
    """The model file cannot be used, or its code has raised; the message says where."""


@dataclass(frozen=True, slots=True)
class Found:
    """A name bound at the top level of the file."""

    name: str
    line: int


def read(path: Path) -> str:
    """The text of a model file. Raises BadModelFile if it cannot be read or is not Python."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise BadModelFile(f"There is no model file {path}: check --model_file") from error
    except IsADirectoryError as error:
        raise BadModelFile(
            f"--model_file={path} is a folder: name the Python file in it that defines the model"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadModelFile(f"The model file {path} cannot be read: {error}") from error
    try:
        compile(text, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        shown = f"\n    {error.text.strip()}" if isinstance(error, SyntaxError) and error.text else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise BadModelFile(f"{path}{line}: {what}{shown}") from error
    return text


def keep(path: Path, folder: Path) -> None:
    """Copy the file into the job's folder once: later workers run the same text as the first."""
    kept = folder / _KEPT
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = kept.with_name(f".{kept.name}.{os.getpid()}")
        aside.write_text(read(path), "utf-8")
        aside.rename(kept)


def kept(path: Path, folder: Path | None) -> str:
    """The text that the job in `folder` has kept; that of the file if it has kept none."""
    found = folder / _KEPT if folder is not None else path
    return read(found if found.exists() else path)


def check(path: Path, mode: str, names: Mapping[str, str]) -> None:
    """Raises BadModelFile if the file, without being run, is seen to lack a part of the contract."""
    found = defined(read(path))
    if not any(one.name == "*" for one in found):
        require(path, mode, names, found)


def defined(text: str) -> list[Found]:
    """The names that a file binds at its top level; "*" for an import of everything."""
    return list(_bound(ast.parse(text).body))


def require(path: Path, mode: str, names: Mapping[str, str], found: list[Found]) -> None:
    """Raises BadModelFile, with the nearest name, if a part of the contract is not among those found."""
    known = {one.name for one in found}
    for symbol in NEEDED[mode]:
        if names[symbol] not in known:
            raise _missing(path, symbol, names, found)
    if not any(names[symbol] in known for symbol in READERS):
        raise _missing(path, "input_fn", names, found)
    if names["input_fn"] in known and not any(names[symbol] in known for symbol in ("feed", "dataset_fn")):
        for symbol in ("feature_columns", "label_columns"):
            if names[symbol] not in known and (symbol, mode) != ("label_columns", "predict"):
                raise _missing(path, symbol, names, found)


def _missing(path: Path, symbol: str, names: Mapping[str, str], found: list[Found]) -> BadModelFile:
    name, signature = names[symbol], SIGNATURES[symbol]
    if name != symbol:
        signature = signature.replace(symbol, name, 1)
    lines = {one.name: one.line for one in found if not one.name.startswith("_")}
    near = difflib.get_close_matches(name, lines, 1, 0.6)
    if near:
        instead = f"Did you mean {near[0]}{f', in line {lines[near[0]]}' if lines[near[0]] else ''}?"
    elif lines:
        instead = f"It defines {', '.join(sorted(lines))}."
    else:
        instead = "It defines nothing."
    also = " (or feed, or dataset_fn)" if symbol == "input_fn" else ""
    return BadModelFile(f"{path} does not define {name}{also}. Needed is {signature}. {instead}")


def _bound(body: list[ast.stmt]) -> Iterator[Found]:
    """The names that these statements bind, in any branch."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield Found(node.name, node.lineno)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield Found(alias.asname or alias.name.partition(".")[0], node.lineno)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in (part for target in targets for part in ast.walk(target)):
                if isinstance(part, ast.Name):
                    yield Found(part.id, node.lineno)
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)
