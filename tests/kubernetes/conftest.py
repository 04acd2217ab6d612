"""One control plane for all tests of this folder, in however many processes they run."""

import pytest

from tests.kubernetes.control_plane import shared


@pytest.fixture(scope="package")
def plane(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    base = base.parent if base.name.startswith("popen-") else base  # one for each process of pytest-xdist
    with shared(base / "kubernetes", "podgroups") as plane:
        yield plane
