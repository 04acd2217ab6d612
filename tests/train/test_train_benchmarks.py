"""The training benchmarks run at a tiny size, with meaningless numbers, and leave no files behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "rows"), [("train_pauses", 7), ("train_throughput", 5)])
def test_tiny(name: str, rows: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", "--tiny"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=350,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2 + rows
    assert list(tmp_path.glob("pliant-*")) == []  # torch leaves its own cache
