"""Kills and restarts: of all workers, the master, and one worker in the middle of a collective."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pliant.train.master.ledger import Ledger
from pliant.train.worker.checkpoint import Checkpoints
from tests.train.jobs import PATIENT, Running
from tests.train.test_churn import check
from tests.train.test_parity import fixed, spec
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure


def test_full_restart_on_another_size_gives_the_same_losses(zygote: Zygote, tmp_path: Path) -> None:
    wanted = spec(80, optimizer="adam", logical=4, norm=True)
    reference, ends = fixed(zygote, tmp_path / "whole", wanted, 2)
    wanted |= {"checkpoints": str(tmp_path / "checkpoints"), "every": 7}
    with Running(zygote, tmp_path / "cut", wanted) as job:
        job.hold(3)
        job.until(lambda s: s["step"] >= 23)
        for pid in job.pids():
            os.kill(pid, signal.SIGKILL)
        before = job.losses()
    stored = Checkpoints(tmp_path / "checkpoints").found()
    assert stored, "a checkpoint every 7 steps"
    at = int(stored[0].name.removeprefix("step-"))
    with Running(zygote, tmp_path / "again", wanted) as job:
        job.slow(False)
        job.hold(2)
        job.finish()
        assert min(job.losses()) == at + 1
        assert {**before, **job.losses()} == reference
        assert job.ends() == ends
        assert (tmp_path / "checkpoints" / "final" / "state.safetensors").is_file()


def test_all_workers_lost_within_a_job_go_back_to_the_checkpoint(zygote: Zygote, tmp_path: Path) -> None:
    wanted = {
        "records": 250,
        "batch": 32,
        "micro": 8,
        "epochs": 6,
        "checkpoints": str(tmp_path / "c"),
        "every": 5,
    }
    with Running(zygote, tmp_path, wanted) as job:
        job.hold(2)
        job.until(lambda s: s["step"] >= 17)
        for pid in job.pids():
            os.kill(pid, signal.SIGKILL)
        job.until(lambda s: s["generation"] >= 2 and s["world"] == 2 and s["step"] >= 20)
        job.finish()
        check(job, 6)
        restored = [e.body["step"] for e in Ledger(tmp_path / "job").events() if e.kind == "restored"]
        assert len(restored) == 2 and restored[1] % 5 == 0 and restored[1] >= 5


def test_the_master_is_killed_ten_times(zygote: Zygote, tmp_path: Path) -> None:
    wanted = {"records": 250, "batch": 32, "micro": 8, "epochs": 80}
    with Running(zygote, tmp_path, wanted, process=True) as job:
        job.hold(2)
        step = job.until(lambda s: s["step"] >= 2 and s["world"] == 2)["step"]
        pids = job.pids()
        for kill in range(10):
            assert job.process is not None
            job.process.process.kill()
            job.process.process.wait()
            if kill == 4:
                job.hold(3)  # a newcomer while there is no master
            if kill == 7:
                os.kill(job.pids()[-1], signal.SIGKILL)
            there = 2 if kill < 4 else 3
            step = job.until(lambda s, step=step, n=there: s["step"] > step and len(job.pids()) == n)["step"]
        assert set(pids[:2]) <= set(job.pids()), "nobody was restarted for it"
        job.finish()
        assert job.process is not None and job.process.restarts == 10
        check(job, 80)


def test_the_master_is_killed_while_a_communicator_is_built(zygote: Zygote, tmp_path: Path) -> None:
    """Rank 0 has all addresses and asks no more; its own died with the master, and rank 1 asks for it. The
    new master learns it again, and the same generation trains."""
    wanted = {"records": 250, "batch": 32, "micro": 8, "epochs": 3, "half_told": True}
    long = replace(PATIENT, silence=120_000, reconnect=120_000, broken=120_000, adopt=120_000)
    with Running(zygote, tmp_path, wanted, times=long) as job:
        job.slow(False)
        job.hold(2)
        job.until(lambda _: (tmp_path / "told").exists() and (tmp_path / "knows").exists())
        assert job.master is not None
        job.master.close()
        (tmp_path / "go").touch()
        job.new_master()
        assert job.finish()["generation"] == 1, "nobody gave up building it"
        check(job, 3)


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("collective", [0, 1, 2, 3])
def test_a_kill_in_the_middle_of_each_collective(
    zygote: Zygote, tmp_path: Path, collective: int, how: str
) -> None:
    """Rank 1 dies at the n-th collective of step 4 (buckets, then the agreement): before it takes part, or
    just after it has sent its part, when others may already have the whole sum."""
    wanted: dict[str, Any] = {
        "records": 250, "batch": 32, "micro": 8, "epochs": 3, "width": 64, "depth": 4, "bucket_mb": 0.03,
        "fault": {"step": 4, "collective": collective, "how": how, "rank": 1},
    }  # fmt: skip
    with Running(zygote, tmp_path, wanted) as job:
        job.slow(False)
        job.hold(3)
        job.until(lambda s: s["generation"] >= 2)
        job.finish()
        check(job, 3)
        assert any(w["state"] == "lost" for w in job.status()["workers"])
