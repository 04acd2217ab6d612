"""Workers join, leave and die while a job trains: no record is lost or counted twice, and all weights stay
equal."""

import os
import signal
import time
from pathlib import Path

import pytest

from pliant.train.data.order import Order
from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure

SPEC = {
    "records": 250,
    "batch": 32,
    "micro": 8,
    "epochs": 20,
    "own_start": True,
}  # the last of 8 steps is short
EPOCHS = 20


def check(job: Running, epochs: int = EPOCHS) -> None:
    """By the ranks' own lines, the records of the applied steps are exactly each epoch's order."""
    by_step: dict[int, dict[tuple[int, int], list[int]]] = {}
    for lines in job.lines().values():
        for line in lines:
            if "step" in line:
                by_step.setdefault(line["step"], {})[line["size"], line["rank"]] = line["ids"]
    steps, each = 8 * epochs, 8
    spans = {step: span for span in job.spans() for step in range(span.first, span.last + 1)}
    assert sorted(spans) == list(range(1, steps + 1))
    for epoch in range(epochs):
        seen: list[int] = []
        for step in range(epoch * each + 1, epoch * each + each + 1):
            size = len(spans[step].members)
            shares = [by_step[step].get((size, rank)) for rank in range(size)]
            # A rank killed right after the step may have no line; then the ledger names it.
            expected = Order(250, 0, epoch).indices(
                (step - 1) % each * 32, min((step - 1) % each * 32 + 32, 250)
            )
            known = [index for share in shares if share is not None for index in share]
            assert len(set(known)) == len(known)
            assert set(known) <= set(expected.tolist())
            if None not in shares:
                assert known == expected.tolist()
            seen += expected.tolist()
        assert sorted(seen) == list(range(250))
    assert len(job.ends()) == 1


def test_nobody_comes_or_goes(zygote: Zygote, tmp_path: Path) -> None:
    with Running(zygote, tmp_path, SPEC) as job:
        job.slow(False)
        job.hold(3)
        job.finish()
        check(job)
        assert {line["size"] for lines in job.lines().values() for line in lines if "step" in line} == {3}


def test_killed_stopped_left_joined(zygote: Zygote, tmp_path: Path) -> None:
    with Running(zygote, tmp_path, SPEC) as job:
        job.hold(3)
        job.until(lambda s: s["step"] >= 3)
        survivors = job.member_pids()
        os.kill(survivors[1], signal.SIGKILL)
        job.until(lambda s: s["generation"] >= 2 and s["world"] == 3)  # the fleet replaces it
        assert {survivors[0], survivors[2]} < set(job.member_pids())
        job.hold(2)
        job.until(lambda s: s["world"] == 2)
        job.hold(4)
        job.until(lambda s: s["world"] == 4)
        os.kill(job.member_pids()[0], signal.SIGTERM)  # leaves by itself
        job.until(lambda s: s["world"] == 3)
        job.finish()
        check(job)


def test_evaluations_are_of_one_step_and_survive_a_loss(zygote: Zygote, tmp_path: Path) -> None:
    found = []
    for name, workers in (("fixed", 1), ("churn", 3)):
        with Running(
            zygote, tmp_path / name, {**SPEC, "own_start": False, "epochs": 6, "evaluate": 4}
        ) as job:
            job.hold(workers)
            if name == "churn":
                job.until(lambda s: s["step"] >= 6)
                os.kill(job.member_pids()[1], signal.SIGKILL)
                job.until(lambda s: s["generation"] >= 2)
            job.finish()
            results = [
                line["evaluations"] for lines in job.lines().values() for line in lines if "end" in line
            ]
            found.append({int(step): r["loss"] for one in results for step, r in one.items()})
    assert sorted(found[0]) == sorted(found[1]) == list(range(4, 49, 4))
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_an_error_of_the_script_ends_the_job_with_its_first_traceback(zygote: Zygote, tmp_path: Path) -> None:
    with Running(zygote, tmp_path, {**SPEC, "break_at": 3}) as job:
        job.hold(2)
        with pytest.raises(
            AssertionError, match=r"the job has failed: [23] workers failed; the first"
        ) as error:
            job.until(lambda s: s["state"] == "finished")
        assert "ValueError: the script is wrong" in str(error.value)
        assert job.status()["state"] == "failed"
        until = time.monotonic() + 60
        while job.fleet.devices():
            assert time.monotonic() < until, "nobody is started for a job that is over"
            job.fleet.poll()
            time.sleep(0.01)
