"""One rig per test; whatever happens, nothing of it is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.rig import Rig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # what killed servers leave there goes with the test
    rig = Rig(tmp_path)
    yield rig
    rig.close()
