"""Live processes, from /proc."""

import os
import subprocess
from pathlib import Path

from pliant.engines.local.observe import processes

LOOKS = 3000


def test_a_process_is_seen_also_in_the_middle_of_its_exec(tmp_path: Path) -> None:
    """During an exec a process has no environment for a moment: it still belongs to its attempt."""
    script = tmp_path / "again"
    script.write_text('exec sh "$0"\n')
    with subprocess.Popen(["sh", script], env={"PATH": os.environ["PATH"], "MARK": "1"}) as program:
        try:
            missed = sum(b"MARK=1" not in processes.environment(program.pid) for _ in range(LOOKS))
        finally:
            program.kill()
    assert missed == 0
    assert processes.environment(program.pid) == b"", "it is gone"


def test_who_was_given_nothing_is_not_waited_for() -> None:
    with subprocess.Popen(["/bin/cat"], env={}, stdin=subprocess.PIPE) as program:
        assert processes.environment(program.pid) == b""
