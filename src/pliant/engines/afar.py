"""The answers common to all engines whose tasks leave nothing on the server's own machine."""

from collections.abc import Sequence

from pliant.control.ports import Folders, Kept, Load
from pliant.model.workload import AttemptId, Launch, Workload


class Afar:
    """Part of control.ports.Engine."""

    def register(self, attempt: AttemptId, pid: int) -> None:
        """Does nothing: the attempt has no process here."""

    def acknowledge(self, attempt: AttemptId, gpus: Sequence[str]) -> None:
        """Does nothing: no job changes its devices by itself."""

    def unseen(self, launch: Launch) -> bool:
        return False

    def notice(self, launch: Launch) -> str | None:
        return None

    def timed(self, attempt: AttemptId) -> bool:
        return True

    def load(self) -> Load:
        return Load()

    def folders(self, workload: Workload) -> Folders | None:
        return None

    def leaves(self, workload: Workload) -> Kept | None:
        return None

    def trash(self) -> Sequence[Kept]:
        return ()

    def restore(self, kept: Kept) -> str:
        """Always raises OSError."""
        raise FileNotFoundError(f"{kept.name} left no files here: it ran elsewhere")

    def sweep(self, before: int, room: int) -> Sequence[Kept]:
        return ()
