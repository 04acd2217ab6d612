"""On a terminal no line of a table is wider than the terminal; in a pipe every column is printed."""

from typing import Any

import pytest

from tests.cli.fake import Answer
from tests.cli.items import OUTCOME, node, pending, workload

NAME = "a-training-run-with-quite-a-long-name-that-says-a-lot"
REASON = "Needs 2 GPUs on one node; 3 GPUs are free on 2 eligible nodes, at most 1 on a single node."


@pytest.fixture
def crowd(fake, run, monkeypatch):
    """20 workloads and 3 nodes with long names."""
    nodes = [f"gpu-node-{at}.cluster.example.org" for at in range(3)]
    fake.workloads = [
        make(f"{NAME}-{at}", node=nodes[0], nodes=nodes, urls=["http://localhost:20417"], status=status)
        for at in range(10)
        for make, status in ((workload, "Running"), (pending, "Pending"))
    ]
    fake.nodes = [node(name, 12.0, 12.0) for name in nodes]
    entry = {"name": NAME, "project": "team-a", "gpus": 2.0, "since": "2026-01-01T00:00:00Z"}
    reason = {"code": "no-capacity", "message": REASON, "numbers": {}}
    queue = [{**entry, "position": at, "reason": reason} for at in range(1, 21)]
    fake.answers["GET", "/api/v1/queue"] = Answer(body={"entries": queue})
    past: dict[str, Any] = {
        "number": 421, "id": "x", "name": NAME, "projectName": "team-a", "submittedBy": "yaron",
        "attempts": 3,
        "submittedAt": "2026-01-01T00:00:00Z", "waitedSeconds": 3725, "gpus": 12.0,
        "outcome": OUTCOME | {"phase": "Failed", "exitCode": 3, "message": REASON, "runningSeconds": 372500},
    }  # fmt: skip
    fake.answers["GET", "/api/v1/history"] = Answer(body={"entries": [past] * 20})
    run("pliant project set team-a")

    def on(columns: int | None) -> None:
        monkeypatch.setattr("pliant.cli.output.fit.room", lambda: columns)

    return on


LINES = ["list", "list -A", "training list", "queue", "why --all", "history", "top job", "top node"]


@pytest.mark.parametrize("columns", [120, 100, 80, 60])
@pytest.mark.parametrize("line", LINES)
def test_no_line_wraps(crowd, run, line, columns):
    crowd(columns)
    done = run(f"pliant {line}")
    assert done.code == 0
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= columns, done.out
    assert len(lines) >= 4
    crowd(None)
    whole = run(f"pliant {line}")
    assert max(map(len, whole.out.splitlines())) > 80
    assert whole.err == ""


@pytest.mark.parametrize("line", LINES)
def test_what_is_hidden_is_said_and_wide_shows_it(crowd, run, line):
    crowd(60)
    narrow = run(f"pliant {line}")
    assert "hidden; use -o wide." in narrow.err or "…" in narrow.out
    if "why" not in line:
        wide = run(f"pliant {line} -o wide")
        assert (wide.err, "…" in wide.out) == ("", False)
    assert "…" not in run(f"runai {line}").out, "the older name keeps its tables"


def test_numbers_are_never_cut(crowd, run):
    crowd(60)
    lines = run("pliant list").out.splitlines()
    assert lines[1].split()[:2] == ["NAME", "STATUS"]
    assert lines[1].endswith("GPUS (REQ.)")
    assert all(line.endswith(("0.00 (1.00)", "1.00 (1.00)")) for line in lines[2:])
    assert all("…" in line for line in lines[2:])


def test_chosen_columns_stay(crowd, run):
    crowd(60)
    header = run("pliant list --columns name,age,image,user").out.splitlines()[1]
    assert header.split() == ["NAME", "AGE", "IMAGE", "USER"]


def test_a_table_that_fits_keeps_its_headings(fake, run, monkeypatch):
    fake.workloads = [workload("a1", projectName="default")]
    pipe = run("pliant list")
    monkeypatch.setattr("pliant.cli.output.fit.room", lambda: 200)
    assert run("pliant list") == pipe


def test_an_empty_list_is_a_sentence_where_a_person_reads(fake, run, monkeypatch):
    run("pliant project set team-a")
    assert run("pliant list").out.startswith("Showing jobs for project team-a\nNAME ")
    monkeypatch.setattr("pliant.cli.workloads.listing._on_a_terminal", lambda session: True)
    assert run("pliant list") == (0, "", "No jobs in project team-a.\n")
    assert run("pliant list -A").err == "No jobs in any project.\n"
    assert run("pliant workspace list").err == "No workspaces in project team-a.\n"
    assert run("pliant list -o json").out == "[]\n"
    assert run("pliant cancel --all").err == "No job of project team-a to cancel.\n"
