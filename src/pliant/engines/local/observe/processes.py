"""Finds live attempts in /proc: the processes of an attempt carry its id and folder in their environment."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pliant.engines.local.folder.layout import Layout
from pliant.model.workload import AttemptId

EXEC_LOOKS, EXEC_SECONDS = 500, 0.001  # number of looks at a process during an exec, and the pause

Wanted = Callable[[AttemptId], bool]


@dataclass(frozen=True, slots=True)
class Carrier:
    """A live process that belongs to an attempt of this state folder."""

    pid: int
    attempt: AttemptId


def carriers(layout: Layout, wanted: Wanted = lambda attempt: True) -> Iterator[Carrier]:
    """Every live process of a wanted attempt, without zombies and the calling process."""
    me = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != me:
            attempt = attempt_of(layout, int(name))
            if attempt is not None and wanted(attempt):
                yield Carrier(int(name), attempt)


def attempt_of(layout: Layout, pid: int) -> AttemptId | None:
    """The attempt of this state folder that a process belongs to; None if there is none."""
    text = environment(pid)
    if b"PLIANT_ATTEMPT=" not in text:
        return None
    found: dict[bytes, bytes] = {}
    for item in text.split(b"\0"):
        name, _, value = item.partition(b"=")
        if name in (b"PLIANT_ATTEMPT", b"PLIANT_ATTEMPT_DIR"):
            found.setdefault(name, value)
    attempt = layout.attempt_of(os.fsdecode(found.get(b"PLIANT_ATTEMPT_DIR", b"")))
    # Both must agree: ids alone would also match the jobs of a copied state folder.
    return attempt if attempt and str(attempt).encode() == found.get(b"PLIANT_ATTEMPT") else None


def environment(pid: int) -> bytes:
    """The environment of a process at its start, null-separated; empty if it is gone or another user's."""
    for _ in range(EXEC_LOOKS):
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                if text := file.readall():
                    return text
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                words = file.readall().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return b""
        size, code, begin, end = words[20], words[23], words[47], words[48]
        if size == b"0":
            return b""  # a zombie or a thread of the kernel
        if begin == end and end != b"0" and code != b"0":
            return b""  # its environment is empty: an exec sets the address of the code after it
        time.sleep(EXEC_SECONDS)  # in the middle of an exec: its new environment is not there yet
    return b""


def owner_of(layout: Layout, pid: int) -> AttemptId | None:
    """The same for a process that dropped its environment: the attempt of the nearest ancestor with one."""
    for _ in range(100):
        attempt = attempt_of(layout, pid)
        if attempt is not None or pid <= 1:
            return attempt
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                text = file.readall()
        except (FileNotFoundError, ProcessLookupError):
            return None
        pid = int(text[text.rindex(b")") + 1 :].split()[1])
    return None


def started(pid: int) -> int | None:
    """Start of a process in ticks after boot, which with its pid identifies it. None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.readall()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text[text.rindex(b")") + 1 :].split()[19])  # the name before the bracket may hold anything


def open_pid(pid: int, start: int) -> int | None:
    """A pidfd of exactly that process; None if it is gone, also if its pid was reused."""
    try:
        fd = os.pidfd_open(pid)
    except (ProcessLookupError, ValueError):
        return None
    same = False
    try:
        same = started(pid) == start
    finally:
        if not same:
            os.close(fd)
    return fd if same else None


def send(layout: Layout, wanted: Wanted, number: int, *, spare: int | None) -> int:
    """Signal every process of the wanted attempts except `spare`; returns how many were signalled."""
    count = 0
    for carrier in carriers(layout, wanted):
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(carrier.pid)
            try:
                if carrier.pid != spare and attempt_of(layout, carrier.pid) == carrier.attempt:
                    signal.pidfd_send_signal(fd, number)
                    count += 1
            finally:
                os.close(fd)
    return count


def end(
    layout: Layout,
    wanted: Wanted,
    *,
    spare: int | None = None,
    pause: float = 1.0,
    waiting: Callable[[list[Carrier]], None] = lambda left: None,
) -> int:
    """SIGKILL every process of the wanted attempts until none is left; returns the number of signals sent.

    `spare` is a pid to leave alone. `waiting` is called after every `pause` seconds in which some did not end
    (they hang in the kernel) and may raise to give up.
    """
    count = 0
    while True:
        found = [carrier for carrier in carriers(layout, wanted) if carrier.pid != spare]
        if not found:
            return count
        poll, fds = select.poll(), []
        for carrier in found:
            with suppress(ProcessLookupError):
                fd = os.pidfd_open(carrier.pid)
                fds.append(fd)
                if attempt_of(layout, carrier.pid) == carrier.attempt:  # still the same process
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    poll.register(fd, select.POLLIN)
                    count += 1
        deadline = time.monotonic() + pause
        left = len(fds)
        try:
            while left and (rest := deadline - time.monotonic()) > 0:
                for fd, _ in poll.poll(rest * 1000):
                    poll.unregister(fd)
                    left -= 1
        finally:
            for fd in fds:
                os.close(fd)
        if left and (found := [carrier for carrier in carriers(layout, wanted) if carrier.pid != spare]):
            waiting(found)
