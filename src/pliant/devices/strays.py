"""Finds processes on a GPU that belong to no task, and ends them if an administrator wants it."""

import logging
import os
import pwd
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pliant.control.ports import Stray
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
"""Between two looks. A process that two looks in a row see is a stray: a task's process may be ending."""

GRACE_SECONDS = 60.0
"""From SIGTERM to SIGKILL."""

REPORT, STOP = "report", "stop"

PROC = Path("/proc")

Key = tuple[int, int]  # pid and start, which together are never used again


class Strays:
    """`found` is replaced whole: any thread may read it."""

    def __init__(
        self,
        processes: Callable[[], Mapping[str, Mapping[int, int]]],
        owner: Callable[[int], AttemptId | None],
        started: Callable[[int], int | None],
        end: Callable[[int, int, int], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`processes`: bytes by pid by GPU (uuid), from the driver; `owner`: the attempt of a process;
        `started`: its start in ticks after boot, None if it is gone; `end(pid, start, signal)`, which raises
        OSError; None: strays are reported and left alone.
        """
        self._processes, self._owner, self._started = processes, owner, started
        self._end, self._clock = end, clock
        self._before: set[Key] = set()
        self._asked: dict[Key, float] = {}  # when each was told to end
        self._refused: set[Key] = set()
        self.found: tuple[Stray, ...] = ()
        self._closed = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="pliant-strays", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(EVERY_SECONDS):
            try:
                self.look()
            except Exception:  # after a failed look the next one follows
                log.exception("processes that belong to no task could not be looked for")

    def look(self) -> None:
        on: dict[int, dict[str, int]] = {}
        for gpu, users in self._processes().items():
            for pid, memory in users.items():
                if self._owner(pid) is None:
                    on.setdefault(pid, {})[gpu] = memory
        now = {(pid, start): pid for pid in on if (start := self._started(pid)) is not None}
        again, self._before = now.keys() & self._before, set(now)
        known = {(one.pid, one.start): one for one in self.found}
        found = []
        for key in sorted(again):
            seen = known.get(key) or self._named(*key)
            if seen is None:
                continue  # it has just ended
            found.append(replace(seen, memory=on[key[0]]))
            if key not in known:
                log.warning(
                    "process %d (%s) of user %s uses GPUs outside of all jobs",
                    seen.pid,
                    seen.program,
                    seen.user,
                )
        self.found = tuple(found)
        self._asked = {key: at for key, at in self._asked.items() if key in now}
        self._refused &= again
        if self._end is not None:
            for one in found:
                self._ask(one, self._end)

    def _ask(self, one: Stray, end: Callable[[int, int, int], None]) -> None:
        key, now = (one.pid, one.start), self._clock()
        if key in self._refused:
            return
        asked = self._asked.setdefault(key, now)
        if 0 < now - asked < GRACE_SECONDS:
            return
        number = signal.SIGTERM if asked == now else signal.SIGKILL
        try:
            end(one.pid, one.start, number)
        except OSError as error:
            self._refused.add(key)
            log.warning("process %d of user %s is left alone: %s", one.pid, one.user, error.strerror)
        else:
            log.warning("process %d of user %s was sent %s", one.pid, one.user, number.name)

    def _named(self, pid: int, start: int) -> Stray | None:
        """The stray with that pid; None if it has ended."""
        try:
            uid = os.stat(PROC / str(pid)).st_uid
            program = (PROC / str(pid) / "comm").read_text(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        shown = "".join(letter if letter.isprintable() else "?" for letter in program)
        return Stray(pid, start, uid, user, shown, {})
