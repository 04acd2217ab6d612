"""One rig per test; whatever happens, nothing of it is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()
