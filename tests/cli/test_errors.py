"""Errors are one or two lines with the right exit code, and change nothing."""

import io
import json
import subprocess
import sys

import pytest

from tests.cli.fake import Answer, problem
from tests.cli.items import pending, workload

IMAGE = "-i ubuntu"

USAGE = [
    (f"submit train1 {IMAGE} -g -1", "-g -1: must not be negative."),
    (f"submit train1 {IMAGE} -g one", "-g one: not a number such as 1, 2 or 0.5."),
    (
        f"submit train1 {IMAGE} --gpu-memory 9ki",
        "--gpu-memory 9ki: not an amount of memory such as 500M, 5G or 5Gi.",
    ),
    (
        f"submit train1 {IMAGE} --gpu-memory much",
        "--gpu-memory much: not an amount of memory such as 500M, 5G or 5Gi.",
    ),
    (
        f"submit train1 {IMAGE} --gpu-memory 5G -g 1",
        "-g and --gpu-memory exclude each other: GPUs, or memory of one GPU.",
    ),
    (
        f"submit train1 {IMAGE} -g 1 --preemptible",
        "--preemptible needs --interactive: a training is always preemptible.",
    ),
    (f"submit train1 {IMAGE} --name train2", "The name is given twice: train1 and --name train2."),
    (f"submit train1 {IMAGE} -e NOVALUE", "-e NOVALUE: NOVALUE is not set in this shell."),
    (f"submit train1 {IMAGE} -t", "-t, --tty needs --stdin."),
    (
        f"submit train1 {IMAGE} --ttl-after-finish soon",
        "--ttl-after-finish soon: not a time such as 30s, 5m or 1h30m.",
    ),
    (f"submit train1 {IMAGE} --command --", "--command: no command follows the `--`."),
    (f"submit train1 {IMAGE} --args x -- y", "--args and `--` exclude each other."),
    (f"submit train1 {IMAGE} --command ''", "--command: it is empty; write the command after `--`."),
    (f"submit train1 {IMAGE} --command \\'sleep", "No closing quotation"),
    (f"submit train1 {IMAGE} --backoff-limit -1", "Invalid value for '--backoff-limit'"),
    (f"submit train1 {IMAGE} --image-pull-policy Sometimes", "Invalid value for '--image-pull-policy'"),
    (
        f"training submit t {IMAGE} -g 0.5",
        "-g 0.5: whole GPUs only; for a part of one use --gpu-portion-request.",
    ),
    (
        f"training submit t {IMAGE} --gpu-portion-limit 0.2",
        "--gpu-portion-limit needs --gpu-portion-request.",
    ),
    (
        f"training submit t {IMAGE} --gpu-request-type memory",
        "--gpu-request-type memory needs --gpu-memory-request.",
    ),
    (
        f"training submit t {IMAGE} --gpu-portion-request 0.5 --gpu-memory-request 5G",
        "--gpu-portion-request and --gpu-memory-request exclude each other.",
    ),
    (f"training submit t {IMAGE} -c", "-c, --command: write the command after `--`"),
    (f"training submit t {IMAGE} --type workspace", "--type workspace contradicts `training submit`."),
    ("training delete t", "delete needs -y when there is no terminal to confirm on."),
    ("delete", "Specify job names or --all."),
    ("suspend a1 --all", "Specify job names or --all."),
    ("logs a1 --since 5s --since-time 2026-01-01T00:00:00Z", "--since and --since-time exclude each other."),
    ("logs a1 --since-time yesterday", "--since-time yesterday: not a time such as 2026-01-31T12:00:00Z."),
    ("list nodes -A", "--watch and --all-projects are for lists of jobs."),
    ("list things", "'things' cannot be listed. Use one of jobs, projects, nodes, clusters."),
    ("project create a --quota two", "--quota two: not a number such as 2 or 0.5."),
    ("project create a --quota 2 --limit 1", "--limit 1 is below --quota 2."),
    (
        "project create a --resources nodepool=x,gpus=1",
        "'gpus=1' is invalid; use the fields nodepool, gpu-deserved",
    ),
    (
        "project create a --quota 1 --resources nodepool=default,gpu-deserved=1",
        "both set pool `default`; use one.",
    ),
    ("project create a --interactive-limit 0.2s", "--interactive-limit 0.2s: at least one second."),
    (f"submit train1 {IMAGE} --max-runtime ²", "--max-runtime ²: not a time such as 30s, 5m or 1h30m."),
    (f"submit train1 {IMAGE} --max-runtime {'9' * 400}", "99...: the number is too large."),
    (f"submit train1 {IMAGE} --memory {'9' * 400}G", "99...: the number is too large."),
    (f"submit train1 {IMAGE} --cpu {'9' * 400}m", "99...: the number is too large."),
    (f"submit train1 {IMAGE} --cpu ²m", "--cpu ²m: not a number such as 0.5 or 500m."),
    ("project create a --quota " + "9" * 400, "99...: the number is too large."),
    ("what-if --quota a=inf", "--quota inf: not a number such as 4."),
    ("what-if --priority a=nan", "--priority nan: not a number such as 4."),
    ("project update a", "Specify what to change, for example --quota 3."),
    ("nodepool create h100", "Specify --label K=V, the label of the pool's nodes."),
    ("nodepool create h100 --label gpu", "--label gpu: expected NAME=VALUE."),
    ("training", ""),
    ("frobnicate", "Unknown command 'frobnicate'."),
    ("lst", "Unknown command 'lst'. Did you mean `pliant list`?"),
    ("submit --frobnicate", "No such option"),
]


@pytest.mark.parametrize(("line", "message"), [case for case in USAGE if case[1]], ids=lambda text: text[:60])
def test_wrong_input_is_said_before_anything_is_asked_of_the_server(line, message, run, fake):
    result = run(f"pliant {line}")
    assert result.out == ""
    assert message in result.err
    assert result.err.startswith("Error: ")
    assert len(result.err.splitlines()) <= 2
    assert result.code == 2
    assert fake.requests == []


def test_advice_names_the_help_of_the_command(run, fake):
    assert run("runai submit -g one").err == (
        "Error: -g one: not a number such as 1, 2 or 0.5.\n`runai submit --help` shows how.\n"
    )


@pytest.mark.parametrize(
    "line",
    ["submit t -g 0", "training submit t", "training submit ' '", "submit-mpi t", "submit t --dry-run"],
)
def test_what_the_server_refuses_is_said_in_its_words(line, run, fake):
    refusal = problem(400, "-i, --image must be set.", "bad-request", "Name the image to run.")
    for path in ("trainings", "distributed"):
        fake.answers["POST", f"/api/v1/workloads/{path}"] = refusal
    assert run(f"pliant {line} -p team-a") == (
        2,
        "",
        "Error: -i, --image must be set.\nName the image to run.\n",
    )


def test_an_unknown_project_is_named_with_those_that_there_are(run, fake):
    for line in ("list -p nobody", "submit t -i ubuntu -p nobody", "delete x -p nobody", "logs x -p nobody"):
        result = run(f"pliant {line}")
        assert result == (
            3,
            "",
            "Error: Project nobody does not exist.\nThere are: default, team-a, team-b.\n",
        ), line
    assert run("pliant project set nobody") == (
        3,
        "",
        "Error: Project nobody does not exist.\n`pliant list project` shows the projects.\n",
    )


def test_without_a_project_and_without_a_default_one_it_says_how_to_choose(run, fake):
    fake.projects = fake.projects[1:]
    for line in ("list", "submit t -i ubuntu"):
        assert run(f"runai {line}") == (
            2,
            "",
            "Error: No project is set.\n"
            "Choose one with `runai project set NAME`. There are: team-a, team-b.\n",
        )


def test_the_default_project_serves_until_another_is_set(run, fake):
    fake.workloads = [workload("a1", projectName="default")]
    assert "Showing jobs for project default" in run("pliant list").out


def test_an_existing_name(run, fake):
    fake.workloads = [workload("a1")]
    assert run("pliant submit a1 -i ubuntu -p team-a") == (
        5,
        "",
        "Error: A workload named a1 exists in project team-a.\n"
        "Choose another name, or delete it first: `pliant delete a1 -p team-a`.\n",
    )


def test_more_gpus_than_any_node_has_is_accepted_and_said_at_once(run, fake):
    fake.notices = ["No node can ever hold it: 9 GPUs are asked for, the largest node has 2."]
    result = run("pliant submit big -i ubuntu -g 9 -p team-a")
    assert result.code == 0
    assert result.out.startswith("The job 'big' has been submitted successfully\n")
    assert result.err == "Note: No node can ever hold it: 9 GPUs are asked for, the largest node has 2.\n"
    assert run("pliant submit big2 -i ubuntu -g 9 -p team-a --quiet").err == ""


def test_quota_refusals_have_their_own_code(run, fake):
    message = "Quota 0 is below the 1.00 GPUs that non-preemptible workloads use."
    fake.answers["PATCH", "/api/v1/org-unit/projects/team-a"] = problem(403, message, "over-quota")
    assert run("pliant project update team-a --quota 0") == (6, "", f"Error: {message}\n")


def test_a_project_with_workloads_is_not_deleted(run, fake):
    fake.answers["DELETE", "/api/v1/org-unit/projects/team-a"] = problem(
        409, "Project team-a has 2 workloads.", "conflict", "Delete them first."
    )
    assert run("pliant project delete team-a") == (
        5,
        "",
        "Error: Project team-a has 2 workloads.\nDelete them first.\n",
    )


def test_what_is_not_there(run, fake):
    for line in ("logs", "describe job", "exec", "why", "bash", "attach"):
        result = run(f"pliant {line} ghost {'ls' if line == 'exec' else ''} -p team-a")
        if line == "exec":
            result = run("pliant exec -p team-a ghost ls")
        assert result.code == (125 if line == "attach" else 3), "attach returns the job's code, or 125"
        assert result.err.startswith("Error: Job ghost does not exist in project team-a.\n")
    assert run("pliant describe node ghost").code == 3
    assert run("pliant nodepool update ghost --min-runtime 1m").code == 3
    assert run("pliant cluster set ghost").err.startswith("Error: Cluster ghost does not exist\n")


def test_deleting_goes_on_after_a_name_that_is_not_there(run, fake):
    fake.workloads = [workload("a1"), workload("a2")]
    fake.answers["DELETE", "/api/v1/workloads/id-a1"] = problem(500, "disk full", "internal")
    result = run("pliant delete ghost a1 a2 -p team-a")
    assert result.out == "Job a2 deleted successfully.\n"
    assert result.err == (
        "Job ghost does not exist in project team-a. "
        "If the job exists in a different project, use -p <project-name>.\n"
        "Failed to delete job a1: disk full\n"
    )
    assert result.code == 3


def test_what_is_on_its_way_out_is_not_deleted_again(run, fake):
    fake.workloads = [workload("a1", desiredPhase="Deleted", status="Terminating")]
    assert run("pliant delete a1 -p team-a").code == 3


def test_suspending_and_resuming(run, fake):
    fake.workloads = [workload("a1"), workload("w1", type="Workspace")]
    assert run("pliant suspend a1 w1 ghost -p team-a") == (
        3,
        "Job a1 suspended successfully.\nJob w1 suspended successfully.\n",
        "Job ghost not found\n",
    )
    assert run("pliant workspace resume w1 -p team-a").out == "Workspace w1 resumed successfully.\n"
    assert [request.path for request in fake.requests if request.method == "POST"] == [
        "/api/v1/workloads/trainings/id-a1/suspend",
        "/api/v1/workloads/workspaces/id-w1/suspend",
        "/api/v1/workloads/workspaces/id-w1/resume",
    ]


def test_a_wrong_token(run, fake, monkeypatch):
    monkeypatch.setenv("PLIANT_TOKEN", "wrong")
    assert run("pliant list") == (4, "", "Error: The token is missing or wrong.\n")


def test_no_server(run, monkeypatch, tmp_path):
    assert run("pliant list") == (
        8,
        "",
        "Error: No Pliant server runs here.\n"
        f"Start one with `pliant up` (state folder {tmp_path}/state/pliant).\n",
    )
    monkeypatch.setenv("PLIANT_SERVER", "127.0.0.1:1")
    assert run("pliant list") == (
        8,
        "",
        "Error: No server answers at http://127.0.0.1:1 (connection refused).\n"
        "Look with `pliant status`; start it with `pliant up`.\n",
    )
    assert run("pliant --server ftp://x list").code == 2


def test_exec_in_what_does_not_run_says_why_it_waits(run, fake):
    fake.workloads = [pending("a1")]
    assert run("pliant exec -p team-a a1 ls") == (
        5,
        "",
        "Error: a1 is not running: its status is Pending.\n1 GPU is free, 2 are needed\n",
    )


def test_errors_without_a_message_still_say_what_was_asked(run, fake):
    fake.answers["GET", "/api/v1/queue"] = Answer(500, b"<html>oops")
    assert run("pliant queue").err == "Error: <html>oops\n"
    fake.answers["GET", "/api/v1/queue"] = Answer(502)
    assert run("pliant queue") == (1, "", "Error: The server answered 502 to GET /api/v1/queue\n")


def test_an_answer_of_another_program_is_no_empty_list(run, fake):
    fake.answers["GET", "/api/v1/workloads"] = Answer(200, b"<html>Log in to the proxy</html>")
    result = run("pliant list -A")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: The answer to GET /api/v1/workloads is not JSON")


def test_a_word_that_is_not_utf_8_is_named(run, fake):
    result = run("pliant list -p \udcff")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: 'projectName==\\udcff' is not UTF-8 text.\n")


def test_a_number_of_any_length_is_the_number_of_no_job(run, fake):
    fake.workloads = [workload("a1")]
    assert run(f"pliant why {'9' * 5000} -p team-a").code == 3


def test_a_question_that_nobody_answers(run, fake, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr("click.termui.visible_prompt_func", input)
    result = run(f"pliant login user --server {fake.url}")
    assert result.code == 2
    assert "Standard input ended before a question was answered." in result.err


@pytest.mark.parametrize(
    ("line", "code"),
    [("list -A >&-", 0), ("list -p nobody 2>&-", 3), ("apply -f - <&-", 2), ("list <&- >&- 2>&-", 0)],
)
def test_closed_standard_streams_are_empty_ones(fake, line, code):
    command = f"{sys.executable} -m pliant.cli {line}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_a_terminal_that_lacks_a_character_gets_its_number(fake, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    fake.workloads = [workload("日1")]
    line = [sys.executable, "-m", "pliant.cli", "list", "-A", "-o", "name"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\u65e51\n", "")


def test_a_broken_config_file_is_named(run, fake, tmp_path):
    (tmp_path / "config.json").write_text("{")
    result = run("pliant list")
    assert result.code == 1
    assert result.err.startswith(f"Error: Cannot read {tmp_path}/config.json: ")
    assert result.err.endswith("Correct the file or remove it.\n")


def test_a_reader_that_goes_away_is_no_error(fake):
    fake.workloads = [workload(f"w{index}") for index in range(2000)]
    line = f"{sys.executable} -m pliant.cli list -A -o json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


def test_a_full_disk_is_said(fake):
    fake.workloads = [workload("a1")]
    line = f"{sys.executable} -m pliant.cli list -A > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_is_no_error(run):
    for line in ("pliant", "pliant -h", "pliant training", "pliant submit --help", "pliant describe"):
        result = run(line)
        assert result.code == 0, line
        assert result.out.startswith("Usage: pliant")
        assert result.err == ""


def test_every_command_has_help_and_loads(run):
    from pliant.cli.commands import cli
    from pliant.cli.lazy import LazyGroup

    def check(group, words):
        for name in group.where:
            command = group.get_command(None, name)
            result = run(f"pliant {' '.join([*words, name])} --help")
            assert result.code == 0
            assert command.help, name
            if isinstance(command, LazyGroup) and name != "standard":
                check(command, [*words, name])

    check(cli, [])


def test_dry_run_tells_the_verdict_and_submits_nothing(run, fake):
    assert run("pliant submit a1 -i ubuntu -g 2 -p team-a --dry-run") == (
        0,
        "Dry run: a1 would be pending. 2 GPUs are in use\n",
        "",
    )
    assert ("dryRun", "true") in fake.last.query
    verdict = json.loads(run("pliant submit a1 -i ubuntu -g 2 -p team-a --dry-run -o json").out)
    assert verdict["verdict"] == "waits"


@pytest.mark.parametrize(
    ("gpus", "numbers", "said"),
    [
        (0.5, {"allocated": 500, "quota": 1000}, "(0.5 GPU, within quota)"),
        (2.0, {"allocated": 3000, "quota": 2000}, "(2 GPUs, 1 GPU over quota)"),
        (2.0, {"allocated": 3000, "quota": -1}, "(2 GPUs, within quota)"),
        (0.0, {"allocated": 0, "quota": 0}, "(within quota)"),
        (0.0, {"allocated": 3000, "quota": 2000}, ""),  # the project is over it, this job needs none
    ],
)
def test_dry_run_tells_where_it_would_start_by_numbers(run, fake, gpus, numbers, said):
    place = {"pod": "h-main-0", "node": "sim-0", "gpu": gpus, "gpus": []}
    verdict = {
        "verdict": "starts",
        "reason": {"code": "placed", "message": "in other words", "numbers": numbers, "names": []},
        "placements": [place],
        "disrupted": [{"verb": "shrink", "name": "e1"}, {"verb": "evict", "name": "b1"}],
    }
    fake.answers["POST", "/api/v1/workloads/trainings"] = Answer(body=verdict)
    assert run("pliant submit h -i ubuntu -g 1 -p team-a --dry-run").out.splitlines() == [
        f"Dry run: h would start now on sim-0 {said}".rstrip() + ".",
        "It would shrink e1.",
        "It would preempt b1.",
    ]
