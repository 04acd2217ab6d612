"""Workloads of several tasks: their groups, when they start, when they end."""

import pytest

from pliant.control.errors import BadRequest
from pliant.control.submit.submission import Distribution, Submission
from pliant.control.submit.variables import Variables
from pliant.model.workload import AttemptId, Kind, Launch, TaskGroup
from tests.control.stage import Stage


def submit(stage: Stage, name: str, gpus: int = 1, seconds: int = 0, **distribution: object) -> str:
    framework = str(distribution.pop("framework", "PyTorch"))
    env = (("PLIANT_VIRTUAL_SECONDS", str(seconds)),) if seconds else ()
    ask = Submission(
        "default",
        Launch("ubuntu", ("train",)),
        Kind.DISTRIBUTED,
        name,
        gpus=gpus * 1000 or None,
        distribution=Distribution(framework, **distribution),  # type: ignore[arg-type]
        variables=Variables(env),
    )
    return stage.accept(ask).id


def groups(stage: Stage, identity: str) -> dict[str, tuple[int, int, int, int]]:
    """By name: (GPUs of one task, min, wanted, max)."""
    found: tuple[TaskGroup, ...] = stage.view(identity).workload.groups
    return {group.name: (group.request.devices, group.min, group.wanted, group.max) for group in found}


def phases(stage: Stage, identity: str) -> dict[str, str]:
    return {task.name: task.phase.value for task in stage.view(identity).tasks}


def end(stage: Stage, identity: str, task: str, code: int = 0) -> None:
    number = next(row.attempt for row in stage.view(identity).tasks if row.name == task)
    stage.machines.fail(AttemptId(identity, task, number), code)
    stage.run()


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("PyTorch", {"master": (1, 1, 1, 1), "worker": (1, 2, 2, 2)}),
        ("TF", {"master": (1, 1, 1, 1), "worker": (1, 2, 2, 2)}),
        ("XGBoost", {"master": (1, 1, 1, 1), "worker": (1, 2, 2, 2)}),
        ("MPI", {"launcher": (0, 1, 1, 1), "worker": (1, 2, 2, 2)}),
        ("JAX", {"worker": (1, 2, 2, 2)}),
    ],
)
def test_groups(stage: Stage, framework: str, expected: dict[str, object]) -> None:
    assert groups(stage, submit(stage, "d", framework=framework, workers=2)) == expected


def test_bounds_and_masters(stage: Stage) -> None:
    plain = submit(stage, "plain", workers=3, least=1, most=5, lead=False)
    assert groups(stage, plain) == {"worker": (1, 1, 3, 5)}
    own = Submission("default", Launch("other", ("lead",)), gpus=None)
    led = submit(stage, "led", workers=2, leader=own)
    assert groups(stage, led) == {"master": (0, 1, 1, 1), "worker": (1, 2, 2, 2)}
    workload = stage.view(led).workload
    assert workload.launch_of("master-0").command == ("lead",)
    assert workload.launch_of("worker-1").command == ("train",)
    assert stage.view(led).workload.preemptible


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        ({"workers": 0}, "Invalid number of workers 0"),
        ({"workers": 2, "least": 3}, "got 3, 2, 2"),
        ({"workers": 2, "least": 0}, "got 0, 2, 2"),
        ({"workers": 2, "most": 1}, "at most 1"),
        ({"workers": 2, "most": 3, "framework": "TF"}, "of TF cannot vary"),
        ({"framework": "Spark"}, "no framework 'Spark'"),
        ({"lead": False, "leader": Submission("default", Launch("x"))}, "There is no master"),
    ],
)
def test_what_cannot_be(stage: Stage, distribution: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        submit(stage, "d", **distribution)
    assert not stage.service.board.workloads


def test_all_start_or_none(tmp_path: object, stage: Stage) -> None:
    """Three processes with a GPU each on a node of two GPUs, then two processes."""
    job = submit(stage, "dist", framework="MPI", workers=3)
    stage.run(1000)
    assert stage.phase(job) == "Pending"
    assert set(phases(stage, job).values()) == {"waiting"}
    stage.service.delete(job, "me")
    job = submit(stage, "dist", framework="MPI", workers=2)
    stage.run(1000)
    assert phases(stage, job) == {"launcher-0": "running", "worker-0": "running", "worker-1": "running"}
    assert (stage.phase(job), stage.view(job).gpu) == ("Running", 2000)


def test_it_is_over_when_its_leader_has_succeeded(stage: Stage) -> None:
    job = submit(stage, "dist", gpus=0, workers=2)
    stage.run()
    end(stage, job, "worker-1")
    assert stage.phase(job) == "Running"
    end(stage, job, "master-0")
    assert stage.phase(job) == "Completed"
    assert not stage.view(job).occupied, "its other tasks were stopped"


def test_without_a_master_all_workers_must_succeed(stage: Stage) -> None:
    job = submit(stage, "dist", workers=2, lead=False)
    stage.run()
    end(stage, job, "worker-0")
    assert stage.phase(job) == "Running"
    end(stage, job, "worker-1")
    assert stage.phase(job) == "Completed"


def test_a_failed_worker_is_tried_again_until_its_tries_are_used_up(stage: Stage) -> None:
    job = submit(stage, "dist", gpus=0, workers=2)
    stage.run()
    for _ in range(6):
        end(stage, job, "worker-1", 3)
        assert phases(stage, job)["master-0"] == "running"
        stage.run(400_000)
        assert stage.phase(job) == "Running"
    end(stage, job, "worker-1", 3)
    assert stage.phase(job) == "Failed"
    assert "worker-1" in stage.view(job).workload.phase_message
    stage.run(1000)
    assert not stage.view(job).occupied


def test_who_had_succeeded_begins_again_with_the_rest(stage: Stage) -> None:
    job = submit(stage, "dist", gpus=0, workers=1)
    stage.run()
    end(stage, job, "worker-0")
    stage.service.suspend(job, "me")
    stage.run(60_000)
    stage.service.resume(job, "me")
    stage.run()
    assert phases(stage, job) == {"master-0": "running", "worker-0": "running"}


def test_bonus_workers_come_and_go_and_all_are_told(stage: Stage) -> None:
    """One node of two GPUs: one worker is the core and the request; up to four may run."""
    job = submit(stage, "dist", workers=1, least=1, most=4, lead=False)
    stage.run(1000)
    assert stage.view(job).gpu == 2000
    told = stage.machines.allocations[AttemptId(job, "worker-0", 1)]
    assert [(task["id"], task["state"]) for task in told["tasks"]] == [  # type: ignore[attr-defined]
        ("worker-0", "active"),
        ("worker-1", "active"),
    ]
    stage.submit("other", 1)
    stage.run(60_000)
    assert stage.view(job).gpu == 1000
    later = stage.machines.allocations[AttemptId(job, "worker-0", 1)]
    assert [task["id"] for task in later["tasks"]] == ["worker-0"]  # type: ignore[attr-defined]
    assert later["version"] > told["version"]  # type: ignore[operator]
    assert len(stage.service.attempts(job)) == 2, "the worker that stays was not restarted"


# -- independent runs ------------------------------------------------------------------------------


def runs(stage: Stage, name: str, completions: int, parallelism: int, **more: object) -> str:
    return stage.submit(name, 1, runs=completions, at_once=parallelism, **more)


def test_runs_go_on_until_all_have_succeeded_so_many_at_a_time(stage: Stage) -> None:
    job = runs(stage, "hpo", 5, 2, virtual={"seconds": 10})
    stage.run()
    for done in (0, 2, 4):
        assert stage.phase(job) == "Running"
        assert list(phases(stage, job).values()).count("succeeded") == done
        assert list(phases(stage, job).values()).count("running") == min(2, 5 - done)
        stage.run(10_000)
    assert stage.phase(job) == "Completed"
    assert phases(stage, job) == {f"task-{index}": "succeeded" for index in range(5)}
    assert len(stage.service.attempts(job)) == 5


def test_a_run_that_is_taken_from_comes_again_later(tmp_path: object, stage: Stage) -> None:
    """Two GPUs, quota 1 each: one of two runs is evicted when the other project reclaims its GPU."""
    stage.project("a", 1)
    stage.project("b", 1)
    job = runs(stage, "hpo", 4, 2, project="a")
    stage.run(1000)
    assert stage.view(job).gpu == 2000
    other = stage.submit("other", 1, "b")
    stage.run(60_000)
    assert (stage.phase(other), stage.phase(job), stage.view(job).gpu) == ("Running", "Running", 1000)
    assert phases(stage, job) == {"task-0": "running", "task-1": "waiting"}
    stage.service.delete(other, "me")
    stage.run(60_000)
    assert phases(stage, job) == {"task-0": "running", "task-1": "running"}


def test_a_restart_of_the_server_keeps_count(stage: Stage) -> None:
    job = runs(stage, "hpo", 3, 1, virtual={"seconds": 10})
    stage.run(10_000)
    before = phases(stage, job)
    stage.reopen()
    assert phases(stage, job) == before == {"task-0": "succeeded", "task-1": "running"}
    stage.run(20_000)
    assert stage.phase(job) == "Completed"


def test_stopped_and_resumed_runs(stage: Stage) -> None:
    job = runs(stage, "hpo", 3, 2)
    stage.run()
    end(stage, job, "task-1")
    stage.service.suspend(job, "me")
    stage.run(60_000)
    assert phases(stage, job) == {"task-0": "waiting", "task-1": "succeeded", "task-2": "waiting"}
    stage.service.resume(job, "me")
    stage.run()
    assert phases(stage, job) == {"task-0": "running", "task-1": "succeeded", "task-2": "running"}


def test_one_run_is_a_plain_workload(stage: Stage) -> None:
    job = runs(stage, "one", 1, 1)
    assert groups(stage, job) == {"task": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"runs": 2, "at_once": 3}, "A parallelism of 3 is above 2 completions"),
        ({"at_once": 3}, "A parallelism of 3 is above 1 completion"),
        ({"runs": 0}, "Invalid number of runs 0, 1 at once"),
        ({"runs": 2, "elastic": True}, "An elastic workload has one run"),
        ({"runs": 2, "interactive": True}, "An interactive workload has one run"),
        ({"runs": 2, "restart": True}, "always started again has one run"),
        ({"runs": 2, "distribution": Distribution("MPI")}, "A distributed workload has one run"),
    ],
)
def test_runs_that_cannot_be(stage: Stage, asked: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        stage.submit("x", 1, **asked)
    assert not stage.service.board.workloads
