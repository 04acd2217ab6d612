"""Messages and exit codes of wait, run and cancel for every outcome."""

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
    result = run(f"pliant {word.replace('*', 'any')} thing")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: ") and ". Use `p" in result.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (
            "sbatch -J Fit_1 -G 2 -c 4 --mem-per-cpu=2G -t 1-02:00 run.sh 7",
            "submit fit-1 -g 2 --cpu 4 --memory 8Gi --max-runtime 1d2h -- bash run.sh 7",
        ),
        ("sbatch -o o --mail-type=END x.sh", "submit x -- bash x.sh`; `pliant logs` prints its output"),
        ("srun -N2 --ntasks-per-node 2 -G1 ./a b", "--no-master --workers 4 -g 1 --attach -- ./a b"),
        ("srun --jobid=7 --pty bash", "exec -it 7 -- bash"),
        ("salloc -t 5", "run --stdin -t --max-runtime 5m -- bash"),
        ("squeue -u ann -t R -l", "list -u ann --status Running -o wide"),
        ("scancel -s USR1 7 8_2", "cancel -s USR1 7 8_2"),
        ("sacct -j 7 -P", "history 7 --csv"),
        ("scontrol update nodename=n1 state=drain", "node drain n1"),
    ],
)
def test_a_line_of_slurm_is_answered_with_the_whole_command(run, typed, meant):
    result = run(f"pliant {typed}")
    assert result.code == 2 and f"{meant}" in result.err


def test_options_of_a_batch_script_are_read(run, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --gres=gpu:2  # two\n#SBATCH -t 30\necho\n")
    said = run(f"pliant sbatch -t 60 {script}").err
    assert f"`pliant submit job -g 2 --max-runtime 60m -- bash {script}`" in said


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run -g 1 python train.py", "Write the command after `--`: `pliant run -g 1 -- python train.py`"),
        ("submit a --gpus=2 -- true", "No such option '--gpus'. Use -g 2."),
        ("training submit a --mem 2G -- true", "Use --cpu-memory-request 2G."),
        ("submit a -o out.txt -- true", "`pliant logs NAME > out.txt`"),
        ("training ls", "Did you mean `pliant training list`?"),
        ("nodes", "Did you mean `pliant node list`?"),
        ("restart a1", "Got unexpected extra argument (a1). Use `pliant suspend a1`"),
        ("run --attach -- true", "`run` always waits"),
    ],
)
def test_slips_are_answered_with_what_to_type(run, typed, said):
    result = run(f"pliant {typed}")
    assert result.code in (2, 125) and said in result.err


def test_a_kind_before_a_name_deletes_nothing(run, fake):
    """`delete training a1` does not name two jobs."""
    fake.workloads = [workload("a1")]
    result = run("pliant delete training a1 -p team-a")
    assert (result.code, "`pliant training delete a1`" in result.err) == (2, True)
    assert "DELETE" not in {call.method for call in fake.requests}


def test_one_pod_is_one_pod(run, fake):
    fake.workloads = [workload("a1"), workload("a2")]
    names = [line.split()[0] for line in run("pliant get pods -p team-a").out.splitlines()[1:]]
    assert len(names) == 2
    assert run(f"pliant get pod {names[1]} -p team-a").out.splitlines()[1].startswith(names[1])
    assert run("pliant get pod none -p team-a").code == 3


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


def test_a_history_of_attempts(run, fake, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    first = {
        "task": "task-0",
        "attempt": 1,
        "node": "sim-0",
        "startedAt": "2026-01-01T06:00:00.000Z",
        "endedAt": "2026-01-01T06:00:12.000Z",
        "gpus": 1.0,
        "gpuHours": 0.0033,
        "exitCode": 3,
        "signal": None,
        "stopped": False,
        "outOfMemory": False,
        "maxRssBytes": 650 * 2**20,
        "message": "",
    }
    second = first | {"attempt": 2, "exitCode": 143, "signal": 15, "stopped": True}
    entry = ENTRY | {"tries": [first, second]}
    fake.answers["GET", "/api/v1/history"] = Answer(body={"entries": [entry]})
    assert run("pliant history --attempts -A").out == (
        " #  NAME  TASK    ATTEMPT  NODE   STARTED       ELAPSED  GPUS  GPU-HOURS  MAX RSS  EXIT     REASON\n"
        "42  a1    task-0  1        sim-0  01 Jan 06:00      12s  1.00       0.00    650Mi  3\n"
        "42  a1    task-0  2        sim-0  01 Jan 06:00      12s  1.00       0.00    650Mi  SIGTERM  "
        "stopped\n"
    )
    assert ("attempts", "true") in fake.last.query
    rows = run("pliant history --attempts --csv").out.splitlines()
    assert len(rows) == 3 and ",task-0,1,sim-0," in rows[1]


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
