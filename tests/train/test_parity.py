"""The loss does not depend on the number of workers."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure


def fixed(
    zygote: Zygote, folder: Path, spec: dict[str, Any], workers: int
) -> tuple[dict[int, float], set[str]]:
    with Running(zygote, folder, spec) as job:
        job.slow(False)
        job.hold(workers)
        job.finish(200)
        return job.losses(), job.ends()


def churn(
    zygote: Zygote, folder: Path, spec: dict[str, Any], sizes: list[int], every: int, kills: int
) -> tuple[dict[int, float], set[str], int]:
    """Changes the size after each `every` steps, and kills a member at the first `kills` changes."""
    with Running(zygote, folder, spec) as job:
        job.hold(sizes[0])
        for number, size in enumerate(sizes[1:]):
            job.until(lambda s, at=number * every: s["step"] > at and s["world"] >= 1, 120)
            if number < kills:
                generation = job.status()["generation"]
                os.kill(job.member_pids()[-1], signal.SIGKILL)
                job.until(lambda s, g=generation: s["generation"] > g)
            job.hold(size)
            job.until(lambda s, size=size: s["world"] == size, 120)
        job.finish(200)
        return job.losses(), job.ends(), len(job.status()["changes"]) - 1


def spec(steps: int, **more: Any) -> dict[str, Any]:
    epochs = steps // 8
    return {"records": 250, "batch": 32, "micro": 8, "epochs": epochs, "total": steps, **more}


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.long)])
def test_loss_parity(zygote: Zygote, tmp_path: Path, optimizer: str) -> None:
    wanted = spec(120, optimizer=optimizer)
    reference, _ = fixed(zygote, tmp_path / "fixed", wanted, 3)
    losses, ends, changes = churn(zygote, tmp_path / "churn", wanted, [2, 4, 1, 3], 10, 1)
    compare(reference, losses, 120)
    assert len(ends) == 1 and changes >= 4


def test_averaging_by_rank_would_not_pass(zygote: Zygote, tmp_path: Path) -> None:
    wanted = spec(120)
    reference, _ = fixed(zygote, tmp_path / "one", wanted, 1)
    losses, _ = fixed(zygote, tmp_path / "three", {**wanted, "by_rank": True}, 3)
    with pytest.raises(AssertionError, match=r"1e-05|apart"):
        compare(reference, losses, 120)


def test_logical_workers_are_bit_equal(zygote: Zygote, tmp_path: Path) -> None:
    wanted = spec(80, optimizer="adam", logical=4, norm=True, dropout=True)
    reference, first = fixed(zygote, tmp_path / "fixed", wanted, 1)
    losses, ends, _ = churn(zygote, tmp_path / "churn", wanted, [3, 2, 5], 8, 1)
    assert losses == reference
    assert ends == first


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_long_loss_parity(zygote: Zygote, tmp_path: Path, optimizer: str) -> None:
    """304 steps, 4 fixed workers against at least 10 changes between 1 and 8, 3 of them by SIGKILL."""
    wanted = spec(304, optimizer=optimizer, slow_s=0.4)
    reference, _ = fixed(zygote, tmp_path / "fixed", wanted, 4)
    sizes = [4, 8, 1, 5, 3, 7, 2, 6, 1, 4, 8, 2]
    losses, ends, changes = churn(zygote, tmp_path / "churn", wanted, sizes, 16, 3)
    compare(reference, losses, 304)
    assert len(ends) == 1 and changes >= 10
    bits = {**wanted, "logical": 8}
    reference, first = fixed(zygote, tmp_path / "bits", bits, 4)
    losses, ends, _ = churn(zygote, tmp_path / "bits-churn", bits, sizes, 16, 3)
    assert losses == reference and ends == first


def compare(reference: dict[int, float], losses: dict[int, float], steps: int) -> None:
    assert sorted(losses) == sorted(reference) == list(range(1, steps + 1))
    apart = max(abs(losses[step] - reference[step]) / abs(reference[step]) for step in reference)
    print(f"largest relative difference {apart:.2e}")
    assert apart < 1e-5
    first, last = (sum(reference[s] for s in part) / 8 for part in (range(1, 9), range(steps - 7, steps + 1)))
    assert last < first / 2, "the loss should at least halve, or equality says little"
