"""An elastic job whose script can only restart: `submit`, `describe` and its log say so."""

import subprocess
from pathlib import Path

from examples.walkthrough import Stage
from tests.e2e.witness import until


def test_a_resize_that_restarts_says_so(shared: Stage, tmp_path: Path) -> None:
    submit = "pliant submit el -g 1 --elastic -- bash -c 'echo begun; exec sleep infinity'"
    done = shared.run(submit)
    assert "el restarts at every resize. Save checkpoints to $PLIANT_CHECKPOINT_DIR" in done.err, done.said
    until(lambda: "begun" in shared.run("pliant logs el").out, "the first attempt")
    described = shared.run("pliant describe job el").out
    assert "\nELASTIC: yes (restarts at every resize; use pliant.train to" in described
    assert "\nALLOCATED GPUS: 2.00" in described
    with (tmp_path / "seen").open("wb") as seen:
        follow = subprocess.Popen(
            ["pliant", "logs", "-f", "el"], cwd=shared.where, env=shared.env, stdout=seen, stderr=seen
        )
    try:
        until(lambda: (tmp_path / "seen").read_text() == "begun\n", "the log of the first attempt")
        shared.run("pliant submit other -g 1 -- sleep infinity")
        resumed = (
            "-- el: attempt 2 starts. Shrank by 1 GPU above its request, for other (project team-a). "
            "Use pliant.train to resize without a restart.\n"
        )
        until(
            lambda: (tmp_path / "seen").read_text() == f"begun\n{resumed}begun\n",
            "the log of the second attempt",
        )
    finally:
        follow.kill()
        follow.wait(60)
        shared.run("pliant delete el other")
