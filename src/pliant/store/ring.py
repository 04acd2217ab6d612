"""Records cycles on disk in files that each begin with a whole world; the oldest files are deleted first."""

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from itertools import compress, count
from operator import attrgetter, ne
from pathlib import Path
from typing import Any, cast

from pliant import __version__
from pliant.control.decider.port import News
from pliant.control.errors import NotFound, Unavailable
from pliant.control.recording import Cycled, Extent
from pliant.sched.settings import Settings
from pliant.sched.world.rows import WORLD_ROWS, Row
from pliant.store.rerun import ENCODER, VERSION, Checksums

log = logging.getLogger(__name__)

MOST = 64 * 2**20
"""Most bytes of the whole record."""

GATHER = 1.0
"""Seconds for which cycles are gathered and then written together. Written one by one they cost twice the
processor time, because the thread's data has left the caches by then. A killed server loses no more than
these cycles of the record."""

PATIENCE = 5.0
"""Seconds that a reader waits until gathered cycles are written."""

BACKLOG = 32 * 2**20
"""Most bytes, by estimate, of cycles that wait for the disk: several thousand cycles of a few changes. While
the disk hangs for longer than these take, cycles are left out."""

ROW_BYTES = 1_000
"""Estimate of a row or a decision in memory: a workload takes some 2 kB, a task 0.5 kB."""

EVERY = 1_000
"""Cycles after which a whole world is due once the news exceed it; earlier beyond MOST / 4 bytes of news."""

SECRETS: Mapping[str, Any] = {"launch": {"image": ""}, "annotations": None}
"""Fields that the core never reads, and what is recorded instead; None: nothing."""


def lean(value: Any) -> Any:
    """A row as JSON, without fields that equal their default and without what starts a task."""
    return _lean(cast(Hashable, type(value)))(value)


_PLAIN = frozenset({int, str, bool, type(None)})


def changes(before: Any, after: Any) -> dict[str, Any]:
    """The fields of `after` that differ from `before`, as JSON. Both rows have one class."""
    names, get = _told(cast(Hashable, type(after)))
    pairs = zip(names, get(before), get(after), strict=False)
    return {name: lean(new) for name, old, new in pairs if new is not old and new != old}


@cache
def _told(kind: Any) -> tuple[list[str], Callable[[Any], tuple[Any, ...]]]:
    """The fields of a class that are recorded unchanged, and their getter."""
    names = [field.name for field in fields(kind) if field.name not in SECRETS]
    return names, attrgetter(*names)


@cache
def _lean(kind: Any) -> Callable[[Any], Any]:
    """The function that writes values of a class; cached, since to inspect a class costs more than a row."""
    if is_dataclass(kind):
        return _lean_row(kind)
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, tuple):
        return lambda value: [it if type(it) in _PLAIN else lean(it) for it in value]
    return lambda value: value


def _lean_row(kind: Any) -> Callable[[Any], dict[str, Any]]:
    told = [field for field in fields(kind) if SECRETS.get(field.name, "") is not None]
    names = [field.name for field in told]
    defaults = [it.default if it.default_factory is MISSING else it.default_factory() for it in told]
    get = attrgetter(*names, names[0])  # one name twice, so that the result is always a tuple

    def write(value: Any) -> dict[str, Any]:
        parts = get(value)
        found: dict[str, Any] = {}
        for name, part in compress(zip(names, parts, strict=False), map(ne, parts, defaults)):
            secret = part if type(part) in _PLAIN else SECRETS.get(name)
            found[name] = lean(part) if secret is None else secret
        return found

    return write


def in_memory(cycled: Cycled) -> int:
    """Estimate of the bytes that a waiting cycle keeps. Of a whole world the rows are those of the server."""
    plan = cycled.plan
    changed = (cycled.news, plan.decisions, plan.tasks, plan.starts, plan.stops, plan.resizes)
    shown = (cycled.base or (), plan.verdicts.workloads, plan.standings, plan.protections)
    return ROW_BYTES * (1 + sum(map(len, changed))) + 32 * sum(map(len, shown))


class Ring:
    """pliant.control.recording.Recorder in a folder. A thread writes; what cannot be written is left out."""

    def __init__(self, folder: Path, most: int = MOST, every: int = EVERY, backlog: int = BACKLOG) -> None:
        self._folder = folder
        self._most = most
        self._every = every
        self._backlog = backlog
        self._queue: queue.SimpleQueue[tuple[Cycled, _Gap] | None] = queue.SimpleQueue()
        self._taken = self._done = 0  # counts of cycles; each is changed by one thread only
        self._taken_bytes = self._done_bytes = 0  # likewise, by in_memory()
        self._left_out = _Gap()  # cycles that were not taken since the last one that was
        self._missed = _Gap()  # cycles that were not written since the last one that was
        self._lock = threading.Lock()  # guards the files and what is known of them
        self._files: list[_File] = []
        self._told: dict[tuple[str, Hashable], tuple[int, Row]] = {}  # number in the open file, last value
        self._numbers = count()
        self._open: Any = None
        self._since = every  # cycles since the last whole world
        self._settings: Settings | None = None
        self._checksums = Checksums()
        self._hurried = threading.Event()  # set while a caller waits for gathered cycles
        self.spent = 0  # ns of processor time of the writing thread
        self.due = True
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.jsonl")):
            self._files.append(_File.found(path))
        self._extent = self._seen()
        self._thread = threading.Thread(target=self._run, name="pliant-record", daemon=True)
        self._thread.start()

    def take(self, cycled: Cycled) -> None:
        size, waiting = in_memory(cycled), self._taken_bytes - self._done_bytes
        if (waiting and waiting + size > self._backlog) or (self._left_out.cycles and cycled.base is None):
            if not self._left_out.cycles:
                log.warning("the disk takes no cycles: later ones are left out of the record until it does")
            self._left_out = self._left_out.with_one(cycled)
            self.due = not waiting  # the disk took all the rest: the next whole world can be written
            return
        if cycled.base is not None:
            self.due = False
        if self._left_out.cycles:
            log.info("the record continues; it lacks %d cycles", self._left_out.cycles)
        self._taken += 1
        self._taken_bytes += size
        self._queue.put((cycled, self._left_out))
        self._left_out = _Gap()

    def held(self) -> Extent:
        left_out = self._left_out.cycles if self._extent.first is not None else 0
        return replace(self._extent, missed=self._extent.missed + left_out)

    def _seen(self) -> Extent:
        some, size = [it for it in self._files if it.first is not None], sum(it.size for it in self._files)
        if not some:
            return Extent(None, None, 0, 0, size, self._most)
        missed = sum(file.gap.cycles for file in some[1:]) + self._missed.cycles
        return Extent(some[0].first, some[-1].last, some[0].began, some[-1].ended, size, self._most, missed)

    def record(self, *, cycle: int | None = None, at: int | None = None) -> bytes:
        self.drained(PATIENCE)
        if not self._lock.acquire(timeout=PATIENCE):
            raise Unavailable("The record cannot be read: its disk does not answer.", "Try again later.")
        try:
            self._flush()
            some = [file for file in self._files if file.first is not None]
            found = [number for number, file in enumerate(some) if file.holds(cycle, at)]
            later = [*(file.gap for file in some[1:]), self._missed, self._left_out]
            gaps = [gap for gap in later[found[-1] :] if gap.cycles] if found else []
            if found and (at is None or all(at < gap.since for gap in gaps)):
                return some[found[-1]].path.read_bytes()
        finally:
            self._lock.release()
        held = self.held()
        if held.first is None or held.last is None:
            raise NotFound("No cycle has been recorded yet.")
        what = f"Cycle {cycle}" if cycle is not None else "That time"
        lacks = f", without {held.missed} that could not be written" if held.missed else ""
        raise NotFound(
            f"{what} is not in the record, or no longer.",
            f"It holds cycle {held.first[1]} to {held.last[1]}{lacks}; {held.size} of at most {held.most} "
            "bytes.",
        )

    def newest(self) -> bytes:
        try:
            return self.record()
        except (NotFound, Unavailable):
            return b""

    def drained(self, seconds: float = 120.0) -> bool:
        """Waits until all cycles taken before are written; True if they are."""
        taken, end = self._taken, time.monotonic() + seconds
        while self._done < taken and time.monotonic() < end:  # it may have left the queue unwritten
            self._hurried.set()
            time.sleep(0.005)
        return self._done >= taken

    def close(self) -> None:
        self._queue.put(None)
        self._hurried.set()
        self._thread.join(timeout=10)

    # ------------------------------------------------------------------ the writing thread
    def _run(self) -> None:
        going = True
        while going:
            some = [self._queue.get()]
            self._hurried.wait(0 if some[0] is None else GATHER)
            self._hurried.clear()
            while not self._queue.empty():
                some.append(self._queue.get())
            cycles = [it for it in some if it is not None]
            steps: list[Callable[[], None]] = [partial(self._write_after, *it) for it in cycles]
            for step in (*steps, self._flush):
                try:
                    with self._lock:
                        step()
                except Exception as error:  # noqa: BLE001 - what cannot be written does not affect others
                    log.warning("a cycle could not be recorded: %s", error)
                    with self._lock:
                        self._stop()
                self._extent = self._seen()
            self.spent = time.thread_time_ns()
            self._done_bytes += sum(in_memory(cycled) for cycled, _ in cycles)
            self._done += len(cycles)
            going = len(cycles) == len(some)
        with self._lock:
            if self._open is not None:
                self._open.close()

    def _flush(self) -> None:
        if self._open is not None:
            self._open.flush()

    def _write_after(self, cycled: Cycled, left_out: "_Gap") -> None:
        """Writes a cycle. `left_out`: those before it that were not taken."""
        self._missed = self._missed.with_all(left_out)
        self._write(cycled)

    def _write(self, cycled: Cycled) -> None:
        gap, self._missed = self._missed, self._missed.with_one(cycled)
        entry: dict[str, Any] = {
            "v": VERSION, "epoch": cycled.epoch, "cycle": cycled.cycle, "now": cycled.now,
            "took": cycled.took, "plan": self._checksums.of(cycled.plan),
        }  # fmt: skip
        if cycled.base is not None:
            self._turn(cycled)
            entry |= {"program": __version__, "base": [self._new(row) for row in cycled.base]}
            entry |= {"missed": [gap.cycles, gap.since]} if gap.cycles else {}
        elif self._open is None:
            return  # news without a world are useless
        else:
            entry["news"] = [self._news(it) for it in cycled.news]
        if cycled.base is not None or cycled.settings is not self._settings:
            self._settings = cycled.settings
            entry["settings"] = lean(cycled.settings)
        data = ENCODER.encode(entry).encode() + b"\n"
        file = self._files[-1]
        if cycled.base is not None:
            file.base, file.gap = len(data), gap
        self._since += 1
        if cycled.base is not None and len(data) > self._most // 2:
            self._drop_open()
            return
        if file.size + len(data) > self._most:  # cycles came faster than they were written
            self._stop()
            return
        self._open.write(data)
        file.grew(cycled, len(data))
        self._missed = _Gap()
        self._forget()
        grown = file.size - file.base
        if grown > max(file.base, self._most // 64) and (
            self._since >= self._every or grown > self._most // 4
        ):
            self.due = True

    def _stop(self) -> None:
        """Ends the open file, which lacks a cycle: later ones would build on it. A whole world is due."""
        file, self._open, self.due = self._open, None, True
        if file is not None:
            with suppress(OSError):  # a full disk: the rest is lost, and the next file is whole
                file.close()
            believed, there = self._files[-1], _File(self._files[-1].path)
            with suppress(OSError):  # it cannot be read: then nothing is known to be in it
                there = _File.found(believed.path)
            self._files[-1] = there
            lost = _Gap(believed.cycles - there.cycles, there.ended + 1 if there.cycles else believed.began)
            gap = _Gap() if there.cycles else believed.gap
            self._missed = gap.with_all(lost).with_all(self._missed)

    def _new(self, row: Row) -> list[Any]:
        self._told[WORLD_ROWS.identity(row)] = next(self._numbers), row
        return [type(row).__name__, lean(row)]

    def _news(self, it: News) -> list[Any]:
        """A change in the form that pliant.wire.record.Rows reads."""
        key = WORLD_ROWS.identity(it.row)
        known = self._told.get(key)
        if known is None:
            return [type(it.row).__name__, lean(it.row), True] if it.gone else [*self._new(it.row), False]
        number, before = known
        if it.gone:
            del self._told[key]
            return [number]
        self._told[key] = number, it.row
        return [number, changes(before, it.row)]

    def _turn(self, cycled: Cycled) -> None:
        """Begins a file."""
        if self._open is not None:
            self._open.close()
        path = self._folder / f"{cycled.epoch:06}-{cycled.cycle:09}.jsonl"
        self._open = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        self._files = [file for file in self._files if file.path != path] + [_File(path)]
        self._told, self._numbers = {}, count()
        self._since = 0

    def _drop_open(self) -> None:
        """Drops a world that is larger than the bound, with a warning, and keeps the older files."""
        log.warning("a world is larger than the record of cycles may be (%d bytes)", self._most)
        self._open.close()
        self._open = None
        self._files.pop().path.unlink(missing_ok=True)

    def _forget(self) -> None:
        while len(self._files) > 1 and sum(file.size for file in self._files) > self._most:
            self._files.pop(0).path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Gap:
    """Successive cycles that are not in the record."""

    cycles: int = 0
    since: int = 0  # ms; the first one's time

    def with_one(self, cycled: Cycled) -> "_Gap":
        return self.with_all(_Gap(1, cycled.now))

    def with_all(self, later: "_Gap") -> "_Gap":
        return _Gap(self.cycles + later.cycles, self.since if self.cycles else later.since)


class _File:
    """One file of the record, and the cycles in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.base = self.cycles = 0
        self.gap = _Gap()  # before its first cycle
        self.first: tuple[int, int] | None = None
        self.last: tuple[int, int] | None = None
        self.began = self.ended = 0

    @classmethod
    def found(cls, path: Path) -> "_File":
        """A file that an earlier server left; its last line may be torn."""
        file = cls(path)
        data = path.read_bytes()
        lines = data.splitlines()
        for line in (lines[0], *lines[-1:-3:-1]) if lines else ():
            try:
                entry = json.loads(line)
                key, now = (int(entry["epoch"]), int(entry["cycle"])), int(entry["now"])
            except (ValueError, KeyError, TypeError):
                continue
            if file.first is None:
                file.first, file.began = key, now
                file.gap = _Gap(*map(int, entry.get("missed", ())))
            if file.last is None or key > file.last:
                file.last, file.ended = key, now
        file.size, file.cycles = len(data), data.count(b"\n")
        return file

    def grew(self, cycled: Cycled, size: int) -> None:
        self.last, self.ended = (cycled.epoch, cycled.cycle), cycled.now
        if self.first is None:
            self.first, self.began = self.last, cycled.now
        self.size += size
        self.cycles += 1

    def holds(self, cycle: int | None, at: int | None) -> bool:
        assert self.first is not None and self.last is not None
        if cycle is not None:
            return self.first[1] <= cycle <= self.last[1]
        return at is None or self.began <= at
