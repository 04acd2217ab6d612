"""The server's log has a size limit."""

import os
import subprocess
import sys
from pathlib import Path

SERVER = """
import logging, sys
from pathlib import Path
from pliant.store.server_log import ServerLog

logging.basicConfig(handlers=[ServerLog(Path(sys.argv[1]), most=1000)], format="%(message)s")
for number in range(100):
    logging.warning("line %03d %s", number, "x" * 40)
sys.stderr.write("the end\\n")
print("printed")
"""


def run(folder: Path, output: Path) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-c", SERVER, str(folder / "server.log")],
            check=True,
            stdout=descriptor,
            stderr=descriptor,
            timeout=200,
        )
    finally:
        os.close(descriptor)


def test_it_begins_again_when_it_is_full_and_keeps_the_last_one(tmp_path: Path) -> None:
    run(tmp_path, tmp_path / "server.log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log", "server.log.1"]
    old, new = (tmp_path / "server.log.1").read_text(), (tmp_path / "server.log").read_text()
    lines = [line for line in (old + new).splitlines() if line.startswith("line ")]
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 100)), "nothing is lost between the two"
    assert len(old) < 1100 and len(new) < 1100
    assert "the end" in new and "printed" in new
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def test_an_output_that_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, tmp_path / "journal")
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    assert len((tmp_path / "journal").read_text().splitlines()) == 102
