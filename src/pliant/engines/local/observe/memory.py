"""Whether the kernel has killed processes because memory ran out."""

from pathlib import Path
from threading import Lock

KILL = 9
COUNT_SECONDS = 5.0  # between two looks at the kernel's count


class Kills:
    """The kernel's count of such kills: of this server's control group if it has one, else of the machine.

    The kernel counts kills and names no process: so only a kill counted within the last two looks, about
    10 seconds, explains an end, and at most one. Safe to call from any thread.
    """

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._files = [*_own(proc, cgroup), proc / "vmstat"]
        self._lock = Lock()
        self._before = self._known = self._count()  # at the last look but one, and at the last

    def look(self) -> None:
        """Call it every `COUNT_SECONDS`: kills that the previous look counted explain no end any more."""
        with self._lock:
            self._before, self._known = self._known, self._count()

    def fresh(self, code: int | None, signal: int | None) -> bool:
        """True if a process that ended just now with this code or signal may be an out-of-memory kill."""
        if signal != KILL and code != 128 + KILL:
            return False
        with self._lock:
            before, self._known = self._before, self._count()
            self._before = min(before + 1, self._known)
            return self._known > before

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
    """The memory event files of this process's control groups, of version 2 and version 1."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            files.append(cgroup / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(cgroup / "memory" / path.lstrip("/") / "memory.oom_control")
    return files
