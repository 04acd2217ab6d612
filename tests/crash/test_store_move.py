"""The state goes to PostgreSQL and back while jobs run."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.client.locate import server_record
from tests.crash.pair import PATIENCE, parent_of
from tests.crash.rig import Rig
from tests.store.postgres import Server, server


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder, server(Path(folder)) as running:
        yield running


def typed(rig: Rig, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command; the rig ends servers that it starts."""
    command = [sys.executable, "-m", "pliant.cli", "--state", str(rig.state), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def roots(rig: Rig) -> dict[str, list[int]]:
    """Attempt -> its processes without those that others of them started."""
    return {
        attempt: sorted(pid for pid in pids if parent_of(pid) not in {0, *pids})
        for attempt, pids in rig.alive().items()
    }


@pytest.fixture
def running(rig: Rig) -> Iterator[Rig]:
    done = typed(rig, "up", "--simulate", "1x4")
    assert done.returncode == 0, done.stderr
    yield rig
    typed(rig, "down", "--yes")


@pytest.mark.timeout(900)
def test_jobs_do_not_notice(running: Rig, database: Server) -> None:
    rig = running
    address = database.place()
    for number in (1, 2, 3):
        assert rig.submit(f"job-{number}", 2) is not None
    wanted = ["Pending", "Running", "Running"]
    rig.until(
        lambda: rig.calm() and sorted(rig.phases().values()) == wanted,
        "two run, one waits",
        PATIENCE,
        seen=rig.phases,
    )
    before, phases = roots(rig), rig.phases()
    history = {name: rig.ask(lambda c, i=item["id"]: len(c.events(i))) for name, item in rig.items().items()}

    done = typed(rig, "store", "move", address)
    assert done.returncode == 0, done.stderr
    assert "The state is in postgresql" in done.stdout
    assert roots(rig) == before
    rig.until(lambda: rig.phases() == phases, "the same runs and waits", PATIENCE, seen=rig.phases)
    for name, item in rig.items().items():
        events = rig.ask(lambda c, i=item["id"]: len(c.events(i)))
        assert events is not None and history[name] is not None and events >= history[name]
    assert (rig.state / "pliant.db.moved").exists() and not (rig.state / "pliant.db").exists()

    done = typed(rig, "up", "--standby", "--lease", "600")
    assert done.returncode == 0, done.stderr
    done = typed(rig, "restart")
    assert done.returncode == 0, done.stderr
    assert server_record(str(rig.state), "standby") is not None
    rig.delete("job-1")
    rig.until(lambda: rig.phases() == {"job-2": "Running", "job-3": "Running"}, "the next starts", PATIENCE)

    before = roots(rig)
    done = typed(rig, "store", "move", "file")
    assert done.returncode == 0, done.stderr
    rig.until(lambda: rig.phases() == {"job-2": "Running", "job-3": "Running"}, "both run on", PATIENCE)
    assert roots(rig) == before
    rig.verify()


@pytest.mark.timeout(600)
def test_what_cannot_be_moved_stays(running: Rig, database: Server, tmp_path: Path) -> None:
    rig = running
    for target, said in (
        ("file", "in a file already"),
        (str(tmp_path / "other.db"), "no address of PostgreSQL"),
        (f"postgresql://me:hush@/postgres?host={database.folder}", "may not contain a password"),
        ("postgresql://me@/postgres?host=/nowhere", "no answer"),
    ):
        done = typed(rig, "store", "move", target)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
        assert "hush" not in done.stderr
    done = typed(rig, "up", "--standby")
    assert done.returncode == 1 and "pliant store move" in done.stderr
    record = server_record(str(rig.state))
    assert record is not None and os.path.exists(f"/proc/{record['pid']}")
