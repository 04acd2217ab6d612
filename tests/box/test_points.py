"""SIGKILL of the shared server at each named point, while the warden and the jobs live on."""

from pathlib import Path

import pytest

from tests.box.box_rig import members, until
from tests.box.conftest import requirements
from tests.box.server_rig import ServedBox
from tests.crash.test_points import ENDING, STARTING, STOPPING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def some(points, *chosen):
    """All points in `make test-long`, else the chosen: crash/test_points.py plays all without a warden."""
    marks = {point: () if point in chosen else pytest.mark.long for point in points}
    return pytest.mark.parametrize("point", [pytest.param(it, marks=mark) for it, mark in marks.items()])


@pytest.fixture(scope="module")
def box():
    requirements()
    made = ServedBox("pts")
    try:
        made.make()
        made.start()
        made.serve()
        made.allow(made.alice)
        made.cut()
        yield made
    finally:
        made.clean()


@pytest.fixture(autouse=True)
def nothing_left(box):
    yield
    box.cut()


class Job:
    def __init__(self, box, name, script) -> None:
        self.box, self.name = box, name
        self.notes = box.base / "home-a" / name
        self.words = ("submit", name, "--", "sh", "-c", f"echo begun >> {self.notes}; {script}")

    def begun(self) -> int:
        return len(self.notes.read_text().splitlines()) if self.notes.exists() else 0

    def phase(self) -> str:
        rows = self.box.ask(self.box.alice.uid, "GET", "/api/v1/workloads")[1]["workloads"]
        return next((row["phase"] for row in rows if row["name"] == self.name), "")

    def lives(self) -> set[int]:
        return members(f"{self.box.tag}/user-{self.box.alice.uid}")

    def one_life(self) -> None:
        """Checks that it runs once, and that only its supervisor has a capability."""
        until(lambda: self.phase() == "Running" and self.begun(), "it runs")
        assert self.begun() == 1 and len(self.lives()) == 1
        for group, most in ((f"user-{self.box.alice.uid}", 0), ("supervisors", 1 << 5)):
            for pid in members(f"{self.box.tag}/{group}"):
                status = Path(f"/proc/{pid}/status").read_text()
                assert int(status.partition("CapEff:")[2].split()[0], 16) & ~most == 0

    def gone(self) -> None:
        until(lambda: not self.lives() and not members(f"{self.box.tag}/supervisors"), "nothing of it lives")
        assert self.begun() <= 1


def dies(box) -> None:
    until(lambda: box.serving.poll() is not None, "the server dies at the point")
    box.serve()


@some(STARTING, "claimed", "forked")
def test_a_start(box, point):
    job = Job(box, f"start-{STARTING.index(point)}", "exec sleep 100000")
    box.serve(halt=point)
    done = box.cli(box.alice, *job.words)
    dies(box)
    if job.phase():
        job.one_life()
        box.good(box.alice, "delete", job.name)
    else:
        assert done.returncode != 0, "an accepted job is lost"
    job.gone()


@some(STOPPING, "stop-signalled", "exited")
def test_a_stop(box, point):
    job = Job(box, f"stop-{STOPPING.index(point)}", "exec sleep 100000")
    box.serve()
    box.good(box.alice, *job.words)
    job.one_life()
    box.cut()
    box.serve(halt=point)
    box.cli(box.alice, "delete", job.name)
    dies(box)
    if job.phase() not in ("", "Deleting"):  # it died before it accepted the request
        box.cli(box.alice, "delete", job.name)
    job.gone()
    until(lambda: not job.phase(), "it is off the list")


@some(ENDING, "exited")
def test_an_end(box, point):
    end = box.base / "home-a" / f"let-{ENDING.index(point)}"
    job = Job(box, f"end-{ENDING.index(point)}", f"until [ -e {end} ]; do sleep 0.05; done")
    box.serve(halt=point)
    box.good(box.alice, *job.words)
    until(job.begun, "it runs")
    end.touch()
    dies(box)
    until(lambda: job.phase() == "Completed", "its end is known")
    job.gone()
    assert job.begun() == 1
    box.good(box.alice, "delete", job.name)
