"""The same world gives the same plan, byte for byte, under any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.sched.replay import digest

ROOT = Path(__file__).parents[2]


def test_two_hash_seeds_one_answer():
    """Two processes whose sets and dicts iterate differently decide the same, and so does this one."""
    answers = [
        subprocess.run(
            [sys.executable, "-m", "tests.sched.replay", "0", "20"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            timeout=240,
            check=True,
        ).stdout.strip()
        for seed in ("1", "4242")
    ]
    assert answers[0] == answers[1] == digest(0, 20)
