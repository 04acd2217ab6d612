"""Live resizes: a device is free when no process of the attempt is seen on it, whatever the job reports."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pliant.engines.local.folder.layout import VERSION, Layout, read_json, write_json
from pliant.engines.local.launch.launcher import Launcher
from pliant.engines.local.living import Living
from pliant.engines.local.observe import processes
from pliant.model.order import Resize
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  # between two looks at the processes on the devices
TERM_SECONDS = 10.0  # longest time from SIGTERM to SIGKILL for a worker that stays after the deadline
ANSWER_SECONDS = 2.0  # for a job whose workers were killed to acknowledge that it starts no others there

Seen = Callable[[], Mapping[str, Iterable[int]]]
"""Pids by device (uuid), as the driver counts them."""


@dataclass(slots=True)
class _Open:
    """A resize that takes devices from a living attempt."""

    order: Resize
    report: Callable[[], None]  # called once the lost devices are empty
    going: frozenset[str]
    due: float  # monotonic seconds; the next step is taken then
    said: set[str] = field(default_factory=set)  # devices that the job has left for good
    step: int = 0  # 1: its workers there got SIGTERM, 2: SIGKILL, 3: the attempt was asked to end
    looking: bool = False

    @property
    def acknowledged(self) -> bool:
        return self.going <= self.said


class Resizing:
    """All methods run on the strand of the task: one at a time per task."""

    def __init__(self, layout: Layout, living: Living, launcher: Launcher, seen: Seen = dict) -> None:
        self._layout, self._living, self._launcher, self._seen = layout, living, launcher, seen
        self._open: dict[AttemptId, _Open] = {}

    def register(self, attempt: AttemptId, pid: int) -> None:
        """Record that process as the job's agent: it follows the allocation and uses no GPU itself."""
        if attempt not in self._living or self._launcher.attempt_of(pid) != attempt:
            log.warning("process %d says that it is the agent of %s, of which it is none", pid, attempt)
            return
        document = {"version": VERSION, "pid": pid, "start": processes.started(pid)}
        write_json(self._layout.folder(attempt) / "agent.json", document)

    def going(self, order: Resize) -> set[str]:
        """Devices that a live attempt has by its allocation document and loses by this order."""
        shown = (read_json(self._layout.folder(order.attempt) / "allocation.json") or {}).get("tasks", [])
        own = [one for one in shown if one["id"] == order.attempt.task and one["state"] != "pending"]
        return {gpu for one in own for gpu in one["gpus"]} - set(order.placement.uuids)

    def resize(self, order: Resize, report: Callable[[], None]) -> None:
        """Call `report` once the lost devices are empty, at once if there are none; no process gets a signal
        before the deadline. The newest order replaces earlier ones."""
        attempt, going = order.attempt, self.going(order)
        self._open.pop(attempt, None)
        if not going:
            report()
            return
        one = _Open(order, report, frozenset(going), time.monotonic() + order.grace / 1000)
        self._open[attempt] = one
        self._living.later(order.grace / 1000, attempt, partial(self._begin, attempt, one))

    def acknowledge(self, attempt: AttemptId, gpus: Iterable[str]) -> None:
        """The job has left these devices for good; once it has left all that go, look before the deadline."""
        one = self._open.get(attempt)
        if one is None:
            return
        one.said.update(gpus)
        if one.acknowledged:
            self._begin(attempt, one)

    def _begin(self, attempt: AttemptId, one: _Open) -> None:
        if not one.looking and self._open.get(attempt) is one:
            one.looking = True
            self._look(attempt, one)

    def _look(self, attempt: AttemptId, one: _Open) -> None:
        if self._open.get(attempt) is not one:
            return  # another order has come since
        if attempt not in self._living:
            del self._open[attempt]
            return
        busy = self.users(attempt, one.going)
        if not busy and (one.acknowledged or one.step == 0):
            del self._open[attempt]
            one.report()
            return
        if time.monotonic() >= one.due:
            self._press(attempt, one, busy)
        self._living.later(LOOK_SECONDS, attempt, partial(self._look, attempt, one))

    def _press(self, attempt: AttemptId, one: _Open, busy: set[int]) -> None:
        """Take the next step: the deadline is over, and a process uses a lost device or may use it again."""
        if one.step == 3:
            return  # its supervisor does the rest
        one.step += 1
        if one.step == 3 or self._agent(attempt) is None:
            log.warning("%s does not leave %s: it is stopped", attempt, ", ".join(sorted(one.going)))
            one.step = 3
            self._living.signal(attempt)
            return
        number = signal.SIGTERM if one.step == 1 else signal.SIGKILL
        log.warning("%s keeps %s: %s", attempt, ", ".join(sorted(one.going)), signal.Signals(number).name)
        for pid in busy:
            _send(self._launcher, attempt, pid, number)
        wait = min(one.order.grace / 1000, TERM_SECONDS) if one.step == 1 else ANSWER_SECONDS
        one.due = time.monotonic() + wait

    def users(self, attempt: AttemptId, gpus: frozenset[str]) -> set[int]:
        """Processes of the attempt on one of these devices: those that the driver counts there, and those
        started with one, except the agent, its ancestors and the supervisor, which start with all."""
        driver = {pid for gpu, pids in self._seen().items() if gpu in gpus for pid in pids}
        if self._launcher.boxed:  # users control environments; new processes cannot open the cards
            return {pid for pid in driver if self._launcher.attempt_of(pid) == attempt}
        spared = self._spared(attempt)
        found = set()
        for carrier in processes.carriers(self._layout, attempt.__eq__):
            if carrier.pid in driver or (carrier.pid not in spared and gpus & _visible(carrier.pid)):
                found.add(carrier.pid)
        return found

    def _spared(self, attempt: AttemptId) -> set[int]:
        lock = read_json(self._layout.folder(attempt) / "lock") or {}
        spared = {lock.get("pid", 0)}
        pid = self._agent(attempt)
        while pid is not None and pid > 1 and processes.attempt_of(self._layout, pid) == attempt:
            spared.add(pid)
            pid = _parent(pid)
        return spared

    def _agent(self, attempt: AttemptId) -> int | None:
        """The pid of the agent; None if there is none or it has ended."""
        said = read_json(self._layout.folder(attempt) / "agent.json")
        if said is None or processes.started(said["pid"]) != said["start"]:
            return None
        return int(said["pid"])


def _visible(pid: int) -> set[str]:
    """Devices that were visible to a process at its start."""
    items = processes.environment(pid).split(b"\0")
    env = dict(item.partition(b"=")[::2] for item in reversed(items))  # of two of a name, the first counts
    text = env.get(b"PLIANT_TRAIN_DEVICE") or env.get(b"CUDA_VISIBLE_DEVICES") or b""
    return set(os.fsdecode(text).split(","))


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.readall()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text[text.rindex(b")") + 1 :].split()[1])


def _send(launcher: Launcher, attempt: AttemptId, pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            if launcher.attempt_of(pid) == attempt:  # still the same process
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)
