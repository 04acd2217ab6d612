"""How ends are told: the words and codes of wait, run and cancel for every outcome."""

import time

import pytest

from pliant.cli.habits import _INSTEAD
from pliant.cli.workloads.history import status
from pliant.cli.workloads.outcomes import ending, summary
from tests.cli.fake import Answer, problem
from tests.cli.items import OUTCOME, workload


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "succeeded"),
        ({"phase": "Failed", "exitCode": 3}, "failed (exit code 3)"),
        ({"phase": "Failed", "exitCode": 137, "signal": 9}, "failed (SIGKILL)"),
        ({"phase": "Failed", "exitCode": 200, "signal": 72}, "failed (signal 72)"),
        ({"phase": "Failed", "exitCode": 137, "signal": 9, "outOfMemory": True}, "failed (out of memory)"),
        ({"phase": "Failed", "exitCode": 143, "cancelled": True}, "was cancelled"),
        ({"phase": "Completed", "exitCode": 143, "deleted": True}, "was deleted"),
    ],
)
def test_an_end_in_words(changed, said):
    assert ending(OUTCOME | changed) == said


def test_a_summary_has_the_time_and_the_gpus():
    assert summary("a", OUTCOME) == "a succeeded in 1m12s (0.02 GPU-hours)."
    failed = OUTCOME | {"phase": "Failed", "exitCode": 3, "gpuHours": 0.0}
    assert summary("a", failed) == "a failed after 1m12s: exit code 3."
    assert summary("a", failed | {"cancelled": True}) == "a was cancelled after 1m12s."


def test_the_highest_code_of_several_is_returned(run, fake):
    fake.workloads = [workload("a1"), workload("a2")]
    fake.answers["GET", "/api/v1/workloads/id-a2/outcome"] = Answer(
        body=OUTCOME | {"phase": "Failed", "exitCode": 7}
    )
    result = run("pliant wait a1 a2 -p team-a")
    assert (result.code, result.out) == (7, "a1 succeeded\na2 failed (exit code 7)\n")
    assert run("pliant wait a1 a2 -p team-a --any").code == 0


def test_a_job_of_which_no_record_is_left(run, fake):
    fake.workloads = [workload("a1")]
    fake.answers["GET", "/api/v1/workloads/id-a1/outcome"] = problem(
        404, "There is no workload.", "not-found"
    )
    assert run("pliant wait a1 -p team-a") == (143, "a1 was deleted\n", "")
    assert run("pliant wait a1 -p team-a --for deleted").code == 0


def test_cancel_says_what_it_found(run, fake):
    fake.workloads = [workload("a1"), workload("a2")]
    fake.answers["POST", "/api/v1/workloads/id-a2/cancel"] = Answer(body=OUTCOME)
    result = run("pliant cancel a1 a2 --now -p team-a")
    assert (result.code, result.out) == (0, "a1 is being cancelled.\na2 had already succeeded.\n")
    assert fake.last.query == [("now", "true")]


@pytest.mark.parametrize("word", _INSTEAD)
def test_words_of_other_tools_are_answered_with_a_command(run, word):
    result = run(f"pliant {word} thing")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Error: Pliant has no command '{word}'. Use `")


def test_help_by_words(run):
    assert run("pliant help training submit").out == run("pliant training submit --help").out
    assert run("pliant help frobnicate").code == 2


def test_get_and_describe_find_what_is_meant(run, fake):
    fake.workloads = [workload("a1"), workload("node-1")]
    assert run("pliant get jobs -p team-a").out == run("pliant list jobs -p team-a").out
    assert run("pliant get nodes").out == run("pliant list nodes").out
    assert run("pliant get projects").out == run("pliant list projects").out
    assert run("pliant describe a1 -p team-a").out == run("pliant describe job a1 -p team-a").out
    both = run("pliant describe node-1 -p team-a")
    assert (both.code, "`pliant describe node node-1`" in both.err) == (2, True), both.err
    fake.workloads.pop()
    assert run("pliant describe node-1 -p team-a").out == run("pliant describe node node-1").out


ENTRY = {
    "number": 42,
    "id": "id-a1",
    "name": "a1",
    "projectName": "team-a",
    "submittedBy": "ann",
    "submittedAt": "2026-01-01T06:00:00.000Z",
    "completedAt": None,
    "waitedSeconds": 12,
    "gpus": 2.0,
    "attempts": 1,
    "outcome": OUTCOME | {"runningSeconds": 3720, "gpuHours": 2.0667},
}


def test_history(run, fake, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    failed = OUTCOME | {"phase": "Failed", "exitCode": 137, "signal": 9, "outOfMemory": True, "gpuHours": 0.0}
    fake.answers["GET", "/api/v1/history"] = Answer(
        body={"entries": [ENTRY, ENTRY | {"number": 7, "name": "eval", "outcome": failed, "gpus": 1.0}]}
    )
    assert run("pliant history -p team-a --since 7d -n 5").out == (
        " #  NAME  STATUS     SUBMITTED     WAITED  ELAPSED  GPUS  GPU-HOURS  MAX RSS  EXIT     REASON\n"
        "42  a1    Succeeded  01 Jan 06:00     12s   1h2m0s  2.00       2.07    650Mi  0\n"
        " 7  eval  Failed     01 Jan 06:00     12s    1m12s  1.00       0.00    650Mi  SIGKILL  "
        "out of memory\n"
    )
    assert sorted(fake.last.query) == [("limit", "5"), ("projectName", "team-a"), ("sinceSeconds", "604800")]
    rows = run("pliant history -A --csv").out.splitlines()
    assert rows[0].startswith("number,id,name,") and "exitCode,signal" in rows[0]
    assert rows[1].startswith("42,id-a1,a1,team-a,ann,2026-01-01T06:00:00.000Z,,12,2.0,1,Completed,0,")
    assert ("projectName", "team-a") not in fake.last.query


def test_an_empty_history(run, fake):
    fake.answers["GET", "/api/v1/history"] = Answer(body={"entries": []})
    assert run("pliant history -p team-a") == (0, "", "No jobs in project team-a.\n")
    assert run("pliant history -p nowhere").code == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "Succeeded"),
        ({"phase": "Failed"}, "Failed"),
        ({"phase": "Failed", "exitCode": 143, "cancelled": True}, "Cancelled"),
        ({"phase": "Stopping", "exitCode": None, "cancelled": True}, "Stopping"),
        ({"phase": "Completed", "deleted": True}, "Succeeded"),
        ({"phase": "Deleting", "exitCode": 143, "deleted": True}, "Deleted"),
        ({"phase": "Stopped", "exitCode": None}, "Suspended"),
    ],
)
def test_the_status_in_the_history(changed, said):
    assert status(OUTCOME | changed) == said
