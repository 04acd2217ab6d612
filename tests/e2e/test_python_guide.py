"""Runs the examples of docs/guide/python.md as one program against a server."""

import re
import subprocess
import sys

from examples.walkthrough import ROOT, Stage

PAGE = ROOT / "docs" / "guide" / "python.md"
PATIENCE = 300  # seconds


def test_the_examples_run(stage: Stage) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert len(blocks) == PAGE.read_text("utf-8").count("```python") == 8
    done = stage.run("pliant up --simulate 1x2")
    assert done.code == 0, done.said
    program = stage.folder / "examples.py"
    program.write_text("\n".join(blocks))
    ran = subprocess.run(
        [sys.executable, str(program)],
        env=stage.env,
        cwd=stage.where,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["Completed 0", "hello"], ran.stdout
    assert "[0, 1]" in lines
    assert {"hello Completed", "seed-0 Completed", "seed-1 Failed"} <= set(lines)
    assert any(line.endswith("'leader', 1, 'later', 0)") for line in lines), ran.stdout
    assert "True Completed" in lines
    assert "never" in lines
    assert "Job unheard-of does not exist in project default." in lines
    assert lines.count("Completed") == 1, "the change that ends the watch"
