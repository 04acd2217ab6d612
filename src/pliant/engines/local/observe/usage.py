"""Measures the CPU and main memory that tasks use, from two looks at their processes in /proc."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.control.ports import TaskLoad
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.observe.processes import started
from pliant.model.workload import AttemptId

FRESH = 1.0  # seconds for which an answer is reused
STALE = 30.0  # seconds after which a look is too old to compare with
PAUSE = 0.25  # seconds between two looks if there is no earlier one to compare with


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/<pid>/stat."""

    parent: int
    ticks: int  # CPU time, its own and of children that it has waited for
    pages: int  # resident


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one time of the monotonic clock."""

    at: float  # seconds
    used: Mapping[AttemptId, tuple[int, int]]  # CPU ticks since the start, bytes now


class Usage:
    """Safe to call from any thread."""

    def __init__(
        self,
        layout: Layout,
        living: Callable[[], Iterable[AttemptId]],
        *,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._layout, self._living, self._proc = layout, living, proc
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._last: Look | None = None
        self._told: dict[AttemptId, TaskLoad] = {}

    def loads(self) -> Mapping[AttemptId, TaskLoad]:
        """The loads of live tasks: CPU between two looks, at least PAUSE apart, and memory now."""
        with self._lock:
            now = self._clock()
            if self._last is not None and now - self._last.at < FRESH:
                return self._told
            before = self._last
            if before is None or now - before.at > STALE:
                before = self._look()
                self._sleep(PAUSE)
            self._last = self._look()
            self._told = dict(_between(before, self._last))
            return self._told

    def _look(self) -> Look:
        at = self._clock()
        table = self._table()
        children: dict[int, list[int]] = {}
        for pid, process in table.items():
            children.setdefault(process.parent, []).append(pid)
        page = os.sysconf("SC_PAGE_SIZE")
        used = {}
        for attempt in self._living():
            root = self._layout.folder(attempt).holder()
            if root is None or root[0] not in table or started(root[0]) != root[1]:
                continue
            pids, ticks = [root[0]], 0
            pages = -table[root[0]].pages  # the supervisor's memory is not the task's
            while pids:
                pid = pids.pop()
                ticks += table[pid].ticks
                pages += table[pid].pages
                pids += children.get(pid, ())
            used[attempt] = (ticks, pages * page)
        return Look(at, used)

    def _table(self) -> dict[int, Process]:
        found = {}
        for name in os.listdir(self._proc):
            if not name.isdigit():
                continue
            try:
                text = (self._proc / name / "stat").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            words = text[text.rindex(b")") + 1 :].split()
            found[int(name)] = Process(int(words[1]), sum(map(int, words[11:15])), int(words[21]))
        return found


def _between(before: Look, now: Look) -> Iterable[tuple[AttemptId, TaskLoad]]:
    """The loads by two looks; a task that is missing in the first has no CPU load."""
    tick, seconds = os.sysconf("SC_CLK_TCK"), now.at - before.at
    for attempt, (ticks, memory) in now.used.items():
        then = before.used.get(attempt)
        cores = (
            None if then is None or seconds <= 0 else max(0, round((ticks - then[0]) * 1000 / tick / seconds))
        )
        yield attempt, TaskLoad(cores, memory)
