"""One control plane for all tests of this folder, in all processes, and others for single tests."""

import pytest

from tests.kubernetes.control_plane import shared
from tests.kubernetes.planes import Planes


@pytest.fixture(scope="package")
def plane(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    base = base.parent if base.name.startswith("popen-") else base  # one for each process of pytest-xdist
    with shared(base / "kubernetes", "podgroups") as plane:
        yield plane


@pytest.fixture(scope="package")
def planes(tmp_path_factory):
    made = Planes(tmp_path_factory.mktemp("planes"))
    yield made
    made.close()
