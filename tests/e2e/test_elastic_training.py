"""Jobs that use pliant.train, as a user submits them: resized while they run, checked from outside."""

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.walkthrough import Stage
from tests.e2e.witness import client, until

PATIENCE = 240.0  # seconds; on a busy machine torch alone takes ten to import

TRAINING = """
import os, sys, time
import torch
import pliant.train as pt

torch.set_num_threads(1)
torch.manual_seed(0)
steps, seconds = int(sys.argv[1]), float(sys.argv[2])
log = open(os.path.join(os.environ["PLIANT_CHECKPOINT_DIR"], f"applied-{os.getpid()}"), "a", buffering=1)
job = pt.init(on_applied=lambda step, ids: log.write(f"{step} {job.size} {','.join(map(str, ids))}\\n"))
x = torch.randn(steps * 8, 4)
y = x.sum(1, keepdim=True)
model, _, _ = job.prepare(model := torch.nn.Linear(4, 1), torch.optim.SGD(model.parameters(), lr=0.05))
data = job.data(torch.utils.data.TensorDataset(x, y), global_batch=8, max_micro_batch=4)
for _ in job.epochs(1):
    for batch in data:
        with job.step(batch) as step:
            step.backward(((model(batch.x) - batch.y) ** 2).mean())
        if not os.path.exists(os.path.join(os.environ["PLIANT_JOB_DIR"], "hurry")):
            time.sleep(seconds)
"""

STUBBORN = """
import os, subprocess, sys, time
from pliant.train.agent.link import Link

link = Link.from_environment()
if os.environ.get("CUDA_VISIBLE_DEVICES"):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "CUDA_VISIBLE_DEVICES": ""})
link.start()
held = None
while held is None:
    held = link.wait(-1, 1.0)
workers = {gpu: subprocess.Popen(["sleep", "infinity"], env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu})
           for gpu in held.devices}
print("workers", flush=True)
while True:
    news = link.wait(held.version, 1.0)
    if news is not None:
        held = news
        link.ack(held.version, "drained", [gpu for gpu, _ in held.draining])
        print("says that it has left", len(held.draining), flush=True)
"""


def typed(stage: Stage, command: str) -> str:
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}"
    return done.out


def item(stage: Stage, name: str) -> Any:
    with client(stage) as api:
        return next(one for one in api.workloads() if one["name"] == name)


def gpus(stage: Stage, name: str) -> float:
    return float(item(stage, name)["allocatedResources"]["gpu"])


def world(stage: Stage, name: str) -> int:
    said = item(stage, name)["progress"]
    return said["world"] if said is not None and said["state"] == "training" else 0


def pids(stage: Stage, word: str) -> set[int]:
    """Processes of tasks whose command line has that word in it."""
    return {pid for pid, line in stage.processes().items() if word in line and "supervise" not in line}


def applied(stage: Stage, workload: str) -> tuple[Counter[int], dict[int, int]]:
    """(record -> how often it was applied, step -> world size), from the ranks' own logs."""
    records: Counter[int] = Counter()
    sizes: dict[int, int] = {}
    for log in (stage.state / "checkpoints" / workload).glob("applied-*"):
        for line in log.read_text().splitlines():
            step, size, ids = line.split(" ")
            sizes[int(step)] = int(size)
            records.update(int(one) for one in ids.split(",") if one)
    return records, sizes


def hurry(stage: Stage, workload: str) -> None:
    """Ends the pauses between its steps, as the checks are done."""
    (stage.state / "checkpoints" / workload / "hurry").touch()


@pytest.fixture
def ready(stage: Stage) -> Stage:
    (stage.home / "train.py").write_text(TRAINING)
    (stage.home / "stubborn.py").write_text(STUBBORN)
    typed(stage, "pliant up --simulate 1x2")
    typed(stage, "pliant project create team-a --quota 2")
    typed(stage, "runai config project team-a")
    return stage


def submit(stage: Stage, name: str, script: str, *words: object, options: str = "-g 1 --elastic") -> str:
    line = f"{sys.executable} {stage.home}/{script} {' '.join(map(str, words))}"
    typed(stage, f"pliant submit {name} -i ubuntu {options} --command -- {line}")
    return str(item(stage, name)["id"])


def test_a_job_shrinks_for_others_and_grows_back_while_it_runs(ready: Stage) -> None:
    stage, steps = ready, 300
    wide = submit(stage, "wide", "train.py", steps, 1)  # long enough not to end before `hurry`
    until(lambda: world(stage, "wide") == 2, "two workers train", PATIENCE)
    agent = pids(stage, "pliant.train.agent")
    assert len(agent) == 1, "the script became its agent"

    typed(stage, "pliant submit filler -i ubuntu -g 1 --interactive --command -- sleep infinity")
    until(lambda: item(stage, "filler")["phase"] == "Running", "the filler runs", PATIENCE)
    assert gpus(stage, "wide") == 1
    until(lambda: world(stage, "wide") == 1, "one worker trains", PATIENCE)

    told = "STEP TIME: 1 worker "
    until(
        lambda: told in typed(stage, "pliant describe job wide"), "how long a step takes one worker", PATIENCE
    )
    typed(stage, "pliant restart")  # the job does not notice
    typed(stage, "pliant delete filler")
    until(lambda: world(stage, "wide") == 2, "two workers train again", PATIENCE)
    assert gpus(stage, "wide") == 2
    assert pids(stage, "pliant.train.agent") == agent, "the same process all the time"

    said = typed(stage, "pliant describe job wide")
    assert "STATE: training" in said and f"of {steps} (" in said and told in said
    assert "[Resized] task-0 has left 1 of 2 GPUs and continues." in said
    hurry(stage, wide)
    until(lambda: item(stage, "wide")["phase"] == "Completed", "it ends", PATIENCE)
    with client(stage) as api:
        assert [pod["attempt"] for pod in api.pods(wide)] == [1]
        assert len(api.progress(wide)) > 2
    records, sizes = applied(stage, wide)
    assert set(records.values()) == {1} and len(records) == steps * 8
    assert sorted(sizes) == list(range(1, steps + 1)) and set(sizes.values()) == {1, 2}
    assert item(stage, "wide")["progress"]["step"] == steps


def test_who_says_drained_and_keeps_its_gpu_does_not_get_a_successor_on_it(ready: Stage) -> None:
    stage = ready
    submit(stage, "liar", "stubborn.py")
    until(lambda: "workers" in stage.run("pliant logs liar").out, "its workers", PATIENCE)
    until(lambda: gpus(stage, "liar") == 2, "both GPUs", PATIENCE)
    typed(stage, "pliant submit filler -i ubuntu -g 1 --interactive --command -- sleep infinity")
    until(lambda: "has left 1" in stage.run("pliant logs liar").out, "its word", PATIENCE)
    looks = [(item(stage, "filler")["phase"], gpus(stage, "liar")) for _ in range(20)]
    assert set(looks) == {("Pending", 2.0)}, "its word alone frees nothing"
    document = (stage.state / "attempts" / item(stage, "liar")["id"] / "task-0/1/allocation.json").read_text()
    going = document[: document.index('"draining"')].rsplit("GPU-", 1)[1][:36]
    keeper = [
        pid for pid in pids(stage, "sleep infinity") if f"CUDA_VISIBLE_DEVICES=GPU-{going}" in environ(pid)
    ]
    assert len(keeper) == 1
    os.kill(keeper[0], signal.SIGKILL)
    until(lambda: item(stage, "filler")["phase"] == "Running", "the filler runs", PATIENCE)
    assert gpus(stage, "liar") == 1


def environ(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text(errors="replace")


@pytest.mark.long
def test_workers_of_a_distributed_job_join_and_leave(ready: Stage) -> None:
    """A master and one worker are its core; further workers come and go with free GPUs."""
    stage, steps = ready, 300
    typed(stage, "pliant down --yes")
    typed(stage, "pliant up --simulate 3x1")
    line = f"{sys.executable} {stage.home}/train.py {steps} 0.2"
    typed(
        stage,
        f"pliant submit-dist pytorch many -i ubuntu --workers 2 --min-replicas 1 --max-replicas 2 -g 1 "
        f"--command -- {line}",
    )
    until(lambda: world(stage, "many") == 3, "three train", PATIENCE)
    leader = pids(stage, "pliant.train.agent")
    typed(stage, "pliant submit filler -i ubuntu -g 1 --interactive --command -- sleep infinity")
    until(lambda: world(stage, "many") == 2, "two train", PATIENCE)
    typed(stage, "pliant delete filler")
    until(lambda: world(stage, "many") == 3, "three train again", PATIENCE)
    assert len(pids(stage, "pliant.train.agent") & leader) == 2, "the others went on"
    hurry(stage, item(stage, "many")["id"])
    until(lambda: item(stage, "many")["phase"] == "Completed", "it ends", PATIENCE)
    records, sizes = applied(stage, item(stage, "many")["id"])
    assert set(records.values()) == {1} and len(records) == steps * 8
    assert sorted(sizes) == list(range(1, steps + 1)) and set(sizes.values()) == {2, 3}
