"""One warden for each module; nothing of it is left, even after a crash."""

import os

import pytest

from tests.box.box_rig import WARDEN, Box, sweep_the_dead
from tests.house.gaps import gap


def requirements():
    if os.geteuid() != 0:
        gap("no root", "run the tests as root: they make accounts and control groups")
    if not WARDEN.exists():
        gap("no warden", "install a C compiler and run `make native`")
    sweep_the_dead()


@pytest.fixture(scope="module")
def box(request):
    requirements()
    made = Box(request.module.__name__.rsplit("_", 1)[1][:4])
    try:
        made.make()
        made.start()
        yield made
    finally:
        made.clean()


@pytest.fixture(autouse=True)
def nothing_left(box):
    """Ends every job of a test with the test."""
    yield
    box.end_all()
