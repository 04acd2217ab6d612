"""When checkpoints are written and which one a job begins with."""

import warnings
from pathlib import Path
from typing import Any

import torch

from pliant.train.errors import BadCheckpoint
from pliant.train.worker.checkpoint import Checkpoints, read, save
from pliant.train.worker.model import Trained

_SAME = ("records", "global_batch", "seed", "shuffle", "logical_workers")


class Keeper:
    """Checkpoints of a job in `folder` (None: none are kept), every so many steps (0: only where a job
    ends)."""

    def __init__(self, folder: str | Path | None, every: int, keep: int) -> None:
        self._store = Checkpoints(Path(folder), keep) if folder else None
        self._every = every

    def is_due(self, step: int) -> bool:
        """Whether one is due after this step."""
        return self._store is not None and self._every > 0 and step % self._every == 0

    def write(
        self,
        trained: Trained,
        settings: dict[str, Any],
        step: int,
        history: list[dict[str, Any]],
        wait: bool = False,
    ) -> None:
        """Write one; the training waits for a copy in memory only. A disk that is full costs a warning,
        not the job."""
        if self._store is None:
            return
        meta = {"model": settings["model"], "settings": settings, "ledger": history}
        try:
            self._store.write(step, trained.state(), meta, wait=wait)
        except BadCheckpoint as error:
            if wait:
                raise
            warnings.warn(str(error), stacklevel=2)

    def save(
        self,
        trained: Trained,
        settings: dict[str, Any],
        step: int,
        history: list[dict[str, Any]],
        *,
        final: bool,
    ) -> None:
        """The last state of a job, and with `final` the model by itself in `final/`."""
        if self._store is None:
            return
        self.write(trained, settings, step, history, wait=True)
        if final:
            tensors = {
                name: tensor.detach().to("cpu", copy=True).contiguous()
                for name, tensor in trained.model.module.state_dict().items()
                if isinstance(tensor, torch.Tensor)
            }
            manifest = {"version": 1, "step": step, "model": settings["model"]}
            save(self._store.folder / "final", tensors, manifest)

    def restore(self, trained: Trained, settings: dict[str, Any], step: int) -> tuple[int, str | None]:
        """Load the newest checkpoint unless the worker's own state, of `step`, is newer. Returns the step
        that the state is of, and the checkpoint's name."""
        found = self._store.newest(settings["model"]) if self._store is not None else None
        if found is None or found[2]["step"] <= step:
            return max(step, 0), None
        path, state, manifest = found
        for key in _SAME:
            if manifest["settings"].get(key) != settings.get(key):
                raise BadCheckpoint(
                    f"{path} was trained with {key} {manifest['settings'].get(key)!r}, this job asks for "
                    f"{settings.get(key)!r}: the order of records would not go on where it stopped. Use "
                    f"the same "
                    "value, or another folder."
                )
        trained.load(state)
        return int(manifest["step"]), path.name

    def settle(self) -> None:
        """Wait for what is being written."""
        if self._store is not None:
            self._store.settle()


def load_final(folder: str | Path, model: torch.nn.Module) -> int:
    """Put the final weights of a job with this checkpoint folder into the model; returns the step they are
    of."""
    tensors, manifest = read(Path(folder) / "final")
    model.load_state_dict(tensors)
    return int(manifest["step"])
