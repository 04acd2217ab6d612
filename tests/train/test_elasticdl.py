"""Jobs of a model file: workers leave and die, each record counts once, one process gets equal weights."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import pliant.train.elasticdl
from pliant.train.elasticdl.flags import parse
from pliant.train.elasticdl.results import finish
from tests.train.elasticdl_jobs import MNIST, check_exactly_once, difference, logging_file, logs, replay
from tests.train.jobs import Running
from tests.train.zygote import Zygote

MAIN = Path(pliant.train.elasticdl.__file__).with_name("__main__.py")
RECORDS, BATCH = 1990, 20  # 99 full steps and a short one


def running(zygote: Zygote, folder: Path, model_file: Path, *more: str, process: bool = False) -> Running:
    argv = ["run", f"--model_file={model_file}", "--num_workers=2", "--minibatch_size=10", *more]
    return Running(zygote, folder, {}, script=MAIN, argv=argv, process=process)


def training(zygote: Zygote, folder: Path, model_file: Path, *more: str) -> Running:
    data, kept = f"--train_data_dir=digits:{RECORDS}", f"--checkpoint_dir={folder / 'checkpoints'}"
    return running(zygote, folder, model_file, data, kept, "--grads_to_wait=2", *more)


def test_one_leaves_and_one_is_killed(zygote: Zygote, tmp_path: Path) -> None:
    file = logging_file(tmp_path / "mnist.py", tmp_path / "applied", slow=tmp_path / "slow", pause=0.2)
    with training(zygote, tmp_path, file) as job:
        job.hold(2)
        job.until(lambda s: s["world"] == 2 and s["step"] >= 5)
        os.kill(job.member_pids()[1], signal.SIGTERM)
        job.until(lambda s: s["world"] == 1 and s["generation"] >= 2)
        seen = job.until(lambda s: s["world"] == 1)["step"]
        job.until(lambda s: s["step"] > seen)  # one worker of two makes progress with the same batch
        job.hold(3)  # adds a third: a worker that left by itself is not restarted
        job.until(lambda s: s["world"] == 2)
        victim = job.member_pids()[1]
        killed = {worker for worker, pid in job.fleet.pids().items() if pid == victim}
        job.until(lambda _: any(len(logs(tmp_path / "applied").get(worker, ())) >= 2 for worker in killed))
        os.kill(victim, signal.SIGKILL)
        job.until(lambda s: s["generation"] >= 4 and s["world"] == 2)  # the fleet replaces it
        status = job.finish()
    assert status["step"] == status["steps_total"] == 100
    assert len({changed["world"] for changed in status["changes"]}) == 2
    check_exactly_once(tmp_path / "applied", RECORDS, BATCH, killed=killed)
    assert difference(tmp_path / "checkpoints", replay(MNIST, f"digits:{RECORDS}", BATCH)) <= 1e-5


def test_the_check_finds_what_is_missing_twice_or_nobodys(zygote: Zygote, tmp_path: Path) -> None:
    applied = tmp_path / "applied"
    file = logging_file(tmp_path / "mnist.py", applied)
    with training(zygote, tmp_path, file) as job:
        job.hold(2)
        job.finish()
    check_exactly_once(applied, RECORDS, BATCH)
    longest = max(applied.iterdir(), key=lambda path: path.stat().st_size)
    lines = longest.read_text().splitlines()
    step, ids = json.loads(lines[20])
    stranger = json.loads(lines[21])[1][0]
    for instead, words in (
        ([], "leaves one step unlogged"),
        ([[step, [*ids, ids[0]]]], "too many"),
        ([[step, [*ids[:-1], stranger]]], "too many|unlogged"),
    ):
        changed = [*lines[:20], *map(json.dumps, instead), *lines[21:]]
        longest.write_text("\n".join(changed) + "\n")
        with pytest.raises(AssertionError, match=words):
            check_exactly_once(applied, RECORDS, BATCH)


def test_an_error_in_the_model_file_ends_the_job_with_its_line(zygote: Zygote, tmp_path: Path) -> None:
    file = tmp_path / "mnist.py"
    file.write_text(
        MNIST.read_text().replace("def loss(output, labels):", "def loss(output, labels):\n    1 / 0")
    )
    line = file.read_text().splitlines().index("    1 / 0") + 1
    with training(zygote, tmp_path, file) as job:
        job.hold(2)
        with pytest.raises(AssertionError) as failed:
            job.finish()
    said = str(failed.value)
    assert f"the job has failed: {file}, line {line}, in loss(): ZeroDivisionError: division by zero" in said
    assert "Traceback (most recent call last)" in said


def test_evaluation_while_it_trains(zygote: Zygote, tmp_path: Path) -> None:
    more = ("--validation_data_dir=digits:test", "--evaluation_steps=50")
    with training(zygote, tmp_path, MNIST, *more) as job:
        job.hold(2)
        status = job.finish()
        said = job.logs()
    found = status["report"]["evaluation"]
    assert found["step"] in (50, 100) and 0 < found["accuracy"] < 1
    assert "step 50: evaluated, accuracy 0." in said and "step 100: evaluated, accuracy 0." in said


def trained(zygote: Zygote, folder: Path) -> Path:
    with training(zygote, folder / "trained", MNIST) as job:
        job.hold(1)
        job.finish()
    return folder / "trained" / "checkpoints"


def by_blocks(zygote: Zygote, folder: Path, mode: str, flag: str, weights: Path) -> tuple[str, Path]:
    """The job's last message and its output folder, after one of two workers was killed."""
    out = folder / f"{mode}-out"
    words = [f"--mode={mode}", f"--{flag}=digits:test", "--records_per_task=7", f"--checkpoint_dir={weights}"]
    words.append(f"--output={out}")
    with running(zygote, folder / mode, MNIST, *words, process=True) as job:
        job.hold(2)
        job.until(lambda s: len(job.fleet.devices()) == 2 and mode in s["queues"])
        os.kill(job.pids()[0], signal.SIGKILL)
        job.until(lambda s: s["queues"][mode]["finished"] and not job.fleet.devices())
    flags = parse([f"--model_file={MNIST}", *words])
    return finish(flags, folder / mode / "job", 297, weights), out


def test_a_worker_that_is_told_to_leave_hands_its_blocks_on(zygote: Zygote, tmp_path: Path) -> None:
    weights = trained(zygote, tmp_path)
    file = tmp_path / "slowly.py"
    slowly = "def input_fn(records):\n    import time\n    time.sleep(0.1)"
    file.write_text(MNIST.read_text().replace("def input_fn(records):", slowly))
    words = ["--mode=predict", "--prediction_data_dir=digits:test", f"--checkpoint_dir={weights}"]
    with running(zygote, tmp_path / "predict", file, "--records_per_task=1", *words, process=True) as job:
        job.hold(1)
        job.until(lambda s: s["queues"].get("predict", {}).get("waiting", 999) <= 295)
        job.hold(0)  # it has half a minute to leave; 297 blocks would take as long
        status = job.until(lambda s: not job.fleet.devices())
        assert not status["queues"]["predict"]["finished"]
        job.hold(2)
        job.until(lambda s: s["queues"]["predict"]["waiting"] < status["queues"]["predict"]["waiting"])


def test_evaluate_and_predict_count_each_record_once(zygote: Zygote, tmp_path: Path) -> None:
    weights = trained(zygote, tmp_path)
    said, out = by_blocks(zygote, tmp_path, "evaluate", "validation_data_dir", weights)
    found: dict[str, Any] = json.loads((out / "metrics.json").read_text())
    assert said.startswith("records 297, accuracy 0.") and found["records"] == 297

    said, out = by_blocks(zygote, tmp_path, "predict", "prediction_data_dir", weights)
    assert said == f"297 predictions are in {out / 'predictions.csv'}"
    header, *rows = (out / "predictions.csv").read_text().splitlines()
    assert header == "record," + ",".join(f"output_{digit}" for digit in range(10))
    assert [int(row.split(",")[0]) for row in rows] == list(range(297))
    from pliant.train.elasticdl.source import open_records

    labels = [record[-1] for record in open_records("digits:test", "prediction_data_dir")]
    values = [[float(value) for value in row.split(",")[1:]] for row in rows]
    right = sum(value.index(max(value)) == label for value, label in zip(values, labels, strict=True))
    assert right / 297 == pytest.approx(found["accuracy"])
