"""Every idiom of the interface with 1, 3 and 2 workers, one of them killed, against an unchanged run."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure
SCRIPT = Path(__file__).with_name("idioms.py")


def run(
    zygote: Zygote, folder: Path, spec: dict[str, Any], resized: bool
) -> tuple[list[dict[str, Any]], dict[int, float]]:
    """(the last lines of the workers that were there at the end, losses)."""
    with Running(zygote, folder, spec, script=SCRIPT) as job:
        job.hold(1 if resized else 2)
        if resized:
            job.until(lambda s: s["step"] >= 2)
            job.hold(3)
            job.until(lambda s: s["world"] == 3)
            generation = job.status()["generation"]
            os.kill(job.member_pids()[0], signal.SIGKILL)
            job.until(lambda s: s["generation"] > generation)
            job.hold(2)
            job.until(lambda s: s["world"] == 2)
        status = job.finish()
        assert status["warnings"] == []
        ends = [line for lines in job.lines().values() for line in lines if "end" in line]
        assert ends and all(end == ends[0] for end in ends), "all workers know the same"
        return ends, job.losses()


def test_bit_for_bit_with_logical_workers(zygote: Zygote, tmp_path: Path) -> None:
    """Includes random draws while reading, batch norm, and the scale of fp16."""
    spec = {"logical": 3, "chance": True, "precision": "fp16"}
    fixed, losses = run(zygote, tmp_path / "fixed", spec, resized=False)
    changed, others = run(zygote, tmp_path / "changed", spec, resized=True)
    assert fixed[0] == changed[0] and losses == others
    assert fixed[0]["skipped"] > 0, "some update has overflowed"
    assert fixed[0]["state"][0] == 32 and len(fixed[0]["state"][2]) == 4
    assert all(found["count"] == 7 for found in fixed[0]["evaluations"].values())


def test_to_rounding_without_them(zygote: Zygote, tmp_path: Path) -> None:
    spec = {"logical": 0, "chance": False, "precision": None}
    fixed, losses = run(zygote, tmp_path / "fixed", spec, resized=False)
    changed, others = run(zygote, tmp_path / "changed", spec, resized=True)
    assert others == pytest.approx(losses, rel=1e-5) and len(losses) == 32
    assert changed[0]["norm"] == pytest.approx(fixed[0]["norm"], rel=1e-4)
    assert changed[0]["lr"] == fixed[0]["lr"]
    for epoch, (mine, theirs) in enumerate(zip(changed[0]["state"][2], fixed[0]["state"][2], strict=True)):
        assert mine[0] == theirs[0] == epoch and mine[1:] == pytest.approx(theirs[1:], rel=1e-5)
