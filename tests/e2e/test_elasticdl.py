"""ElasticDL's test case for elastic scheduling, as its users type it; which failures end a job."""

import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from examples.walkthrough import Stage
from tests.e2e.witness import client, until
from tests.house.waiting import SECONDS
from tests.train.elasticdl_jobs import check_exactly_once, difference, replay

BATCH = 20  # two gradients of ten records
PATHS = Path(__file__).parents[2] / "examples" / "elasticdl" / "elasticdl" / "python"
CLIENT = PATHS / "elasticdl" / "client" / "client.py"
EXAMPLE = PATHS / "examples" / "mnist_functional_api.py"
PRIORITY = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: {name}
value: {value}
globalDefault: false
"""
PACED = """

import json, os, time
from pathlib import Path

def on_applied(step, record_ids):
    here = Path(__file__).parent
    (here / "applied").mkdir(exist_ok=True)
    with (here / "applied" / str(os.getpid())).open("a") as log:
        log.write(json.dumps([step, record_ids]) + "\\n")
    if not (here / "hurry").exists():
        time.sleep(1)
"""
COMMAND = (
    f"python {CLIENT} "
    "--job_name={name} --model_file={name}/model.py --train_data_dir=digits:{records} "
    "--master_pod_priority=high-priority --worker_pod_priority={priority} --num_epoch=1 --minibatch_size=10 "
    "--record_per_task=100 --num_worker={workers} --master_cpu_request=1000m --master_cpu_limit=1000m "
    "--master_memory_request=1024Mi --master_memory_limit=1024Mi --worker_cpu_request=3000m "
    "--worker_cpu_limit=3000m --worker_memory_request=4096Mi --worker_memory_limit=4096Mi "
    "--grads_to_wait=2 --codec_type=bytes --repository=gcr.io --image_base=gcr.io/elasticdl/elasticdl:dev"
)


def typed(stage: Stage, command: str) -> str:
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}"
    return done.out


@pytest.fixture
def cluster(stage: Stage) -> Stage:
    """The seed's three nodes, without the part that Kubernetes uses, and its two priority classes."""
    typed(stage, "pliant up --simulate 3x0:0:cpu=3.92,memory=12.3Gi")
    (stage.home / "high-prio.yaml").write_text(PRIORITY.format(name="high-priority", value=1000000))
    (stage.home / "low-prio.yaml").write_text(PRIORITY.format(name="low-priority", value=1000))
    for file in ("high-prio.yaml", "low-prio.yaml"):
        assert "created" in typed(stage, f"pliant apply -f {file}")
    return stage


def submit(stage: Stage, name: str, records: int, workers: int, priority: str, more: str = PACED) -> None:
    folder = stage.home / name
    folder.mkdir()
    (folder / "model.py").write_text(EXAMPLE.read_text("utf-8") + more)
    typed(stage, COMMAND.format(name=name, records=records, workers=workers, priority=priority))


def hurry(stage: Stage, *names: str) -> None:
    """Ends the pauses between their steps, as the checks are done."""
    for name in names:
        (stage.home / name / "hurry").touch()


def pods(stage: Stage, name: str) -> dict[str, str]:
    """Pod's name without `elasticdl-` and the job's name -> its status."""
    lines = typed(stage, f"pliant get pods -l elasticdl_job_name={name} --no-headers").splitlines()
    cells = [line.split() for line in lines]
    return {cell[0].removeprefix("elasticdl-").replace(f"-{name}", ""): cell[2] for cell in cells}


def item(stage: Stage, name: str) -> Any:
    with client(stage) as api:
        return next(one for one in api.workloads() if one["name"] == name)


def history(stage: Stage, name: str) -> list[Any]:
    with client(stage) as api:
        return api.events(item(stage, name)["id"])


def steps(stage: Stage, name: str) -> int:
    said = item(stage, name)["progress"]
    return said["step"] if said is not None else 0


def check(stage: Stage, name: str, records: int, *, killed: Collection[int] = ()) -> None:
    """By the ranks' logs, each record was applied once; a single process gets the same weights."""
    check_exactly_once(stage.home / name / "applied", records, BATCH, killed={str(pid) for pid in killed})
    weights = stage.state / "checkpoints" / item(stage, name)["id"]
    assert difference(weights, replay(EXAMPLE, f"digits:{records}", BATCH)) <= 1e-5


def at(events: list[Any], words: str) -> str:
    """The time of the first event with these words."""
    return next(event["createdAt"] for event in events if words in event["message"])


@pytest.mark.timeout(900)
def test_a_low_worker_is_preempted_for_a_high_one_and_both_jobs_finish(cluster: Stage) -> None:
    stage, low, high = cluster, "low-prio-job", "high-prio-job"
    submit(stage, low, 6000, 2, "low-priority")
    three = {"master": "Running", "worker-0": "Running", "worker-1": "Running"}
    until(lambda: pods(stage, low) == three, "master and workers run")
    until(lambda: steps(stage, low) > 0, "they train")
    assert item(stage, low)["progress"]["records"] < 600, "less than a tenth is done"

    submit(stage, high, 600, 1, "high-priority")
    two = {"master": "Running", "worker-0": "Running"}
    until(lambda: pods(stage, high) == two, "the other job's worker has its place")
    until(
        lambda: pods(stage, low) == {**two, "worker-2": "Pending"},
        "one worker waits for another place",
    )
    events = history(stage, low)
    (taken,) = [event for event in events if event["reason"] == "Preempted"]
    told = taken["numbers"]
    assert (told["beneficiary"], told["priority"], told["own_priority"]) == (high, 1_000_000, 1000)
    others = history(stage, high)
    codes = [event["code"] for event in others]
    assert codes.index("placed") < codes.index("grown"), "the master is placed alone"
    assert at(events, "worker-1 was stopped") <= at(others, "worker-0 runs"), (
        "in the place that was given back"
    )

    hurry(stage, low, high)
    for name in (high, low):
        until(lambda name=name: item(stage, name)["phase"] == "Completed", f"{name} is over")
    both = {"master": "Completed", "worker-0": "Completed"}
    until(lambda: pods(stage, high) == both, "the tasks of the job to be gone")
    assert "[Preempted] worker-1: Made room for high-prio-job" in typed(stage, f"pliant describe job {low}")
    check(stage, low, 6000)
    check(stage, high, 600)


@pytest.mark.long  # without a server: train/test_elasticdl_tasks.py
@pytest.mark.timeout(900)
def test_who_is_killed_comes_back_as_another_pod(cluster: Stage) -> None:
    stage = cluster
    submit(stage, "job", 6000, 2, "low-priority")  # far from its end until it is told to hurry
    until(lambda: steps(stage, "job") > 0, "it trains")
    until(lambda: item(stage, "job")["progress"]["world"] == 2, "two workers train")
    agent, worker = (_pid(stage, "worker-1", role) for role in ("worker", "run"))
    os.kill(agent, signal.SIGKILL)

    def another() -> bool:
        """Another worker: on a busy machine the first one may be given up before it trains, too."""
        there = pods(stage, "job")
        others = there.keys() - {"master", "worker-0", "worker-1"}
        return len(there) == 3 and len(others) == 1 and set(there.values()) == {"Running"}

    try:
        until(another, "another worker", 2 * SECONDS)
    except AssertionError:
        print(pods(stage, "job"), agent, worker, typed(stage, "pliant describe job job"))
        raise
    hurry(stage, "job")
    until(lambda: item(stage, "job")["phase"] == "Completed", "it is over")
    check(stage, "job", 6000, killed={worker})


def _pid(stage: Stage, task: str, role: str) -> int:
    """The pid of that role's process in a task."""
    return next(
        pid
        for pid, line in stage.processes().items()
        if f"pliant.train.elasticdl {role}" in line
        and "supervise" not in line
        and "--mortal" not in line
        and f"/{task}/".encode() in (Path("/proc") / str(pid) / "environ").read_bytes()
    )


@pytest.mark.long  # without a server: train/test_elasticdl_tasks.py
@pytest.mark.timeout(900)
def test_a_user_s_error_ends_the_job_and_is_shown(cluster: Stage) -> None:
    folder = cluster.home / "bad"
    folder.mkdir()
    text = (
        EXAMPLE.read_text("utf-8") + '\n\ndef loss(output, labels):\n    raise ValueError("no loss today")\n'
    )
    (folder / "model.py").write_text(text)
    line = COMMAND.format(name="bad", records=600, workers=2, priority="low-priority")
    done = cluster.run(f"{line} --wait")
    assert done.code == 1
    assert "Error: Job bad has failed" in done.err
    for said in (done.err, typed(cluster, "pliant describe job bad")):
        assert "Traceback (most recent call last):" in said
        assert "ValueError: no loss today" in said
    # The first failure ends the job; a pod that is told to stop then may have succeeded, or is gone.
    over = {"Error", "Completed"}
    until(lambda: "Error" in (seen := set(pods(cluster, "bad").values())) and seen <= over, "the end")
