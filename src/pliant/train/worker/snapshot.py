"""Decides when checkpoints are written and from which one a job starts."""

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
    """Writes a job's checkpoints to `folder` (None: none) every `every` steps (0: only the last state)."""

    def __init__(self, folder: str | Path | None, every: int, keep: int) -> None:
        self._store = Checkpoints(Path(folder), keep) if folder else None
        self._every = every

    def check(self) -> None:
        """Check, before the first step, that checkpoints can be written. Raises BadCheckpoint."""
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
        """True if a checkpoint is due after this step."""
        return self._store is not None and self._every > 0 and step % self._every == 0

    def trouble(self) -> str | None:
        """Why the last one failed if the next may succeed, else None. Raises BadCheckpoint if it will not."""
        return self._store.look() if self._store is not None else None

    def write(
        self, state: State, settings: State, step: int, history: list[State], wait: bool = False
    ) -> str | None:
        """Write a checkpoint; the training waits for a copy in memory and for the previous checkpoint.
        Returns what `trouble` would return for that one."""
        if self._store is None:
            return None
        meta = {"model": settings["model"], "settings": settings, "ledger": history}
        return self._store.write(step, state, meta, wait=wait)

    def save(self, state: State, settings: State, step: int, history: list[State], *, final: bool) -> None:
        """Write the last state of a job and, with `final`, the model alone in `final/`."""
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
        """Load the newest checkpoint if it is newer than the worker's own state, of `step`. Returns the step
        of the state and the checkpoint's name (None: nothing was loaded). Raises BadCheckpoint."""
        found = self._store.newest(settings["model"]) if self._store is not None else None
        if found is None or found[2]["step"] <= step:
            return max(step, 0), None
        path, state, manifest = found
        known = manifest["settings"]
        for key in _SAME:
            if key in known and known[key] != settings.get(key):  # earlier versions wrote fewer keys
                raise BadCheckpoint(
                    f"{path} was trained with {key} {known[key]!r}, this job asks for "
                    f"{settings.get(key)!r}: the order of records would not continue where it stopped. "
                    "Use the same value, or another folder."
                )
        load(state)
        return int(manifest["step"]), path.name

    def wait(self) -> None:
        """Wait for the one being written. Raises BadCheckpoint if it failed and the next would fail too."""
        if self._store is not None:
            self._store.wait()


def weights(folder: str | Path) -> tuple[dict[str, torch.Tensor], State]:
    """(the model's state_dict, manifest) from a job's checkpoint folder, the final model or else the newest
    checkpoint, or from the folder of one checkpoint. Raises BadCheckpoint."""
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
    """Write the weights as a plain state_dict for torch.load. Returns their step and the number of
    tensors. Raises BadCheckpoint, OSError."""
    tensors, manifest = weights(folder)
    with target.open("wb") as file:
        torch.save(dict(tensors), file)
    return int(manifest["step"]), len(tensors)


def load_weights(folder: str | Path, model: torch.nn.Module) -> int:
    """Load the weights from a job's checkpoint folder into the model; returns their step."""
    tensors, manifest = weights(folder)
    model.load_state_dict(tensors)
    return int(manifest["step"])
