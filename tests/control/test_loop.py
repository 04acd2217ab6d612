"""Record, then act: what survives, what is repeated, what changes nothing."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pliant.control.errors import Unavailable
from pliant.control.loop import BREATH
from pliant.control.ports import Batch, StaleEpoch, Store
from pliant.model.fact import AttemptEnded, AttemptStarted
from pliant.model.machine import Node, Placement
from pliant.model.workload import AttemptId, Exit, Task, TaskPhase
from pliant.sched.plan import Plan
from pliant.store import StoreError
from pliant.store.errors import DatabaseLost
from tests.api.stage import until
from tests.control.stage import FailingStore, Stage


def test_submit_runs_and_ends(stage: Stage) -> None:
    job = stage.submit("job", virtual={"seconds": 5})
    stage.run()
    assert (stage.phase(job), stage.view(job).gpu) == ("Running", 1000)
    stage.run(5000)
    assert (stage.phase(job), stage.view(job).gpu) == ("Completed", 0)
    assert stage.view(job).workload.running_ms == 5000
    assert [kind for kind in stage.history(job) if kind in ("Submitted", "Running", "Completed")] == [
        "Submitted",
        "Running",
        "Completed",
    ]


def test_a_failing_job_is_tried_again_with_growing_pauses_and_then_fails(stage: Stage) -> None:
    job = stage.submit("job", virtual={"seconds": 1, "exit": 3}, backoff_limit=2)
    stage.run(1000)
    assert stage.phase(job) == "Pending"
    assert stage.view(job).gpu == 0
    stage.run(10_000 + 1000 + 20_000 + 1000)
    assert stage.phase(job) == "Failed"
    assert "exit code 3" in stage.view(job).workload.phase_message
    assert len(stage.service.attempts(job)) == 3


def test_a_job_whose_account_is_gone_is_held_and_not_tried_again(stage: Stage) -> None:
    job = stage.submit("job")
    stage.run()
    gone = "uid 1000 of anna has no name any more: owner-gone"
    first = AttemptId(job, "task-0", 1)
    stage.loop.post(AttemptEnded(first, Exit(stage.timeline.now(), code=126, error=gone)))
    stage.run(100_000_000)
    assert (stage.phase(job), len(stage.service.attempts(job))) == ("Stopped", 1)
    assert "Suspended" in stage.history(job)
    stage.service.resume(job, "root")
    stage.run()
    assert (stage.phase(job), len(stage.service.attempts(job))) == ("Running", 2), "its account came back"


def test_a_restart_of_the_server_changes_nothing(stage: Stage) -> None:
    running, waiting = stage.submit("running", 2), stage.submit("waiting", 1)
    stage.run(1000)
    before = stage.loop.world.snapshot()
    stage.reopen()
    assert stage.loop.world.snapshot() == before
    assert (stage.phase(running), stage.phase(waiting)) == ("Running", "Pending")
    assert [len(stage.service.attempts(job)) for job in (running, waiting)] == [1, 0]


def test_an_order_that_never_left_is_sent_after_a_restart(stage: Stage) -> None:
    sent = stage.loop._orders.send
    stage.loop._orders.send = lambda order: None  # the server dies between record and order
    job = stage.submit("job")
    assert stage.machines.runs == {}
    del sent
    stage.reopen()
    stage.run()
    assert stage.phase(job) == "Running"
    assert list(stage.machines.runs) == [AttemptId(job, "task-0", 1)]


def test_a_stop_that_never_left_is_sent_after_a_restart(stage: Stage) -> None:
    job = stage.submit("job")
    stage.run()
    stage.loop._orders.send = lambda order: None
    stage.service.delete(job, "me")
    assert stage.machines.runs[AttemptId(job, "task-0", 1)].alive
    stage.reopen()
    stage.run()
    assert AttemptId(job, "task-0", 1) not in stage.machines.runs
    assert job not in stage.loop.board.workloads


def test_facts_of_an_older_attempt_change_nothing(stage: Stage) -> None:
    job = stage.submit("job", virtual={"seconds": 1, "exit": 1})
    stage.run(1000 + 10_000)
    assert stage.loop.world.tasks[job, "task-0"].attempt == 2
    before = stage.loop.world.snapshot()
    old = AttemptId(job, "task-0", 1)
    stage.loop.post(AttemptStarted(old, stage.timeline.now()))
    stage.loop.post(AttemptEnded(old, Exit(stage.timeline.now(), code=0)))
    stage.loop.settle()
    assert stage.loop.world.snapshot() == before


def test_a_lost_attempt_is_followed_by_the_next_number(stage: Stage) -> None:
    job = stage.submit("job")
    stage.run(60_000)
    stage.loop.post(AttemptEnded(AttemptId(job, "task-0", 1), Exit(stage.timeline.now(), lost=True)))
    stage.run()
    task = stage.loop.world.tasks[job, "task-0"]
    assert (task.attempt, task.phase, task.failures) == (2, TaskPhase.RUNNING, 0)
    assert "Lost" in stage.history(job)


def test_a_disk_that_is_full_refuses_and_changes_nothing(stage: Stage) -> None:
    running = stage.submit("running", virtual={"seconds": 5})
    stage.run()
    disk = FailingStore(stage.store)
    stage.loop.store = disk  # type: ignore[assignment]
    disk.error = StoreError("the disk is full")
    before = stage.loop.world.snapshot()
    with pytest.raises(Unavailable, match="disk is full"):
        stage.submit("job")
    assert stage.loop.world.snapshot() == before
    stage.run(5000)  # the end of the running job cannot be recorded now and is kept
    assert stage.phase(running) == "Running"
    disk.error = None
    stage.run(1000)
    assert stage.phase(running) == "Completed"
    assert [view.workload.name for view in stage.loop.board.workloads.values()] == ["running"]


def test_the_plan_of_a_cycle_that_was_not_recorded_is_no_plan(stage: Stage) -> None:
    """Otherwise the loop would assume its decisions made and cycle without pause on a full disk."""
    disk = FailingStore(stage.store)
    stage.loop.store = disk  # type: ignore[assignment]
    disk.error = StoreError("the disk is full")
    answer = stage.loop.submit(lambda draft: draft.put(replace(stage.loop.world.nodes["sim-0"].row, cpu=1)))
    stage.loop.cycle()
    assert isinstance(answer.exception(0), Unavailable)
    assert stage.loop.plan == Plan()
    disk.error = None
    job = stage.submit("job")
    disk.error = StoreError("the disk is full")
    stage.loop.post(AttemptEnded(AttemptId(job, "task-0", 1), Exit(stage.timeline.now(), lost=True)))
    stage.loop.cycle()  # it plans the next attempt, which is not started
    assert stage.loop.plan == Plan()


class LostStore:
    """A store whose connection breaks at a transaction's end: the caller cannot know if it was written."""

    def __init__(self, store: Store, *, written: bool) -> None:
        self._store, self._written, self.breaks = store, written, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, epoch: int, batch: Batch) -> None:
        if self.breaks == 0:
            self._store.commit(epoch, batch)
            return
        self.breaks -= 1
        if self._written and (batch.put or batch.events):
            self._store.commit(epoch, batch)
        raise DatabaseLost("the connection was lost")


@pytest.mark.parametrize("written", [True, False])
def test_after_a_lost_connection_orders_that_were_recorded_are_sent(stage: Stage, written: bool) -> None:
    job = stage.submit("job", 2)
    stage.submit("next", 2)
    stage.run()
    lost = LostStore(stage.store, written=written)
    stage.loop.store = lost  # type: ignore[assignment]
    lost.breaks = 3  # the transaction and two attempts to reconnect
    with pytest.raises(Unavailable, match=r"connection was lost\. Check whether it was done"):
        stage.service.delete(job, "me")
    stage.run(60_000)
    assert lost.breaks == 0
    assert (job in stage.loop.board.workloads) is not written
    assert len(stage.machines.runs) == 1


def test_a_server_that_finds_another_one_leading_once_its_store_is_back_stops(stage: Stage) -> None:
    lost = LostStore(stage.store, written=False)
    stage.loop.store = lost  # type: ignore[assignment]
    lost.breaks = 1
    stage.store.lead()
    with pytest.raises(StaleEpoch):
        stage.submit("job")


def test_a_server_that_was_replaced_stops_at_its_first_transaction(stage: Stage) -> None:
    stage.submit("job")
    stage.run()
    stage.store.lead()
    with pytest.raises(StaleEpoch):
        stage.submit("other")
    assert len(stage.machines.runs) == 1


def test_facts_gather_after_a_cycle_and_a_request_does_not_wait_for_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = stage.loop
    requested: list[bool] = []  # at each pause

    class Pause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None and 0 < timeout <= BREATH
            requested.append(self.is_set())
            return super().wait(timeout)

    monkeypatch.setattr(loop, "_requested", Pause())
    loop.submit(lambda draft: loop.wake())
    loop.start()
    until(lambda: requested == [False])
    asked = loop.submit(lambda draft: loop.submit(lambda draft: None))  # while this cycle works
    asked.result(60).result(60)
    until(lambda: requested == [False, True])
    loop.close()


def test_who_no_longer_waits_for_an_answer_takes_nothing_back(stage: Stage) -> None:
    """A client may disconnect during its request: it is carried out, and the loop continues."""
    answer = stage.loop.submit(lambda draft: draft.settings.update(asked="yes"))
    assert not answer.cancel()
    stage.loop.cycle()
    assert answer.done()
    assert stage.store.load().settings["asked"] == "yes"


def test_a_lost_node_sends_its_jobs_back(stage: Stage) -> None:
    job = stage.submit("job", 2)
    stage.run()
    stage.machines.lose_node("sim-0")
    stage.run()
    assert stage.phase(job) == "Pending"
    assert "Lost" in stage.history(job)
    assert stage.loop.board.nodes == ()


def test_a_machine_that_comes_back_smaller_stops_what_it_has_no_place_for(tmp_path: Path) -> None:
    """`pliant up` with fewer nodes than before: no job keeps running on a removed node."""
    stage = Stage(tmp_path, "2x1")
    jobs = [stage.submit("a"), stage.submit("b")]
    stage.run()
    (moved,) = [job for job in jobs if stage.view(job).tasks[0].carries.node == "sim-1"]
    (stays,) = {*jobs} - {moved}
    stage.machines._stop_latency = 1000
    del stage.machines.nodes["sim-1"]
    stage.reopen()
    assert stage.phase(moved) == "Terminating"
    assert [view.node.ready for view in stage.loop.board.nodes] == [True, False]
    stage.run(1000)
    (run,) = [run for attempt, run in stage.machines.runs.items() if attempt.workload == moved]
    assert run.exit is not None and run.exit.stopped, "it was asked to end, and so could save its work"
    assert [view.node.name for view in stage.loop.board.nodes] == ["sim-0"]
    assert (stage.phase(moved), stage.phase(stays)) == ("Pending", "Running")
    (why,) = [event for _, event in stage.service.history(moved) if event.reason == "node-lost"]
    assert "sim-1" in why.message
    stage.service.delete(stays, "me")
    stage.run(1000)
    assert stage.phase(moved) == "Running"


def test_a_node_that_is_missing_after_a_restart_is_gone_with_what_ran_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "2x1")
    jobs = [stage.submit("a"), stage.submit("b")]
    stage.run()
    (lost,) = [job for job in jobs if stage.view(job).tasks[0].carries.node == "sim-1"]
    (stays,) = {*jobs} - {lost}
    stage.store.close()
    stage.machines.sink = None  # the server is down when the node is lost with everything on it
    stage.machines.lose_node("sim-1")
    stage.machines.runs = {
        attempt: run for attempt, run in stage.machines.runs.items() if run.node == "sim-0"
    }
    stage.reopen()
    assert [view.node.name for view in stage.loop.board.nodes] == ["sim-0"]
    assert [node.name for node in stage.store.load().of(Node)] == ["sim-0"]
    assert (stage.phase(lost), stage.phase(stays)) == ("Pending", "Running")
    assert "Lost" in stage.history(lost)
    stage.service.delete(stays, "me")
    stage.run(2000)  # a job lost soon after its start waits briefly
    assert (stage.phase(lost), stage.view(lost).tasks[0].carries.node) == ("Running", "sim-0")


def test_what_a_server_that_died_had_no_time_to_forget_is_forgotten_at_the_next_start(stage: Stage) -> None:
    job, other = stage.submit("job"), stage.submit("other")
    stage.run()
    stage.loop._orders.forget = lambda workload: None  # the server dies between record and the engine's files
    stage.service.delete(job, "me")
    stage.run()
    assert job not in stage.loop.board.workloads
    assert {attempt.workload for attempt in stage.machines.runs} == {job, other}
    stage.reopen()
    assert {attempt.workload for attempt in stage.machines.runs} == {other}


def test_what_contradicts_the_rest_is_named_and_set_aside(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    job = stage.submit("job")
    stage.run()
    stray = Task(job, "task-7", "task", 7, claims=Placement("nowhere"))
    stage.store.commit(stage.loop.state.epoch, Batch(put=(stray,)))
    stage.reopen()
    assert f"task task-7 of workload {job} sits on node nowhere" in caplog.text
    other = stage.submit("other")
    stage.run()
    assert (stage.phase(job), stage.phase(other)) == ("Running", "Running")
