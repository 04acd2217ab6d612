"""The decider as a separate process: it gives the same plans, is replaced when gone, and blocks no loop."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.control.decider import child, dialogue
from pliant.control.decider.child import ChildDecider
from pliant.control.decider.core import Core, Inline
from pliant.control.decider.dialogue import CLOSE, CROWD, REST
from pliant.control.decider.pieces import PIECE, Receiver, Sender, lean
from pliant.control.decider.port import Ask, Decided, News
from pliant.control.errors import NotFound, Unavailable
from pliant.control.loop import PROMPT
from pliant.control.state.draft import Draft
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.model.fact import NodeLost
from pliant.model.machine import DEFAULT_POOL, Gpu, Node
from pliant.model.reason import NoCapacity
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.workload import Kind, Launch, Phase, Request, Task, TaskGroup, Workload
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.store.rerun import digest
from tests.control.stage import FailingStore, Stage
from tests.control.works import clears, fails, marked, memory, refuses, swells

NOW = 1_700_000_000_000


def rows(count: int) -> list[object]:
    """Two nodes of four GPUs and `count` workloads of one GPU."""
    project = Project("p", "p", ((DEFAULT_POOL, Quota(8000)),), department="d")
    found: list[object] = [Department("d", "default"), project]
    found += [
        Node(name, tuple(Gpu(f"{name}.{at}", at, 2**34) for at in range(4)), 64_000, 2**36)
        for name in ("n1", "n2")
    ]
    for number in range(count):
        found += submitted(number)
    return found


def submitted(number: int) -> tuple[Workload, Task]:
    wid = f"w{number:05}"
    launch = Launch("ubuntu", ("echo", "hush"))
    group = TaskGroup("main", Request(1, cpu=100, memory=2**20))
    row = Workload(wid, wid, "p", Kind.TRAINING, launch, (group,), serial=number + 1, phase=Phase.PENDING)
    return replace(row, created=NOW), Task(wid, "main-0", "main", 0)


def first(count: int, number: int = 1) -> Ask:
    return Ask(number, NOW, Settings(), (), rows(count))  # type: ignore[arg-type]


def later(number: int, *more: object) -> Ask:
    return Ask(number, NOW + number, Settings(), [News(row) for row in more])  # type: ignore[arg-type]


def until(holds: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


@pytest.fixture
def decider() -> Iterator[ChildDecider]:
    made = ChildDecider(late=0.3, lost=90)
    made.open(lambda: None)
    yield made
    made.close()


def answer(decider: ChildDecider) -> Decided:
    found = decider.answer(120)
    assert found is not None
    return found


def ready(decider: ChildDecider, count: int = 10, number: int = 1) -> Decided:
    """Waits for the first plan; a decider that a busy machine starts too slowly is replaced meanwhile."""
    while True:
        decider.ask(first(count, number))
        decided = answer(decider)
        if decided.plan is not None:
            return decided


# -- the same everywhere ---------------------------------------------------------------------------


def test_its_plans_are_those_of_the_core(decider: ChildDecider) -> None:
    inline = Inline()
    asks = [first(3 * PIECE), *(later(number, *submitted(1000 + number)) for number in (2, 3, 4))]
    for ask in asks:
        decider.ask(ask)
        inline.ask(ask)
        here, there = inline.answer(0), answer(decider)
        assert here is not None and here.plan is not None and there.plan is not None
        assert there.number == ask.number
        assert there.plan == here.plan
        assert digest(there.plan) == digest(here.plan)  # which also sees what is one object
        assert len(there.plan.starts) == 8


def test_what_a_job_runs_stays_in_the_server(decider: ChildDecider) -> None:
    row = submitted(1)[0]
    assert lean(row) == replace(row, launch=Launch(""))
    ready(decider, 2)
    assert b"hush" not in decider.question(memory, 1, 120)


# -- questions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inline", "child"])
def test_a_question_is_about_a_copy(kind: str, decider: ChildDecider) -> None:
    one = Inline() if kind == "inline" else decider
    one.ask(first(10))
    assert one.answer(120) is not None
    assert one.question(clears, 1, 120) == 2
    assert one.question(attrgetter("number"), 1, 120) == 1
    one.ask(later(2))
    found = one.answer(120)
    assert found is not None and found.plan is not None and len(found.plan.starts) == 8
    with pytest.raises(NotFound, match=r"There is no such thing\. Look elsewhere"):
        one.question(refuses, 1, 120)


def test_what_goes_wrong_in_a_question_is_told(decider: ChildDecider) -> None:
    ready(decider)
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        decider.question(fails, 1, 120)
    with pytest.raises(Unavailable, match="not enough memory"):
        decider.question(swells, 1, 120)
    with pytest.raises(Unavailable, match=r"not be answered within 0\.3 s"):
        decider.question(partial(marked, path=os.devnull), 1, 0.3)
    assert decider.question(attrgetter("number"), 1, 120) == 1


def test_a_question_waits_for_what_was_recorded_before_it(decider: ChildDecider) -> None:
    ready(decider)
    found: list[int] = []
    asker = threading.Thread(target=lambda: found.append(decider.question(attrgetter("number"), 2, 120)))
    asker.start()
    asker.join(0.3)
    assert not found
    decider.ask(later(2))
    answer(decider)
    asker.join(120)
    assert found == [2]


def test_a_question_in_flight_is_asked_of_the_new_decider(decider: ChildDecider, tmp_path: Path) -> None:
    ready(decider)
    mark, found = tmp_path / "mark", list[int]()
    mark.touch()
    work = partial(marked, path=str(mark))
    asker = threading.Thread(target=lambda: found.append(decider.question(work, 1, 240)))
    asker.start()
    until(mark.read_text)
    old = decider.pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    assert answer(decider).plan is None
    os.kill(int(mark.read_text().split()[0]), signal.SIGKILL)
    decider.ask(first(10, 2))
    assert answer(decider).plan is not None
    asker.join(240)
    assert found == [1]
    assert decider.pid != old


# -- gone, silent, too large -----------------------------------------------------------------------


def test_one_that_is_gone_is_made_anew_and_told_everything(decider: ChildDecider) -> None:
    ready(decider)
    for number in (2, 5):
        pid = decider.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert answer(decider).plan is None  # at once, without a question
        assert "was ended by SIGKILL" in decider.trouble
        decider.ask(later(number))
        assert answer(decider) == Decided(number, None)  # the new one has no world yet
        decider.ask(first(10, number + 1))
        assert len(answer(decider).plan.starts) == 8  # type: ignore[union-attr]
        assert decider.trouble == ""


@pytest.mark.slow
@pytest.mark.parametrize("ask", [later(2), first(5_000, 2)], ids=["small", "more than a pipe takes"])
def test_one_that_hangs_is_told_of_and_in_the_end_replaced(ask: Ask) -> None:
    decider = ChildDecider(late=0.2, lost=20)
    decider.open(lambda: None)
    try:
        ready(decider)
        pid = decider.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        decider.ask(ask)
        assert decider.answer(0.05) is None
        until(lambda: decider.trouble)
        assert "has not answered for" in decider.trouble and "running jobs continue" in decider.trouble
        began = time.monotonic()
        with pytest.raises(Unavailable, match="scheduler"):
            decider.question(attrgetter("number"), 1, 280)
        assert time.monotonic() - began < 120  # the question fails before its own time limit
        assert answer(decider) == Decided(2, None)
        assert "did not answer" in decider.trouble
        ready(decider, number=3)
        assert decider.trouble == ""
    finally:
        decider.close()


def test_where_each_is_killed_before_its_first_plan_the_next_one_has_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an overloaded machine: starting a decider takes longer than the limit for replacing it."""
    monkeypatch.setattr(child, "DOUBLINGS", 12)
    decider = ChildDecider(lost=0.02)  # its imports alone take longer on any machine
    decider.open(lambda: None)
    try:
        decider.ask(first(10))
        assert answer(decider) == Decided(1, None)
        until(lambda: "did not answer" in decider.trouble)
        number, deadline = 1, time.monotonic() + 240
        while decider.trouble:
            assert time.monotonic() < deadline, decider.trouble
            number += 1
            decider.ask(first(10, number))
            answer(decider)
    finally:
        decider.close()


def test_one_without_memory_says_so_and_the_next_one_has_some(decider: ChildDecider) -> None:
    ready(decider)
    pid = decider.pid
    assert pid is not None
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 2**21, used + 2**21))
    decider.ask(first(20_000, 2))
    assert answer(decider) == Decided(2, None)
    assert "ran out of memory" in decider.trouble
    decider.ask(first(20_000, 3))
    assert answer(decider).plan is not None
    assert decider.trouble == ""


SERVER = """
import sys, time
from pliant.control.decider.child import ChildDecider
decider = ChildDecider()
decider.open(lambda: None)
while decider.pid is None:
    time.sleep(0.01)
print(decider.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_server_even_if_it_hangs() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        until(lambda: Path(f"/proc/{pid}/oom_score_adj").read_text() == "500\n")  # by then it is tied to it
        os.kill(pid, signal.SIGSTOP)
        server.kill()
    until(lambda: ended(pid))


def ended(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_starts_light() -> None:
    code = "import sys, pliant.control.decider.process; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"sqlalchemy", "pydantic", "fastapi", "numpy", "pliant.store"} & set(done.stdout.split())


# -- the loop does not wait ------------------------------------------------------------------------


class Slow(Inline):
    """Answers only while `slow` is false."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False

    def answer(self, timeout: float) -> Decided | None:
        return None if self.slow else super().answer(timeout)


@pytest.fixture
def slow(stage: Stage) -> Slow:
    """Replaces the stage's decider and takes over its world."""
    made, known = Slow(), stage.loop.decider
    assert isinstance(known, Inline)
    made.core = known.core
    stage.loop._dialogue.decider = made
    made.slow = True
    return made


def test_requests_are_answered_while_the_decider_is_busy(stage: Stage, slow: Slow) -> None:
    one = stage.submit("one")
    two = stage.submit("two")
    assert [stage.phase(it) for it in (one, two)] == ["Pending", "Pending"]
    saved = {row.id for row in stage.store.load().of(Workload)}
    assert {one, two} <= saved
    slow.slow = False
    stage.run()
    assert [stage.phase(it) for it in (one, two)] == ["Running", "Running"]


def test_a_quota_is_as_it_was_set_before_there_is_a_plan_with_it(stage: Stage, slow: Slow) -> None:
    slow.slow = False
    stage.project("team", 1)
    stage.run()
    slow.slow = True
    change = QueueChange(quotas=((DEFAULT_POOL, QuotaChange(gpu=2000)),))
    stage.service.update_project("team", change, "me")
    shown = {view.queue.name: view.uses[0].quota for view in stage.loop.board.projects.values()}
    assert shown["team"] == 2000


def test_a_plan_about_what_has_changed_is_dropped_and_made_again(stage: Stage, slow: Slow) -> None:
    job = stage.submit("job")  # the plan not yet taken starts it
    (node,) = stage.loop.world.nodes
    stage.service.cordon(node, True, "me")
    slow.slow = False
    stage.run()
    assert stage.phase(job) == "Pending"
    assert [*stage.store.attempts(job)] == []
    stage.service.cordon(node, False, "me")
    stage.run()
    assert stage.phase(job) == "Running"
    assert len(stage.store.attempts(job)) == 1


def test_a_plan_about_a_deleted_workload_starts_nothing(stage: Stage, slow: Slow) -> None:
    job, other = stage.submit("job"), stage.submit("other")
    stage.service.delete(job, "me")
    slow.slow = False
    stage.run(1000)
    assert [*stage.store.attempts(job)] == []
    assert stage.phase(other) == "Running"


def test_a_plan_stands_though_others_were_submitted_meanwhile(stage: Stage, slow: Slow) -> None:
    job = stage.submit("job")
    cycles = stage.loop.state.cycles
    stage.submit("other")
    slow.slow = False
    stage.loop.cycle([])
    assert stage.loop.state.cycles == cycles  # no other plan was made
    assert len(stage.store.attempts(job)) == 1


@pytest.mark.parametrize("what", ["a quota", "a setting"])
def test_what_bounds_every_decision_voids_a_plan_when_it_changes(stage: Stage, slow: Slow, what: str) -> None:
    job = stage.submit("job")
    if what == "a quota":
        stage.project("another", 1)
    else:
        stage.service.tune({"victims": "youngest"}, "me")
    slow.slow = False
    stage.loop.cycle([])
    assert [*stage.store.attempts(job)] == []
    stage.run()
    assert stage.phase(job) == "Running"


def test_a_decider_that_is_gone_gets_the_whole_world(stage: Stage, slow: Slow) -> None:
    job = stage.submit("job")
    slow.core = Core()  # a fresh one
    slow._decided = Decided(stage.loop.state.cycles, None)
    slow.slow = False
    stage.run()
    assert stage.phase(job) == "Running"
    assert slow.core.world.snapshot() == stage.loop.world.snapshot()


class Ringing(Inline):
    """Wakes the loop for every answer, as a decider on another thread does."""

    def __init__(self, core: Core, wake: Callable[[], None]) -> None:
        super().__init__()
        self.core, self.wake = core, wake

    def ask(self, ask: Ask) -> None:
        super().ask(ask)
        self.wake()


def test_an_answer_that_a_cycle_has_taken_makes_no_other_cycle(stage: Stage) -> None:
    loop = stage.loop
    assert isinstance(loop.decider, Inline)
    loop._dialogue.decider = Ringing(loop.decider.core, loop._arrived)
    before = loop.state.turns
    loop.wake()
    loop.start()
    until(lambda: loop.state.turns > before)
    for _ in range(50):  # each look is answered between two cycles
        loop.look(lambda state: None)
    assert loop.state.turns == before + 1
    loop.close()


def test_of_verdicts_only_what_changed_is_sent() -> None:
    """A queue of thousands is not sent again for one more workload."""
    theirs, ours = Pipe()
    sender, receiver = Sender(theirs), Receiver(ours, 60)

    def sent(workloads: Sequence[str], *runs: tuple[NoCapacity, int]) -> tuple[int, Plan]:
        reasons = [reason for reason, length in runs for _ in range(length)]
        told = Decided(1, Plan(verdicts=Verdicts.of_each(workloads, reasons)))
        sizes: list[int] = []
        counted = SimpleNamespace(send_bytes=lambda data: (sizes.append(len(data)), theirs.send_bytes(data)))
        sender._pipe = counted  # type: ignore[assignment]
        writer = threading.Thread(target=sender.decided, args=(told,))  # a pipe cannot buffer all of it
        writer.start()
        plan = receiver.decided().plan
        writer.join()
        assert plan is not None and told.plan is not None and plan.verdicts == told.plan.verdicts
        return sum(sizes), plan

    reason, other = NoCapacity(1000, 1, 0, 0, 2), NoCapacity(1000, 1, 1000, 1000, 2)
    known = [f"w{number:05}" for number in range(10_000)]
    whole, before = sent(known, (reason, 10_000))
    for changed in ([*known, "new"], known[1:], [*known[:5000], "new", *known[5000:]], known):
        size, now = sent(changed, (replace(reason), len(changed)))
        assert size < whole / 50
        assert now.verdicts.reasons[0] is before.verdicts.reasons[0], "an equal reason stays one object"
    size, now = sent(known, (replace(reason), 1), (replace(reason), 4999), (other, 5000))
    assert size < whole / 50
    size, now = sent(known, (reason, 1), (other, 4999), (reason, 5000))
    assert [*now.verdicts.which] == [0, 1, 0]
    size, now = sent(known, (replace(reason), 1), (other, 4999), (replace(reason), 5000))
    assert [*now.verdicts.which] == [0, 1, 2], "what the checksum counts as two stays two"
    theirs.close()
    ours.close()


def _knows_it(core: Core) -> bool:
    return "w00007" in core.world.workloads


def test_what_a_server_that_cannot_record_had_sent_is_taken_back(stage: Stage) -> None:
    """The decider follows the rows on disk, not those whose commit failed."""
    store = FailingStore(stage.store)
    stage.loop.store = store  # type: ignore[assignment]
    store.error = OSError("disk full")

    def run(draft: Draft) -> None:
        for row in submitted(7):
            draft.put(row)

    with pytest.raises(Unavailable):
        stage.loop.call(run)
    store.error = None
    assert not stage.loop.question(_knows_it), "the first question finds what is on disk"
    stage.run()
    assert isinstance(stage.loop.decider, Inline)
    assert "w00007" not in stage.loop.decider.core.world.workloads
    assert stage.loop.decider.core.world.snapshot() == stage.loop.world.snapshot()


class Beside(Inline):
    """Uses the loop's processor time; records how often it is asked and how long the loop waits."""

    beside = True

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core
        self.asked = 0
        self.waits: list[float] = []  # seconds

    def ask(self, ask: Ask) -> None:
        self.asked += 1
        super().ask(ask)

    def answer(self, timeout: float) -> Decided | None:
        self.waits.append(timeout)
        decided = super().answer(timeout)
        return replace(decided, took=TOOK) if decided is not None else None


TOOK = 5000
"""Microseconds of a plan: one request waits for it, a crowd of requests does not."""


@pytest.fixture
def beside(stage: Stage) -> Beside:
    """Replaces the stage's decider, takes over its world and has made a plan."""
    known = stage.loop.decider
    assert isinstance(known, Inline)
    made = Beside(known.core)
    stage.loop._dialogue.decider = made
    stage.loop._dialogue._took = TOOK / 1e6
    return made


def test_one_request_waits_for_its_plan_and_a_crowd_does_not(
    stage: Stage, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()

    def monotonic() -> float:
        """Advances by 0.1 ms at each call, so that pauses end."""
        nonlocal now
        now += 0.0001
        return now

    monkeypatch.setattr(dialogue, "time", SimpleNamespace(monotonic=monotonic))
    stage.submit("alone")
    assert PROMPT in beside.waits
    stage.loop._dialogue.take_in(CROWD)
    beside.waits.clear()
    crowd = [stage.submit(f"crowd-{at}") for at in range(3)]
    assert set(beside.waits) == {0.0}
    assert {row.id for row in stage.store.load().of(Workload)} >= {*crowd}
    now += CLOSE
    stage.submit("later")
    assert PROMPT in beside.waits


def test_a_store_that_cannot_write_is_not_tried_again_at_once(stage: Stage, beside: Beside) -> None:
    """Otherwise the loop would decide, fail and log forty times a second while the disk is full."""
    stage.submit("job")
    store = FailingStore(stage.store)
    stage.loop.store = store  # type: ignore[assignment]
    store.error = OSError("disk full")
    stage.loop.post(NodeLost("sim-0"))
    stage.loop.cycle()
    assert stage.loop.due
    asked = beside.asked
    for _ in range(10):
        stage.loop.cycle()
    assert beside.asked == asked
    assert 0 < stage.loop._dialogue.rest <= REST
