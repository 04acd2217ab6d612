"""A private folder for each terminal session; nothing is left running, whatever happens."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from examples.walkthrough import Stage

LINES = 30  # of each log, in the report of a failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of a failure the end of each log in its folder, and the processes that still run."""
    report = yield
    places = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Stage)]
    if report.when == "call" and report.failed and places:
        stage = places[0]
        for log in sorted([stage.state / "server.log", *stage.state.glob("attempts/*/*/*/log")]):
            if log.exists():
                lines = log.read_text(errors="replace").splitlines()[-LINES:]
                report.sections.append((str(log.relative_to(stage.state)), "\n".join(lines)))
        running = [f"{process} {line}" for process, line in stage.processes().items()]
        report.sections.append(("processes", "\n".join(running)))
    return report


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """An empty folder for a session; fails if processes outlive `pliant down`."""
    stage = Stage(tmp_path / "stage")
    yield stage
    left = stage.close()
    assert left == {}, "these processes outlived `pliant down`"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with one node of two GPUs and project team-a (quota 2), for all tests of a module."""
    stage = Stage(tmp_path_factory.mktemp("shared") / "stage")
    try:
        for command in (
            "pliant up --simulate 1x2",
            "pliant project create team-a --quota 2",
            "runai config project team-a",
        ):
            done = stage.run(command)
            assert done.code == 0, f"{command}: {done.said}"
        yield stage
    finally:
        left = stage.close()
    assert left == {}, "these processes outlived `pliant down`"
