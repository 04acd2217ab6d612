"""The use cases: what is accepted, what is refused and changes nothing."""

from dataclasses import replace
from typing import Any

import pytest

from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.submit.submission import Submission
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.model.workload import Kind, Launch
from tests.control.stage import Stage


def quota(gpus: int, **more: int) -> QueueChange:
    return QueueChange(quotas=(("default", QuotaChange(gpu=gpus * 1000, **more)),))


def ask(**more: Any) -> Submission:
    return Submission(**{"project": "default", "launch": Launch("ubuntu"), "name": "job"} | more)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"name": "Bad_Name"}, BadRequest),
        ({"name": "a" * 64}, BadRequest),
        ({"gpus": 0}, BadRequest),
        ({"gpus": -1000}, BadRequest),
        ({"gpus": 1500}, BadRequest),
        ({"gpu_memory": 50 * 10**6}, BadRequest),
        ({"gpu_memory": 10**9, "portion": 500}, BadRequest),
        ({"portion": 1001}, BadRequest),
        ({"portion": 500, "portion_limit": 400}, BadRequest),
        ({"gpus": 1000, "elastic": True, "kind": Kind.WORKSPACE}, BadRequest),
        ({"elastic": True, "portion": 500}, BadRequest),
        ({"elastic": True}, BadRequest),
        ({"priority": "highest"}, BadRequest),
        ({"launch": Launch(" ")}, BadRequest),
        ({"project": "nowhere"}, NotFound),
        ({"pools": ("nowhere",)}, NotFound),
        ({"name": "taken"}, NameTaken),
    ],
)
def test_refused_submissions_change_nothing(
    stage: Stage, more: dict[str, Any], error: type[Exception]
) -> None:
    stage.submit("taken")
    stage.run()
    before = stage.loop.world.snapshot()
    with pytest.raises(error) as caught:
        stage.accept(ask(**more))
    assert str(caught.value).endswith(".") or "pliant" in str(caught.value)
    assert stage.loop.world.snapshot() == before


def test_generated_names_take_the_smallest_free_index(stage: Stage) -> None:
    def name() -> str:
        return stage.accept(ask(name=None, name_base="job", name_index=True)).name

    assert [name(), name()] == ["job-0", "job-1"]
    first = stage.loop.board.named(stage.service._project("default").id, "job-0")
    assert first is not None
    stage.service.delete(first.workload.id, "me")
    assert name() == "job-0"


def test_a_deleted_name_is_free_at_once(stage: Stage) -> None:
    stage.machines._stop_latency = 1000
    first = stage.submit("job")
    stage.run()
    stage.service.delete(first, "me")
    assert stage.phase(first) == "Deleting"
    second = stage.submit("job")
    assert second != first
    stage.run(1000)
    assert first not in stage.loop.board.workloads
    assert stage.phase(second) == "Running"


def test_suspend_frees_and_resume_brings_back(stage: Stage) -> None:
    job, other = stage.submit("job", 2), stage.submit("other", 2)
    stage.run()
    stage.service.suspend(job, "me")
    stage.run()
    assert (stage.phase(job), stage.phase(other)) == ("Stopped", "Running")
    stage.service.delete(other, "me")
    stage.service.resume(job, "me")
    stage.run()
    assert stage.phase(job) == "Running"
    assert {"Suspended", "Resumed"} <= set(stage.history(job))
    assert len(stage.service.attempts(job)) == 2


def test_quota_may_not_go_below_non_preemptible_use(stage: Stage) -> None:
    stage.project("team-a", 2)
    stage.submit("shell", 2, "team-a", interactive=True)
    stage.run()
    with pytest.raises(Conflict, match="uses 2 GPUs"):
        stage.service.update_project("team-a", quota(1), "me")
    assert stage.loop.board.projects[stage.service._project("team-a").id].queue.quota().gpu == 2000


def test_contradicting_quotas_are_refused(stage: Stage) -> None:
    for change in (quota(-2), quota(2, gpu_limit=1000)):
        with pytest.raises(BadRequest):
            stage.service.update_project("default", change, "me")


def test_projects_with_workloads_stay(stage: Stage) -> None:
    stage.project("team-a", 1)
    job = stage.submit("job", 1, "team-a")
    with pytest.raises(Conflict, match="job"):
        stage.service.delete_project("team-a", "me")
    stage.service.delete(job, "me")
    stage.run()
    stage.service.delete_project("team-a", "me")
    assert len(stage.loop.board.projects) == 1
    with pytest.raises(NameTaken):
        stage.project("default", 1)


def test_no_project_gets_the_id_of_one_that_is_gone(stage: Stage) -> None:
    stage.project("team-a", 1)
    stage.project("team-b", 1)
    had = {stage.service._project(name).id for name in ("team-a", "team-b")}
    for name in ("team-a", "team-b"):
        stage.service.delete_project(name, "me")
        stage.reopen()
    stage.project("team-c", 1)
    assert stage.service._project("team-c").id not in had


def test_default_project_owns_what_the_others_leave(stage: Stage) -> None:
    default = stage.service._project("default").id

    def deserved() -> int:
        return stage.loop.board.projects[default].uses[0].quota

    assert deserved() == 2000
    stage.project("team-a", 1)
    assert deserved() == 1000
    stage.service.update_project("default", quota(0), "me")
    assert deserved() == 0


def test_time_limit_of_a_project_stops_a_workspace(stage: Stage) -> None:
    stage.project("team-a", 2, limits={"interactive": 60_000})
    shell = stage.submit("shell", 1, "team-a", interactive=True)
    stage.run(59_000)
    assert stage.phase(shell) == "Running"
    stage.run(2_000)
    assert stage.phase(shell) == "Stopped"
    stage.service.resume(shell, "me")
    stage.run()
    assert stage.phase(shell) == "Running"


def test_the_tightest_limit_of_project_and_departments_counts(stage: Stage) -> None:
    for name, seconds, above in (("research", 30, None), ("vision", 90, "research")):
        limits = {"training": seconds * 1000}
        stage.service.create_department(QueueChange(name=name, limits=limits, department=above), "me")
    stage.project("team-a", 2, limits={"training": 60_000}, department="vision")
    job = stage.submit("job", project="team-a")
    stage.run(29_000)
    assert stage.phase(job) == "Running"
    stage.run(2_000)
    assert stage.phase(job) == "Stopped"
    [told] = [event.message for _, event in stage.service.history(job) if event.kind.value == "Suspended"]
    assert told == "Suspended after 30s: the time limit of department research."


def test_an_ended_workload_is_deleted_when_its_time_is_over(stage: Stage) -> None:
    job = stage.submit("job", virtual={"seconds": 1}, fields={"ttl": 5000})
    stage.run(2000)
    assert stage.phase(job) == "Completed"
    stage.run(5000)
    assert job not in stage.loop.board.workloads
    assert [workload.name for workload in stage.service.ended()] == ["job"]


def test_the_cycle_in_which_a_workload_ends_knows_when_it_is_to_be_deleted(stage: Stage) -> None:
    """Otherwise nothing would wake the loop for it."""
    stage.submit("job", virtual={"seconds": 1}, fields={"ttl": 5000})
    stage.run(500)
    end = stage.timeline.next()
    assert end is not None
    stage.timeline.advance(end)
    stage.loop.settle()
    assert stage.loop.wakes == end + 5000


def test_a_cordoned_node_takes_nothing_new(stage: Stage) -> None:
    running = stage.submit("running")
    stage.run()
    stage.service.cordon("sim-0", True, "me")
    waiting = stage.submit("waiting")
    stage.run()
    assert (stage.phase(running), stage.phase(waiting)) == ("Running", "Pending")
    stage.reopen()
    assert stage.phase(waiting) == "Pending"
    stage.service.cordon("sim-0", False, "me")
    stage.run()
    assert stage.phase(waiting) == "Running"


def test_elastic_job_gives_back_and_takes_again(stage: Stage) -> None:
    elastic = stage.submit("elastic", 1, elastic=True)
    stage.run()
    assert stage.view(elastic).gpu == 2000
    shell = stage.submit("shell", 1, interactive=True)
    stage.run()
    assert (stage.view(elastic).gpu, stage.view(shell).gpu) == (1000, 1000)
    assert stage.phase(elastic) == "Running"
    stage.service.delete(shell, "me")
    stage.run(60_000)
    assert stage.view(elastic).gpu == 2000
    assert {"Shrunk", "Grown"} <= set(stage.history(elastic))


def test_a_followed_log_goes_on_with_the_next_attempt(stage: Stage) -> None:
    """A job stays one job over resizes and restarts, and so does its log."""
    job = stage.submit("job", 1, elastic=True, virtual={"output": "trained\n"})
    stage.run()
    log = stage.service.logs(job, follow=True)
    assert next(log) == b"trained\n"
    shell = stage.submit("shell", 1, interactive=True)
    stage.run()
    assert [len(stage.service.attempts(job)), stage.view(job).gpu] == [2, 1000]
    assert next(part for part in log if part) == b"trained\n", "of the second attempt"
    first = stage.service.logs(job, number=1, follow=True)
    assert b"".join(first) == b"trained\n", "an attempt that was asked for by number is followed alone"
    stage.service.delete(shell, "me")
    stage.service.delete(job, "me")
    stage.run()
    assert b"".join(log) == b"", "it ends with the workload"


def test_a_followed_log_waits_while_the_job_waits_and_ends_when_it_is_set_aside(stage: Stage) -> None:
    job = stage.submit("job", 2, virtual={"output": "trained\n"})
    stage.run()
    log = stage.service.logs(job, follow=True, tail=0)
    assert next(log) == b""
    shell = stage.submit("shell", 2, interactive=True)
    stage.run()
    assert (stage.phase(job), stage.phase(shell)) == ("Pending", "Running")
    assert [next(log), next(log)] == [b"", b""]
    stage.service.suspend(job, "me")
    stage.run()
    assert b"".join(log) == b""


def test_default_pools_exist_as_long_as_a_project_names_them(stage: Stage) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        stage.project("team-a", 1, default_pools=("nowhere",))
    pool = stage.service.create_pool(
        "fast", lambda row: replace(row, label_key="speed", label_value="high"), "me"
    )
    stage.project("team-a", 1, default_pools=(pool.id,))
    assert stage.service._project("team-a").default_pools == ("fast",)
    with pytest.raises(Conflict, match="team-a"):
        stage.service.delete_pool("fast", "me")
    stage.service.update_project("team-a", QueueChange(default_pools=()), "me")
    stage.service.delete_pool("fast", "me")
    assert "fast" not in stage.loop.world.pools


def test_a_project_whose_deleted_work_is_still_ending_says_so(stage):
    stage.project("p", 1)
    slow = stage.submit("slow", project="p", virtual={"stop_seconds": 5})
    stage.run(100)
    stage.service.delete(slow, "me")
    with pytest.raises(Conflict, match="were deleted and are still ending: slow"):
        stage.service.delete_project("p", "me")
    stage.run(6000)
    stage.service.delete_project("p", "me")
