"""Files of deleted workloads: kept for a set time, restored, removed for good."""

from collections.abc import Mapping, Sequence

from pliant.control.board.view import CLUSTER
from pliant.control.errors import NotFound, Unavailable
from pliant.control.loop import Loop
from pliant.control.ports import Engine, Folders, Kept
from pliant.control.state.draft import Draft
from pliant.model.event import EventKind
from pliant.model.quantity import format_bytes, spell_duration
from pliant.model.workload import Workload

LEAST_FREE = 50
"""Thousandths of a disk: if less is free, the oldest kept files are removed early."""


class Files:
    """The part of the service that is about the trash."""

    def __init__(self, loop: Loop, engines: Mapping[str, Engine]) -> None:
        self._loop = loop
        self._engines = engines

    @property
    def keep(self) -> int:
        """Ms for which files of a deleted workload are kept."""
        return self._loop.state.settings.keep_deleted

    def folders(self, workload: Workload) -> Folders | None:
        found = (engine.folders(workload) for engine in self._engines.values())
        return next((folders for folders in found if folders is not None), None)

    def kept(self) -> Sequence[Kept]:
        """All, oldest first."""
        return [kept for engine in self._engines.values() for kept in engine.trash()]

    def of(self, workload: Workload) -> Kept | None:
        """What would be kept of it if it were deleted now; None: nothing."""
        found = (engine.leaves(workload) for engine in self._engines.values())
        return next((kept for kept in found if kept is not None), None)

    def restore(self, workload: str, user: str) -> tuple[Kept, str]:
        """Restore the files of a deleted workload; what was kept, and the folder in which it is now."""
        for engine in self._engines.values():
            for kept in engine.trash():
                if kept.workload == workload:
                    try:
                        path = engine.restore(kept)
                    except OSError as error:
                        raise Unavailable(
                            f"The files of {kept.name} cannot be moved: {error.strerror}.",
                            f"They are in {kept.path}.",
                        ) from error
                    self._tell(
                        EventKind.UPDATED, f"{user} restored the files of {kept.name} to {path}.", user
                    )
                    return kept, path
        raise NotFound(f"No files of workload {workload!r} are kept.", "See which are: pliant restore-files")

    def tidy(self) -> None:
        """Remove what was kept for long enough, and the oldest where the disk is nearly full."""
        before = self._loop.clock.now() - self.keep
        for engine in self._engines.values():
            for gone in engine.sweep(before, LEAST_FREE):
                what = f"Files of the deleted job {gone.name} ({format_bytes(gone.size)})"
                if gone.deleted < before:
                    said = f"{what} were removed after {spell_duration(self.keep)}."
                    self._tell(EventKind.DELETED, said)
                else:
                    said = f"{what} were removed early: the disk has less than {LEAST_FREE // 10}% free."
                    self._tell(EventKind.WARNING, said)

    def _tell(self, kind: EventKind, message: str, who: str = "server") -> None:
        def run(draft: Draft) -> None:
            draft.event(CLUSTER, kind, message, who=who)

        self._loop.call(run)
