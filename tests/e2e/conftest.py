"""A private place for each session at the terminal, which is left empty whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.walkthrough import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Nothing runs here before, and `pliant down` must leave nothing."""
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
