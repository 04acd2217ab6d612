"""Whether the kernel has killed processes because memory ran out."""

from pathlib import Path

KILL = 9


class Kills:
    """The kernel's count of such kills: of this server's control group if it has one, else of the machine.

    Safe to call from any thread; of several ends at once each may be told of the same kill.
    """

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._files = [*_own(proc, cgroup), proc / "vmstat"]
        self._known = self._count()

    def fresh(self, code: int | None, signal: int | None) -> bool:
        """True if what ended so may have been killed for want of memory since the last look."""
        before, self._known = self._known, self._count()
        return self._known > before and (signal == KILL or code == 128 + KILL)

    def _count(self) -> int:
        for path in self._files:
            try:
                lines = path.read_text("utf-8").splitlines()
            except OSError:
                continue  # another kernel, or no such control group: the next one counts
            for line in lines:
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
        return 0


def _own(proc: Path, cgroup: Path) -> list[Path]:
    """The event file of the control group that this process is in, if it is of the second version."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    paths = [line[3:].lstrip("/") for line in lines if line.startswith("0::")]
    return [cgroup / path / "memory.events" for path in paths]
