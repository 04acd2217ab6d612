"""What jobs in pods say of themselves is not trusted."""

import json

import pytest

from pliant.control.usecases.jobs import progress_of
from pliant.engines.kube.reports import report_of
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
