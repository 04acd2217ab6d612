"""ElasticDL's jobs: a master that starts alone, workers that come and go, and which tasks restart."""

from pathlib import Path

import pytest

from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.submit.submission import Distribution, Submission
from pliant.model.fact import AttemptEnded
from pliant.model.priority import PriorityClass
from pliant.model.quantity import parse_bytes
from pliant.model.workload import AttemptId, Exit, Kind, Launch
from tests.control.stage import Stage

NODES = "3x0:0:cpu=3.92,memory=12.3Gi"


@pytest.fixture
def cluster(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path, NODES, stop_latency=1000)
    for name, value in (("high-priority", 1_000_000), ("low-priority", 1000)):
        stage.service.priorities.create(PriorityClass(name, value), "me")
    return stage


def submit(stage: Stage, name: str, workers: int, priority: str, **more: object) -> str:
    master = Submission(
        "", Launch("elasticdl", ("master",)), cpu=1000, memory=parse_bytes("1Gi"), priority="high-priority"
    )
    ask = Submission(
        "default",
        Launch("elasticdl", ("worker",)),
        Kind.DISTRIBUTED,
        name,
        cpu=3000,
        memory=parse_bytes("4Gi"),
        priority=priority,
        distribution=Distribution("ElasticDL", workers=workers, leader=master),
        **more,  # type: ignore[arg-type]
    )
    return stage.accept(ask).id


def phases(stage: Stage, identity: str) -> dict[str, str]:
    return {task.name: task.phase.value for task in stage.view(identity).tasks}


def end(stage: Stage, identity: str, task: str, **how: object) -> None:
    """Ends the task's present attempt with Exit(**how)."""
    number = next(row.attempt for row in stage.view(identity).tasks if row.name == task)
    attempt = AttemptId(identity, task, number)
    stage.machines.runs[attempt].exit = Exit(stage.timeline.now(), **how)  # type: ignore[arg-type]
    stage.loop.post(AttemptEnded(attempt, stage.machines.runs[attempt].exit))
    stage.run()


def test_groups_and_priorities(cluster: Stage) -> None:
    workload = cluster.view(submit(cluster, "low", 2, "low-priority")).workload
    master, worker = workload.groups
    assert (master.name, master.min, master.max, master.priority) == ("master", 1, 1, 1_000_000)
    assert (worker.name, worker.min, worker.wanted, worker.max) == ("worker", 0, 2, 2)
    assert (workload.priority, workload.priority_class, workload.preemptible) == (1000, "low-priority", True)
    assert (workload.ends_with, workload.backoff_limit) == ("master", 0)


def test_the_seed_s_case(cluster: Stage) -> None:
    """The high-priority worker gets the place of one low-priority worker; both jobs finish."""
    low = submit(cluster, "low-prio-job", 2, "low-priority")
    cluster.run(2000)
    assert phases(cluster, low) == {"master-0": "running", "worker-0": "running", "worker-1": "running"}
    high = submit(cluster, "high-prio-job", 1, "high-priority")
    cluster.run()
    assert phases(cluster, high)["worker-0"] == "waiting"
    cluster.run(60_000)
    assert phases(cluster, high) == {"master-0": "running", "worker-0": "running"}
    assert phases(cluster, low) == {"master-0": "running", "worker-0": "running", "worker-1": "waiting"}
    events = [event for _, event in cluster.service.history(low) if event.kind.value == "Preempted"]
    [taken] = events
    assert taken.message.startswith("worker-1: ") and taken.reason == "preempted"
    told = dict(taken.numbers)
    assert (told["beneficiary"], told["priority"], told["own_priority"]) == ("high-prio-job", 1_000_000, 1000)
    end(cluster, high, "worker-0", code=0)
    end(cluster, high, "master-0", code=0)
    cluster.run(60_000)
    assert phases(cluster, low)["worker-1"] == "running"
    end(cluster, low, "master-0", code=0)
    assert (cluster.phase(high), cluster.phase(low)) == ("Completed", "Completed")


@pytest.mark.parametrize("how", [{"signal": 9}, {"code": 137}, {"lost": True}])
@pytest.mark.parametrize("task", ["worker-0", "master-0"])
def test_who_was_killed_comes_back_as_often_as_it_takes(
    cluster: Stage, how: dict[str, object], task: str
) -> None:
    job = submit(cluster, "job", 1, "low-priority")
    for _ in range(5):
        cluster.run(60_000)
        assert phases(cluster, job) == {"master-0": "running", "worker-0": "running"}
        end(cluster, job, task, **how)
    cluster.run(60_000)
    assert phases(cluster, job) == {"master-0": "running", "worker-0": "running"}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"code": 1}, "worker-0 ended with exit code 1."),
        ({"signal": 11}, "worker-0 was killed by SIGSEGV."),
        (
            {"signal": 9, "oom": True},
            "worker-0 ran out of memory and was killed by the kernel (SIGKILL); it is not retried: it would "
            "run out of memory again.",
        ),
    ],
)
def test_what_would_recur_ends_the_job(cluster: Stage, how: dict[str, object], said: str) -> None:
    job = submit(cluster, "job", 2, "low-priority")
    cluster.run(60_000)
    end(cluster, job, "worker-0", **how)
    cluster.run(60_000)
    assert cluster.phase(job) == "Failed"
    assert cluster.view(job).workload.phase_message == said
    assert not cluster.view(job).occupied


def test_want_of_memory_is_no_reason_to_try_again_whatever_the_tries(cluster: Stage) -> None:
    job = submit(cluster, "job", 1, "low-priority", backoff_limit=3)
    cluster.run(60_000)
    end(cluster, job, "worker-0", signal=9, oom=True)
    cluster.run(60_000)
    assert cluster.phase(job) == "Failed"


def test_without_workers_it_cannot_be(cluster: Stage) -> None:
    with pytest.raises(BadRequest, match="Invalid number of workers 0"):
        submit(cluster, "job", 0, "low-priority")


# -- priority classes -------------------------------------------------------------------------------


def test_a_class_that_is_none(cluster: Stage) -> None:
    with pytest.raises(BadRequest, match="There is no priority 'urgent'") as told:
        submit(cluster, "job", 1, "urgent")
    assert "pliant priorityclass create NAME --value N" in str(told.value)


def test_classes_outlive_the_server_and_work_keeps_their_value(cluster: Stage) -> None:
    job = submit(cluster, "job", 1, "low-priority")
    cluster.service.priorities.delete("low-priority", "me")
    cluster.reopen()
    assert [row.name for row in cluster.service.board.priorities] == ["high-priority"]
    assert cluster.view(job).workload.priority == 1000
    with pytest.raises(NotFound, match="no priority class 'low-priority'"):
        cluster.service.priorities.delete("low-priority", "me")


def test_apply_is_all_or_nothing(cluster: Stage) -> None:
    apply = cluster.service.priorities.apply
    new, low = PriorityClass("new", 5), PriorityClass("low-priority", 1000)
    with pytest.raises(Conflict, match=r"has the value 1000: it cannot become 7.*delete low-priority"):
        apply([new, PriorityClass("low-priority", 7)], "me")
    assert "new" not in {row.name for row in cluster.service.board.priorities}
    assert [did for _, did in apply([new, low], "me")] == ["created", "unchanged"]
    assert [did for _, did in apply([PriorityClass("new", 5, "said")], "me")] == ["configured"]
    with pytest.raises(BadRequest, match="named twice"):
        apply([new, new], "me")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("High", 1, "cannot be the name"),
        ("a..b", 1, "cannot be the name"),
        ("high", 1, "reserved for built-in priorities"),
        ("100", 1, "reserved for built-in priorities"),
        ("system-node-critical", 1, "reserved for built-in priorities"),
        ("top", 10**9 + 1, "cannot be the value"),
        ("low", -(2**31) - 1, "reserved for built-in priorities"),
        ("lowest", -(2**31) - 1, "cannot be the value"),
    ],
)
def test_classes_that_cannot_be(cluster: Stage, name: str, value: int, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        cluster.service.priorities.create(PriorityClass(name, value), "me")


def test_a_class_is_created_once(cluster: Stage) -> None:
    with pytest.raises(NameTaken, match="'low-priority' already exists"):
        cluster.service.priorities.create(PriorityClass("low-priority", 1000), "me")
