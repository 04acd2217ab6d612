"""A job's progress: in `describe`, and as a bar in `list -w`."""

import json

import pytest

from pliant.cli.output.progress import bar
from tests.cli.fake import Answer, Chunks
from tests.cli.items import workload

SAID = {
    "at": "2026-01-01T00:00:04.000Z",
    "state": "training",
    "step": 1930,
    "stepsTotal": 4690,
    "epoch": 4,
    "epochs": 10,
    "records": 494080,
    "skipped": 0,
    "world": 2,
    "goodput": 2210.52,
    "loss": 0.312345678,
    "stepMsBySize": {"2": 41.0, "10": 9.26, "1": 80.5},
}


@pytest.fixture(autouse=True)
def later(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1767225609.0)


def test_describe_says_how_far_it_is(fake, run):
    fake.workloads = [workload("a", progress=SAID), workload("plain")]
    text = run("pliant describe job a -p team-a").out
    section = text[text.index("Training:") : text.index("Pods:")].strip().splitlines()
    assert section == [
        "Training:",
        "STATE: training, reported 5s ago",
        "STEPS: 1930 of 4690 (41%)",
        "EPOCH: 5 of 10",
        "WORKERS: 2",
        "RECORDS: 494080",
        "LOSS: 0.312346",
        "GOODPUT: 2210.5 records/s",
        "STEP TIME: 1 worker 80.5 ms, 2 workers 41.0 ms, 10 workers 9.3 ms",
    ]
    assert "Training:" not in run("pliant describe job plain -p team-a").out


def test_so_does_the_second_edition(fake, run):
    fake.workloads = [workload("a", progress=SAID), workload("plain")]
    text = run("pliant training describe a -p team-a").out
    assert "Training:\n  State      training, reported 5s ago\n  Steps      1930 of 4690 (41%)\n" in text
    assert "Training:" not in run("pliant training describe plain -p team-a").out


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "[########------------]   41 %  1930/4690  loss 0.3123"),
        ({"step": 0, "loss": None}, "[--------------------]    0 %  0/4690"),
        ({"step": 4690}, "[####################]  100 %  4690/4690  loss 0.3123"),
        ({"step": 5000}, "[####################]  100 %  5000/4690  loss 0.3123"),
        ({"stepsTotal": 0}, "step 1930  loss 0.3123"),
    ],
)
def test_the_bar(changed, expected):
    assert bar(workload("a", progress=SAID | changed)) == expected
    assert bar(workload("a")) == ""


def test_a_watched_list_has_a_bar_where_somebody_reports(fake, run):
    fake.workloads = [workload("a", progress=SAID), workload("plain")]
    event = json.dumps(workload("a", progress=SAID | {"step": 2345}))
    changes = Chunks([f"id: 2\nevent: workload\ndata: {event}\n\n".encode()])
    once = iter([Answer(200, changes)])
    fake._stream = lambda request, path: next(once, Answer(503, {"message": "going down"}))
    lines = run("pliant list --watch -p team-a").out.splitlines()
    assert [line.partition("[")[2][:26] for line in lines if "[" in line] == [
        "########------------]   41",
        "##########----------]   50",
    ]
    assert "PROGRESS" not in run("pliant list -p team-a").out


def test_a_list_tells_how_many_workers_train(fake, run):
    fake.workloads = [
        workload("a", progress=SAID),
        workload("over", progress=SAID, runningPods=0),
        workload("plain"),
    ]
    lines = run("pliant list -p team-a -o wide").out.splitlines()
    at = lines[1].index("WORKERS")
    assert [line[at:].split("  ")[0].strip() for line in lines[1:]] == ["WORKERS", "2", "", ""]
    assert "WORKERS" not in run("pliant list -p team-a").out, "what scripts read keeps its columns"
