"""The tasks of a job as the scheduler starts them: a master that waits alone, workers that come and go."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pliant.train.elasticdl.flags import SYMBOLS
from pliant.train.elasticdl.modelfile import ModelFile
from pliant.train.errors import TrainError
from pliant.train.master.calls import MasterClient
from pliant.train.rendezvous.state import fingerprint
from pliant.train.worker.checkpoint import save
from tests.train.elasticdl_jobs import MNIST, check_exactly_once, difference, logging_file, logs, replay

PATIENCE = 240.0  # seconds; torch alone takes ten to import on a busy machine
RECORDS, BATCH = 1000, 20


class Tasks:
    """Processes with the environment of a task."""

    def __init__(self, folder: Path, flags: list[str]) -> None:
        self.folder, self.flags = folder, flags
        self.checkpoints = folder / "checkpoints"
        self.processes: list[subprocess.Popen[bytes]] = []
        # Bound and not listening: no other program gets this port, and the master may listen on it.
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.port = self.reserved.getsockname()[1]

    def start(self, role: str, task: str, number: int = 1) -> subprocess.Popen[bytes]:
        attempt = self.folder / "state" / "attempts" / "w" / task / str(number)
        attempt.mkdir(parents=True)
        entry = {"id": task, "attempt": number, "node": "n", "gpus": [], "state": "active", "deadline": None}
        document = {"version": 1, "epoch": 1, "tasks": [entry]}
        (attempt / "allocation.json").write_text(json.dumps(document))
        env = {name: value for name, value in os.environ.items() if not name.startswith("PLIANT_")} | {
            "PLIANT_ATTEMPT": f"w/{task}/{number}",
            "PLIANT_ATTEMPT_DIR": str(attempt),
            "PLIANT_CHECKPOINT_DIR": str(self.checkpoints),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "RANK": "0" if role == "master" else task.rpartition("-")[2],
        }
        with (self.folder / f"{task}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pliant.train.elasticdl", role, *self.flags],
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def log(self, task: str) -> str:
        return (self.folder / f"{task}.log").read_text()

    def status(self) -> dict[str, Any]:
        token = self.checkpoints / ".train" / "token"
        try:
            client = MasterClient(f"127.0.0.1:{self.port}", token.read_text(), patience_s=1)
            found = client.call("status")
            client.close()
        except (OSError, TrainError):
            return {"state": "none", "world": 0, "step": 0}
        return found

    def until(self, what: Callable[[dict[str, Any]], Any], why: str) -> None:
        end = time.monotonic() + PATIENCE
        while not what(status := self.status()):
            said = "\n".join(path.read_text() for path in self.folder.glob("*.log"))
            assert time.monotonic() < end, f"not in time: {why}: {json.dumps(status)}\n{said}"
            time.sleep(0.05)

    def close(self) -> None:
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            finally:
                process.wait()
        self.reserved.close()


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    file = logging_file(tmp_path / "mnist.py", tmp_path / "applied", slow=tmp_path / "slow", pause=1.0)
    (tmp_path / "slow").touch()
    words = [f"--model_file={file}", f"--train_data_dir=digits:{RECORDS}", "--minibatch_size=10"]
    words += ["--grads_to_wait=2", "--num_workers=2", f"--output={tmp_path / 'model'}", "--job_name=j"]
    found = Tasks(tmp_path, words)
    yield found
    found.close()


@pytest.mark.timeout(900)
def test_the_master_waits_alone_and_the_job_outlives_its_workers(tasks: Tasks) -> None:
    folder = tasks.folder
    master = tasks.start("master", "master-0")
    tasks.until(lambda s: s["state"] == "waiting", "the master is there")
    first = tasks.start("worker", "worker-1")
    tasks.until(lambda s: s["world"] == 1 and s["step"] >= 2, "one worker trains")

    first.send_signal(signal.SIGTERM)  # preempted: it finishes its step and leaves
    assert first.wait(PATIENCE) == 0, tasks.log("worker-1")
    tasks.until(lambda s: s["state"] == "parked" and s["world"] == 0, "no worker is left")
    assert master.poll() is None, "the master waits without any worker"

    (folder / "mnist.py").write_text("import changed_meanwhile\n")  # the job keeps its first model file
    others = [tasks.start("worker", "worker-1", 2), tasks.start("worker", "worker-2")]
    tasks.until(lambda s: s["world"] >= 1, "the others go on")
    (folder / "slow").unlink()
    assert master.wait(PATIENCE) == 0, tasks.log("master-0")
    assert [other.wait(PATIENCE) for other in others] == [0, 0]
    assert "j: done, 50 steps, loss " in tasks.log("master-0")
    assert len(logs(folder / "applied")) >= 2
    check_exactly_once(folder / "applied", RECORDS, BATCH)
    assert difference(tasks.checkpoints, replay(MNIST, f"digits:{RECORDS}", BATCH)) <= 1e-5
    assert sorted(path.name for path in (folder / "model").iterdir()) == [
        "manifest.json",
        "state.safetensors",
    ]


@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_ends_its_task_and_another_goes_on(tasks: Tasks) -> None:
    """The scheduler finds out whether memory ran out; the task itself restarts nothing."""
    applied = tasks.folder / "applied"
    master = tasks.start("master", "master-0")
    first, second = tasks.start("worker", "worker-1"), tasks.start("worker", "worker-2")
    tasks.until(lambda s: s["world"] == 2 and len(logs(applied)) == 2, "two workers train")
    members = {worker["worker"]: worker["pid"] for worker in tasks.status()["workers"]}
    (killed,) = (worker for worker in members if worker.startswith("worker-1-"))
    os.kill(members[killed], signal.SIGKILL)
    assert first.wait(PATIENCE) == 137, tasks.log("worker-1")
    tasks.until(lambda s: s["world"] == 1, "the other goes on")
    (tasks.folder / "slow").unlink()
    assert (master.wait(PATIENCE), second.wait(PATIENCE)) == (0, 0), tasks.log("master-0")
    check_exactly_once(applied, RECORDS, BATCH, killed={killed})


@pytest.mark.timeout(900)
def test_a_killed_master_is_started_again_and_a_stop_of_all_keeps_a_checkpoint(tasks: Tasks) -> None:
    master = tasks.start("master", "master-0")
    tasks.until(lambda s: s["state"] == "waiting", "the master is there")
    worker = tasks.start("worker", "worker-1")
    tasks.until(lambda s: s["step"] >= 2, "it trains")
    record = json.loads((tasks.checkpoints / ".train" / "master.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    tasks.until(lambda s: s["world"] == 1 and s["step"] >= 4, "the same worker trains on")

    for process in (master, worker):
        process.send_signal(signal.SIGTERM)
    assert (master.wait(PATIENCE), worker.wait(PATIENCE)) == (0, 0), tasks.log("master-0")
    assert len(list(tasks.checkpoints.glob("step-*"))) == 1, tasks.log("worker-1")


def test_what_is_wrong_with_a_job_is_said_before_any_worker_is_there(tasks: Tasks) -> None:
    file = Path(tasks.flags[0].partition("=")[2])
    file.write_text(file.read_text().replace("def loss(", "def lose("))
    assert tasks.start("master", "master-0").wait(PATIENCE) == 1
    said = tasks.log("master-0")
    assert f"elasticdl: {file} does not define loss. Needed is loss(output, labels)" in said
    assert "Did you mean lose, in line " in said


@pytest.mark.timeout(900)
def test_predictions_by_a_task(tasks: Tasks) -> None:
    file = ModelFile(MNIST, "predict", {symbol: symbol for symbol in SYMBOLS})
    model = file.model()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save(tasks.folder / "weights" / "final", weights, {"version": 1, "step": 1, "model": fingerprint(model)})
    tasks.flags += ["--mode=predict", "--prediction_data_dir=digits:test", "--records_per_task=50"]
    tasks.flags += [f"--checkpoint_dir={tasks.folder / 'weights'}", f"--output={tasks.folder / 'out'}"]
    master, worker = tasks.start("master", "master-0"), tasks.start("worker", "worker-1")
    assert (master.wait(PATIENCE), worker.wait(PATIENCE)) == (0, 0), tasks.log("master-0")
    rows = (tasks.folder / "out" / "predictions.csv").read_text().splitlines()
    assert len(rows) == 1 + 297
    assert f"j: done; 297 predictions are in {tasks.folder / 'out' / 'predictions.csv'}" in tasks.log(
        "master-0"
    )


def test_more_workers_than_records_of_an_update(tasks: Tasks) -> None:
    tasks.flags += ["--minibatch_size=1", "--grads_to_wait=1"]
    assert tasks.start("master", "master-0").wait(PATIENCE) == 1
    said = "An update of 1 records (--grads_to_wait=1 times --minibatch_size=1) cannot be shared by 2 workers"
    assert said in tasks.log("master-0")


@pytest.mark.timeout(900)
def test_an_error_of_the_user_ends_all_tasks(tasks: Tasks) -> None:
    file = Path(tasks.flags[0].partition("=")[2])
    file.write_text(file.read_text().replace('record["image"]', 'record["picture"]'))
    master, worker = tasks.start("master", "master-0"), tasks.start("worker", "worker-1")
    assert (master.wait(PATIENCE), worker.wait(PATIENCE)) == (1, 1)
    assert f"the job has failed. {file}, line " in tasks.log("master-0")
    assert "in input_fn(): KeyError: 'picture'" in tasks.log("master-0")
