"""A stage of one node with two GPUs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.store.close()
