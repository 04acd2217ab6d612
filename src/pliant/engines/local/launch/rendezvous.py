"""Chooses the ports of this machine on which the tasks of a workload meet, before the first task starts."""

import hashlib
import socket
import threading
from collections.abc import Callable

from pliant.engines.local.folder.layout import Layout, read_json, write_json
from pliant.model.workload import AttemptId

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 32_000
"""Below the ports that systems give to outgoing connections, so that none of those takes one."""


class NoPort(Exception):
    """There are no free ports left; the message says so."""


class Rendezvous:
    """Blocks of neighbouring ports by workload. Safe to call from any thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        self._told: dict[str, set[AttemptId]] = {}  # by workload: attempts with its ports that have not ended

    def ports(self, attempt: AttemptId, count: int, lives: Callable[[], bool]) -> int:
        """The first of `count` ports, the same while an attempt of the workload lives. Raises NoPort.

        When none lives, the ports are kept if they are still free, and replaced if one was taken.
        """
        workload = attempt.workload
        path = self._layout.attempts / workload / "ports.json"
        with self._lock:
            told = {one for one in self._told.get(workload, ()) if not self._ended(one)}
            self._told[workload] = {*told, attempt}
            agreed = read_json(path)
            if agreed is not None and agreed["count"] >= count:
                first = int(agreed["first"])
                if told or lives() or all(free(port) for port in range(first, first + count)):
                    return first
            first = self._choose(workload, count)
            write_json(path, {"version": 1, "first": first, "count": count})
            return first

    def forget(self, workload: str) -> None:
        with self._lock:
            self._told.pop(workload, None)

    def _ended(self, attempt: AttemptId) -> bool:
        return (self._layout.folder(attempt) / "exit.json").exists()

    def _choose(self, workload: str, count: int) -> int:
        taken = [
            range(int(other["first"]), int(other["first"]) + int(other["count"]))
            for path in self._layout.attempts.glob("*/ports.json")
            if path.parent.name != workload and (other := read_json(path)) is not None
        ]
        span = LAST - FIRST - count
        start = int.from_bytes(hashlib.sha256(workload.encode()).digest()[:4], "big")
        for offset in range(max(span, 0)):
            first = FIRST + (start + offset) % span
            block = range(first, first + count)
            if all(block.stop <= other.start or other.stop <= first for other in taken) and all(
                free(port) for port in block
            ):
                return first
        raise NoPort(f"{count} neighbouring ports between {FIRST} and {LAST} are not free on this machine")


def free(port: int) -> bool:
    """True if a server could listen on that port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
