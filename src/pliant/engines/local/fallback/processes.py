"""The fallback supervisor's view of /proc: its descendants, and signals that reach no other process."""

import errno
import os
import signal


def read_file(path: str) -> bytes:
    """Up to 64 KiB of a file of /proc; nothing if its process is gone."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 65536)
    except OSError:  # it went between open and read
        return b""
    finally:
        os.close(fd)


class Process:
    """One line of the process table. Pid and start (ticks after boot) identify a process for good."""

    __slots__ = ("dead", "group", "parent", "pid", "start")

    def __init__(self, pid: int, text: bytes) -> None:
        words = text[text.rindex(b")") + 1 :].split()  # the name before it may hold anything, also brackets
        self.pid, self.parent, self.group, self.start = pid, int(words[1]), int(words[2]), int(words[19])
        self.dead = words[0] in (b"Z", b"X")


def read_process(pid: int) -> Process | None:
    text = read_file(f"/proc/{pid}/stat")
    return Process(pid, text) if text else None


def descendants() -> list[Process]:
    """All descendants of this process. Looks up to 3 times if a parent ended during the look."""
    ours: dict[int, Process] = {}
    for _ in range(3):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        every = {pid: process for pid in pids if (process := read_process(pid))}
        family, size = {os.getpid()}, 0
        while size < len(family):
            size = len(family)
            family |= {pid for pid, process in every.items() if process.parent in family}
        ours = {pid: process for pid, process in every.items() if pid in family - {os.getpid()}}
        if all(process.parent in every or not process.parent for process in every.values()):
            break
    return list(ours.values())


def signal_group(group: int, number: int) -> bool:
    """False if the group cannot be signalled, or is 0."""
    try:
        if group:
            os.killpg(group, number)
    except OSError:
        return False  # not a group yet, or another user's: each process is signalled as well
    return group > 0


def signal_process(process: Process, number: int) -> None:
    """Signal through a pidfd; the start time is checked after it is opened, so a reused pid is not hit."""
    fd = -1
    try:
        if hasattr(os, "pidfd_open"):
            fd = os.pidfd_open(process.pid)
    except OSError as e:
        if e.errno != errno.ENOSYS:  # before Linux 5.3
            return  # gone
    try:
        same = read_process(process.pid)
        if not same or same.start != process.start:
            return
        if fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(process.pid, number)
    except OSError:
        return  # gone, or run by another user: the next round looks again
    finally:
        if fd >= 0:
            os.close(fd)
