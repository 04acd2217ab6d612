"""The use of tasks, from a fake /proc: descendants, old looks, tasks that come and go."""

import json
import os

import pytest

from pliant.control.ports import TaskLoad
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.observe import usage
from pliant.model.workload import AttemptId

A, B = AttemptId("w", "task-0", 1), AttemptId("w", "task-1", 1)
TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Machine:
    """Fake processes, and a clock that advances when a caller sleeps."""

    def __init__(self, folder):
        self.proc, self.now = folder / "proc", 0.0
        self.layout = Layout(folder / "state")
        self.living = []
        self.proc.mkdir()
        self.layout.prepare()
        self.usage = usage.Usage(
            self.layout, lambda: self.living, proc=self.proc, clock=lambda: self.now, sleep=self.sleep
        )

    def sleep(self, seconds):
        self.now += seconds

    def supervise(self, attempt, pid):
        self.layout.make(attempt)
        (self.layout.folder(attempt) / "lock").write_text(json.dumps({"pid": pid, "start": 7}))
        self.living.append(attempt)
        self.process(pid, 1, pages=1000)

    def process(self, pid, parent, ticks=(0, 0, 0, 0), pages=0):
        (self.proc / str(pid)).mkdir(exist_ok=True)
        words = ["S", parent, *[0] * 9, *ticks, *[0] * 4, 7, 0, pages]
        (self.proc / str(pid) / "stat").write_text(f"{pid} (a) b) c) " + " ".join(map(str, words)))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "started", lambda pid: 7)
    return Machine(tmp_path)


def test_a_task_is_all_that_descends_from_its_supervisor(machine):
    machine.supervise(A, 100)
    machine.process(101, 100, pages=10)
    machine.process(102, 101, pages=5)
    machine.process(200, 1, pages=999)
    assert machine.usage.loads() == {A: TaskLoad(0, 15 * PAGE)}
    machine.now += 2
    machine.process(101, 100, ticks=(TICK, TICK, 0, 0), pages=10)
    machine.process(102, 101, ticks=(TICK, 0, 0, 0), pages=5)
    assert machine.usage.loads() == {A: TaskLoad(1500, 15 * PAGE)}


def test_a_child_that_has_ended_still_counts(machine):
    machine.supervise(A, 100)
    machine.process(101, 100)
    machine.process(102, 101, ticks=(TICK, 0, 0, 0))
    machine.usage.loads()
    machine.now += 2
    (machine.proc / "102" / "stat").unlink()
    machine.process(101, 100, ticks=(0, 0, 3 * TICK, 0))
    assert machine.usage.loads()[A].cpu == 1000


def test_a_look_that_is_old_is_none(machine):
    machine.supervise(A, 100)
    machine.process(101, 100)
    machine.usage.loads()
    machine.now += usage.STALE + 1
    machine.process(101, 100, ticks=(10**6, 0, 0, 0))
    assert machine.usage.loads()[A].cpu == 0, "measured anew, from now on"


def test_many_who_ask_at_once_get_one_look(machine):
    machine.supervise(A, 100)
    first = machine.usage.loads()
    machine.process(101, 100, pages=10)
    assert machine.usage.loads() is first


def test_tasks_that_come_and_go(machine):
    machine.supervise(A, 100)
    machine.usage.loads()
    machine.now += 2
    machine.supervise(B, 200)
    machine.process(201, 200, ticks=(10**6, 0, 0, 0), pages=3)
    machine.living.remove(A)
    assert machine.usage.loads() == {B: TaskLoad(None, 3 * PAGE)}


def test_a_number_that_another_process_has_now_is_none(machine, monkeypatch):
    machine.supervise(A, 100)
    monkeypatch.setattr(usage, "started", lambda pid: 8)
    assert machine.usage.loads() == {}
