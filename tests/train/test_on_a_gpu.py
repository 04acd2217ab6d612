"""Tests that need a real GPU: NCCL's group, a world on one GPU, the same losses as on the CPU."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pliant.train.errors import GenerationOver
from pliant.train.rendezvous.group import ElasticGroup, MasterStore, build
from tests.house.gaps import gap
from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]


@pytest.fixture(autouse=True, scope="module")
def gpu() -> None:
    if not torch.cuda.is_available():
        gap("no GPU", "run on a machine with an NVIDIA GPU and its driver")


class Alone(MasterStore):
    """The values that a master would keep, for one rank."""

    def __init__(self) -> None:
        super().__init__(None, "w", 1, 1)  # type: ignore[arg-type]  # nobody is asked

    def _ask(self, wanted: list[str]) -> None:
        assert set(wanted) <= set(self._found)

    def close(self) -> None:
        pass


def test_a_group_of_nccl_sums_dies_and_is_followed_by_another() -> None:
    """One rank: a second one would need a second GPU."""
    group, device = ElasticGroup(), torch.device("cuda:0")
    for turn in range(3):
        inside = build(Alone(), 0, 1, "127.0.0.1", device, threading.Event())
        assert inside.backend == "nccl"
        group.replace(inside, 0, 2)  # two, or it would not communicate
        vector = torch.full((1000,), float(turn), device=device)
        group.sum(vector)
        group.send(vector, 0)
        assert vector.tolist() == [turn] * 1000
        group.all_ended()

        torch.cuda._sleep(2_000_000_000)  # about a second, during which later work is queued
        work = group.begin_sum(vector)
        group.finish(work)
        threading.Timer(0.1, group.sever).start()
        begun = time.monotonic()
        vector.tolist()
        with pytest.raises(GenerationOver, match="a member was lost"):
            group.all_ended()
        assert time.monotonic() - begun < 20
    group.drop()
    torch.cuda.synchronize()


def spec(**more: Any) -> dict[str, Any]:
    return {"device": "cuda", "epochs": 2, "records": 256, "batch": 32, "digests": False, **more}


def test_two_workers_share_one_gpu_and_one_is_killed(zygote: Zygote, tmp_path: Path) -> None:
    """NCCL refuses two shares of one GPU, which it sees as one GPU: the workers use Gloo."""
    with Running(zygote, tmp_path / "alone", spec()) as alone:
        alone.hold(1)
        alone.finish()
        wanted = alone.losses()
    with Running(zygote, tmp_path / "cpu", spec(device="cpu")) as there:
        there.hold(1)
        there.finish()
        on_cpu = there.losses()
    with Running(zygote, tmp_path / "two", spec()) as job:
        job.hold(2)
        job.until(lambda status: status["world"] == 2 and status["step"] >= 3)
        os.kill(job.member_pids()[1], signal.SIGKILL)
        job.until(lambda status: status["generation"] >= 2 and status["step"] >= 6)
        job.finish()
        losses = job.losses()
        records = [index for lines in job.lines().values() for line in lines for index in line.get("ids", ())]
    assert sorted(losses) == sorted(wanted) == sorted(on_cpu) == list(range(1, 17))
    for step, loss in losses.items():
        assert loss == pytest.approx(wanted[step], rel=1e-4), step
        assert loss == pytest.approx(on_cpu[step], rel=1e-3), step
    assert len(records) >= 2 * 256
