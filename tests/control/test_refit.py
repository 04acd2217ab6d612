"""Changed cores and memory of running work: counted at once, confirmed by its engine, within bounds."""

from dataclasses import replace

import pytest

from pliant.control.errors import BadRequest, Conflict, OverQuota
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.control.usecases.refit import Fitting
from pliant.model.fact import AttemptResized, ResizeDenied, WorkFound
from pliant.model.quantity import Resources
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import AttemptId, TaskPhase
from tests.control.stage import Stage
from tests.control.test_imports import work

GIB = 2**30


@pytest.fixture
def job(tmp_path):
    """A stage and its running job, on a node of 8 cores and 16 GiB."""
    stage = Stage(tmp_path, "1x2:16G:cpu=8,memory=16Gi")
    identity = stage.submit("job", cpu=1000, memory=GIB)
    stage.run(1000)
    yield stage, identity
    stage.loop.close()
    stage.store.close()


def fitted(stage, identity, cpu=None, memory=None, group=""):
    return stage.service.refit(identity, Fitting(cpu, memory, group), "me")


def held(stage, identity):
    (task,) = stage.loop.world.tasks_of(identity)
    return [(it.cpu, it.memory // GIB) for it in (task.claims, task.carries)]


def allocated(stage):
    (view,) = (it for it in stage.service.board.projects.values() if it.queue.name == "default")
    return view.uses[0].allocated


def test_what_runs_has_them_and_goes_on(job):
    stage, identity = job
    fitted(stage, identity, cpu=3000, memory=4 * GIB)
    stage.run(1000)
    assert held(stage, identity) == [(3000, 4), (3000, 4)]
    assert allocated(stage) == Resources(1000, 3000, 4 * GIB)
    assert len(stage.service.attempts(identity)) == 1
    assert stage.service.attempts(identity)[0].placement.cpu == 3000
    fitted(stage, identity, cpu=500)
    stage.run(1000)
    assert held(stage, identity) == [(500, 4), (500, 4)]
    told = [event.message for _, event in stage.service.history(identity)]
    assert "task-0 has 3 cores and 4Gi of memory now." in told


def test_what_is_given_back_is_free_once_that_is_confirmed(job):
    stage, identity = job
    stage.loop._orders.send = lambda order: None
    fitted(stage, identity, cpu=7000)
    stage.run(1000)
    assert held(stage, identity) == [(7000, 1), (1000, 1)]
    other = stage.submit("other", gpus=1, cpu=2000)
    stage.run(1000)
    assert stage.phase(other) == "Pending", "what is promised is nobody else's"
    fitted(stage, identity, cpu=1000)
    stage.run(1000)
    assert held(stage, identity) == [(1000, 1), (1000, 1)]


def test_a_change_that_never_left_is_sent_after_a_restart(job):
    stage, identity = job
    stage.loop._orders.send = lambda order: None
    fitted(stage, identity, cpu=2000)
    stage.run(1000)
    stage.reopen()
    stage.run(1000)
    assert held(stage, identity) == [(2000, 1), (2000, 1)]


def test_no_more_than_its_node_has(job):
    stage, identity = job
    stage.submit("other", cpu=4000, memory=GIB)
    stage.run(1000)
    with pytest.raises(Conflict, match=r"has 3 cores free; job needs 4 more"):
        fitted(stage, identity, cpu=5000)
    with pytest.raises(Conflict, match="has 14Gi of memory free; job needs 20Gi more"):
        fitted(stage, identity, memory=21 * GIB)
    assert held(stage, identity) == [(1000, 1), (1000, 1)]
    fitted(stage, identity, cpu=4000, memory=15 * GIB)
    stage.run(1000)
    assert held(stage, identity) == [(4000, 15), (4000, 15)]


@pytest.mark.parametrize(
    ("bound", "preemptible", "said"),
    [("cpu_limit", True, "has a limit of 2 cores"), ("cpu", False, "has a quota of 2 cores")],
)
def test_no_more_than_the_project_may_have(job, bound, preemptible, said):
    stage, _ = job
    quota = QuotaChange(gpu=2000, cpu=2000 if bound == "cpu" else UNLIMITED)
    quota = replace(quota, **{bound: 2000})
    stage.service.create_project(QueueChange(name="team", quotas=(("default", quota),)), "test")
    mine = stage.submit("mine", project="team", cpu=1000, memory=GIB, preemptible=preemptible)
    stage.run(1000)
    with pytest.raises(OverQuota, match=said):
        fitted(stage, mine, cpu=2001)
    fitted(stage, mine, cpu=2000, memory=2 * GIB)
    stage.run(1000)
    assert held(stage, mine) == [(2000, 2), (2000, 2)]


def test_one_that_is_suspended_starts_with_them(job):
    stage, identity = job
    stage.service.suspend(identity, "me")
    stage.run(1000)
    fitted(stage, identity, cpu=8000)
    stage.service.resume(identity, "me")
    stage.run(1000)
    assert held(stage, identity) == [(8000, 1), (8000, 1)]


def test_why_says_that_the_node_cannot_until_it_can(job):
    stage, identity = job
    stage.loop._orders.send = lambda order: None
    fitted(stage, identity, cpu=2000)
    stage.run(1000)
    attempt = AttemptId(identity, "task-0", 1)
    stage.loop.post(ResizeDenied(attempt, "Node has too few.", later=True))
    stage.run()
    view = stage.view(identity)
    assert (view.reason.code, view.lacks) == ("not-resized", False)
    node = view.nodes[0]
    assert view.reason.text(0) == f"task-0 waits for 2 cores and 1Gi of memory on {node}: Node has too few."
    stage.loop.post(ResizeDenied(attempt, "Node is too small.", later=False))
    stage.run()
    assert "Node is too small. Reduce the request" in stage.view(identity).reason.text(0)
    (task,) = stage.loop.world.tasks_of(identity)
    stage.loop.post(AttemptResized(attempt, task.carries.shares, 1, 2000, GIB))
    stage.run()
    assert stage.view(identity).reason is None


def test_a_change_that_failed_is_tried_again_or_taken_back(job):
    stage, identity = job
    sent = []
    stage.loop._orders.send = sent.append
    fitted(stage, identity, cpu=2000)
    stage.run(1000)
    attempt = AttemptId(identity, "task-0", 1)
    stage.loop.post(ResizeDenied(attempt, "This API server is too old.", later=False))
    stage.run()
    fitted(stage, identity, cpu=2000)
    fitted(stage, identity, cpu=1000)
    fitted(stage, identity, cpu=1000)
    stage.run(1000)
    assert [order.placement.cpu for order in sent] == [2000, 2000, 1000]
    (task,) = stage.loop.world.tasks_of(identity)
    stage.loop.post(AttemptResized(attempt, task.carries.shares, 1, 1000, GIB))
    stage.run()
    assert stage.view(identity).reason is None and held(stage, identity) == [(1000, 1), (1000, 1)]


def test_what_cannot_be_meant_is_refused(job):
    stage, identity = job
    with pytest.raises(BadRequest, match="neither cores nor memory"):
        fitted(stage, identity)
    with pytest.raises(BadRequest, match=r"no task group 'master'. It has task"):
        fitted(stage, identity, cpu=1, group="master")
    (task,) = stage.loop.world.tasks_of(identity)
    stage.loop.world.put(replace(task, phase=TaskPhase.ORDERED))
    with pytest.raises(Conflict, match="being started or resized"):
        fitted(stage, identity, cpu=2000)
    stage.loop.world.put(task)


def test_of_pods_of_others_what_they_have_counts(job):
    """Foreign pods are changed by their makers, with kubectl."""
    stage, _ = job
    stage.loop.post(WorkFound(work(ready=1, group=replace(work().groups[0], max=1, wanted=1, at_once=1))))
    stage.run(1000)
    (task,) = stage.loop.world.tasks_of("uid-train")
    attempt = AttemptId("uid-train", task.name, 1)
    stage.loop.post(AttemptResized(attempt, task.carries.shares, 1, 3000, 2 * GIB))
    stage.run(1000)
    assert held(stage, "uid-train") == [(3000, 2), (3000, 2)]
    with pytest.raises(Conflict, match="does not change objects that it did not create"):
        fitted(stage, "uid-train", cpu=1000)
