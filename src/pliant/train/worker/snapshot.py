"""When checkpoints are written and which one a job begins with."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pliant.train.errors import BadCheckpoint
from pliant.train.worker.checkpoint import Checkpoints, load, read, save

_SAME = ("records", "epoch_records", "order", "global_batch", "seed", "shuffle", "logical_workers")
State = dict[str, Any]


class Keeper:
    """Checkpoints of a job in `folder` (None: none are kept), every so many steps (0: only where a job
    ends)."""

    def __init__(self, folder: str | Path | None, every: int, keep: int) -> None:
        self._store = Checkpoints(Path(folder), keep) if folder else None
        self._every = every

    def check(self) -> None:
        """Before the first step: can checkpoints be written at all? Raises BadCheckpoint."""
        if self._store is None:
            return
        try:
            import safetensors.torch  # noqa: F401
        except ImportError as error:
            raise BadCheckpoint(
                "Checkpoints need safetensors: pip install 'pliant[train]', or pass checkpoint_dir=False."
            ) from error
        folder = self._store.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise BadCheckpoint(
                f"Checkpoints cannot be written to {folder}: {error.strerror}. Pass another "
                "checkpoint_dir, or checkpoint_dir=False."
            ) from error

    def is_due(self, step: int) -> bool:
        """Whether one is due after this step."""
        return self._store is not None and self._every > 0 and step % self._every == 0

    def trouble(self) -> str | None:
        """Why the last one failed where the next may succeed. Raises BadCheckpoint where it will not."""
        return self._store.look() if self._store is not None else None

    def write(
        self, state: State, settings: State, step: int, history: list[State], wait: bool = False
    ) -> str | None:
        """Write one; the training waits for a copy in memory, and for the one before it. Returns what
        `trouble` would have said of that one."""
        if self._store is None:
            return None
        meta = {"model": settings["model"], "settings": settings, "ledger": history}
        return self._store.write(step, state, meta, wait=wait)

    def save(self, state: State, settings: State, step: int, history: list[State], *, final: bool) -> None:
        """The last state of a job, and with `final` the model by itself in `final/`."""
        if self._store is None:
            return
        self.write(state, settings, step, history, wait=True)
        if final:
            tensors = {
                name: tensor.detach().to("cpu", copy=True).contiguous()
                for name, tensor in state["model"].items()
                if isinstance(tensor, torch.Tensor)
            }
            manifest = {"version": 1, "step": step, "model": settings["model"]}
            save(self._store.folder / "final", tensors, manifest)

    def restore(self, load: Callable[[State], None], settings: State, step: int) -> tuple[int, str | None]:
        """Load the newest checkpoint unless the worker's own state, of `step`, is newer. Returns the step
        that the state is of, and the checkpoint's name."""
        found = self._store.newest(settings["model"]) if self._store is not None else None
        if found is None or found[2]["step"] <= step:
            return max(step, 0), None
        path, state, manifest = found
        known = manifest["settings"]
        for key in _SAME:
            if key in known and known[key] != settings.get(key):  # an earlier version knew fewer of them
                raise BadCheckpoint(
                    f"{path} was trained with {key} {known[key]!r}, this job asks for "
                    f"{settings.get(key)!r}: the order of records would not continue where it stopped. "
                    "Use the same value, or another folder."
                )
        load(state)
        return int(manifest["step"]), path.name

    def wait(self) -> None:
        """Wait for what is being written. Raises BadCheckpoint if it failed and the next one would, too."""
        if self._store is not None:
            self._store.wait()


def weights(folder: str | Path) -> tuple[dict[str, torch.Tensor], State]:
    """(state_dict of the model, manifest) of a job's checkpoint folder: the final one, else the newest; or of
    one checkpoint by itself. Raises BadCheckpoint."""
    path = Path(folder)
    if (path / "final" / "manifest.json").is_file():
        return read(path / "final")
    if (path / "manifest.json").is_file():
        tensors, manifest = read(path)
        return (load(path)[0]["model"], manifest) if "tree" in manifest else (tensors, manifest)
    newest = Checkpoints(path).newest() if path.is_dir() else None
    if newest is None:
        raise BadCheckpoint(f"There is no checkpoint in {path}")
    return newest[1]["model"], newest[2]


def export(folder: str | Path, target: Path) -> tuple[int, int]:
    """Write the weights as a plain state_dict for torch.load. Returns the step they are of and how many
    tensors there are. Raises BadCheckpoint, OSError."""
    tensors, manifest = weights(folder)
    with target.open("wb") as file:
        torch.save(dict(tensors), file)
    return int(manifest["step"]), len(tensors)


def load_weights(folder: str | Path, model: torch.nn.Module) -> int:
    """Put the weights that a job left in this checkpoint folder into the model; returns the step they are
    of."""
    tensors, manifest = weights(folder)
    model.load_state_dict(tensors)
    return int(manifest["step"])
