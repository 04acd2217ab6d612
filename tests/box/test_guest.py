"""The warden and its walls in a guest: its control groups are all of the second version, with controllers,
and its first process is systemd.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.box.conftest import requirements
from tests.house.gaps import gap

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

REPOSITORY = Path(__file__).parents[2]
GUEST = Path(__file__).with_name("guest")
UNABLE = 77


@pytest.fixture(autouse=True)
def nothing_left():
    """Whatever it is, it goes with the guest."""


def test_the_warden_and_its_walls_in_a_guest():
    requirements()
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not long"]
    done = subprocess.run(
        [str(GUEST), *words, "tests/box/test_warden.py", "tests/box/test_walls.py"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == UNABLE:
        gap("no guest", done.stderr.strip())
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stderr[-2000:]
