"""The server does not trust the reports of jobs in pods."""

import json

import pytest

from pliant.control.usecases.jobs import progress_of
from pliant.engines.kube.pods.reports import PAUSE, Reports, _Job, report_of
from pliant.engines.kube.pods.session import output
from pliant.model.workload import AttemptId
from pliant.train.agent.link import Link

STATUS = {
    "state": "training",
    "step": 7,
    "steps_total": 9,
    "world": 2,
    "loss": 0.25,
    "step_ms_by_size": {2: 1.5},
}


def test_what_the_library_writes_is_what_is_read(tmp_path):
    link = Link("w/worker-0/1", tmp_path, "", "", file=tmp_path / "allocation.json")
    link.progress(STATUS)
    said = progress_of(report_of(json.loads((tmp_path / "report.json").read_text())))
    assert (said.state, said.step, said.steps, said.world) == ("training", 7, 9, 2)
    assert (said.loss, said.step_times) == ("0.25", ((2, 1500),))
    link.progress({**STATUS, "step": 8})
    assert json.loads((tmp_path / "report.json").read_text())["step"] == 8
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


class Says:
    """An engine in whose pods each command prints that; also its session."""

    def __init__(self, text: str) -> None:
        self._pieces = [text.encode()]

    def exec(self, *given: object, **options: object) -> "Says":
        return self

    def read(self, timeout: float) -> bytes | None:
        return self._pieces.pop() if self._pieces else b""

    def exit_code(self) -> int | None:
        return 0


class Talker:
    """A command that prints for ever."""

    def __init__(self) -> None:
        self.killed = False

    def read(self, timeout: float) -> bytes | None:
        return b"[" * 9000

    def exit_code(self) -> int | None:
        return 126 if self.killed else None

    def kill(self) -> None:
        self.killed = True


def test_a_command_without_an_end_is_cut_off():
    talker = Talker()
    with pytest.raises(ValueError, match="64 KiB"):
        output(talker)
    assert talker.killed


def test_a_report_that_is_too_deep_ends_nothing():
    """The thread that polls the pods survives."""
    job = _Job()
    Reports(Says("[" * 60_000), None)._ask(job, [AttemptId("w", "worker-0", 1)])
    assert (job.turn, job.pause) == (1, 2 * PAUSE)


def test_a_number_of_workers_is_no_longer_than_it_can_be():
    said = report_of({"stepMsBySize": {"2": 1, "9" * 5000: 1, "x": 1}})
    assert progress_of(said).step_times == ((2, 1000),)


def test_with_a_server_nothing_is_written(tmp_path):
    Link("w/worker-0/1", tmp_path, "http://127.0.0.1:1", "", file=tmp_path / "allocation.json").progress(
        STATUS
    )
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "said",
    [
        [],
        "training",
        {"step": -1},
        {"step": "7"},
        {"step": True},
        {"step": 10**30},
        {"loss": float("nan")},
        {"goodput": float("inf")},
        {"stepMsBySize": [1]},
        {"stepMsBySize": {str(size): 1 for size in range(65)}},
        {"stepMsBySize": {"2": None}},
    ],
)
def test_what_cannot_be_meant(said):
    with pytest.raises(ValueError, match=r"number|range|report|table"):
        report_of(said)
