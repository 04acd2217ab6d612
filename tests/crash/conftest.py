"""One rig per test; nothing of it is left, whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.rig import Rig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # removed with all that killed servers left
    rig = Rig(tmp_path)
    yield rig
    rig.close()
