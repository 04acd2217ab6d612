"""Mistakes of users: a clear error with its exit code, and nothing changes."""

import json
import socket
from collections.abc import Iterator

import pytest

from examples.walkthrough import Done, Stage
from tests.e2e.witness import client, comparable, until

IMAGE = "-i gcr.io/run-ai-demo/quickstart"
SLEEP = "--command -- sleep infinity"


@pytest.fixture(scope="module")
def busy(shared: Stage) -> Stage:
    """One interactive job, `taken`, runs on one of the two GPUs."""
    typed(shared, f"runai submit taken -i ubuntu -g 1 --interactive {SLEEP}")
    until(lambda: status(shared, "taken") == "Running", "the first job to run")
    return shared


def typed(stage: Stage, command: str) -> Done:
    """Runs a command, which must succeed."""
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}"
    return done


def item(stage: Stage, name: str) -> dict:
    return next(
        entry for entry in json.loads(typed(stage, "runai list -o json").out) if entry["name"] == name
    )


def status(stage: Stage, name: str) -> str:
    return str(item(stage, name)["status"])


REFUSED = [
    # what is typed, exit code, words of the error
    (f"runai submit a {IMAGE} -g 1 -p nowhere", 3, ["nowhere", "does not exist", "team-a"]),
    (f"runai training submit a {IMAGE} -g 1 -p nowhere", 3, ["nowhere", "does not exist"]),
    ("runai list -p nowhere", 3, ["nowhere"]),
    ("runai config project nowhere", 3, ["nowhere", "list project"]),
    (f"runai submit taken {IMAGE} -g 1", 5, ["taken", "already exists", "Delete it first"]),
    (f"runai training submit taken {IMAGE} -g 1", 5, ["taken", "already exists", "Delete it first"]),
    ("runai submit a -g 1", 2, ["-i, --image must be set"]),
    ("runai submit a -i unheard/of -g 1", 2, ["unheard/of", "command"]),
    (f"runai submit Big {IMAGE}", 2, ["'Big'", "lower-case"]),
    (f"runai submit 1a {IMAGE}", 2, ["'1a'", "first a letter"]),
    (f"runai submit a_b {IMAGE}", 2, ["'a_b'"]),
    (f"runai submit {'a' * 64} {IMAGE}", 2, ["63"]),
    (f"runai submit a {IMAGE} -g -1", 2, ["-g -1"]),
    (f"runai submit a {IMAGE} -g 1.5", 2, ["1.5 GPUs", "whole"]),
    (f"runai submit a {IMAGE} -g nan", 2, ["-g nan", "number"]),
    (f"runai training submit a {IMAGE} -g 0.5", 2, ["-g 0.5", "--gpu-portion-request"]),
    (f"runai training submit a {IMAGE} --gpu-portion-request 1.5", 2, ["1.5", "up to 1"]),
    (f"runai submit a {IMAGE} --gpu-memory 50M", 2, ["50M", "100M"]),
    (f"runai training submit a {IMAGE} --gpu-memory-request 50M", 2, ["50M", "100M"]),
    (f"runai submit a {IMAGE} --gpu-memory 5G -g 1", 2, ["-g and --gpu-memory"]),
    (f"runai submit a {IMAGE} --gpu-memory 5Q", 2, ["5Q", "5Gi"]),
    (f"runai submit a {IMAGE} -g 1 --elastic --interactive", 2, ["--elastic", "training"]),
    (f"runai submit a {IMAGE} -g 0.5 --elastic", 2, ["--elastic", "fraction of a GPU"]),
    (f"runai submit a {IMAGE} --gpu-memory 5G --elastic", 2, ["--elastic", "fraction of a GPU"]),
    (f"runai submit a {IMAGE} --elastic", 2, ["elastic", "needs at least 1 GPU", "-g"]),
    (f"runai submit a {IMAGE} -g 1 --preemptible", 2, ["--preemptible", "--interactive"]),
    ("pliant project update team-a --quota 0", 5, ["team-a", "1"]),
    ("pliant project update team-a --quota -3", 2, ["-3"]),
    ("pliant project update team-a --limit 1", 2, ["limit"]),
    ("pliant project create team-a --quota 1", 5, ["team-a", "already exists"]),
    ("pliant project create Team --quota 1", 2, ["'Team'"]),
    ("pliant project delete team-a", 5, ["team-a", "taken", "Delete them first"]),
    ("pliant project delete default", 5, ["default"]),
    ("runai delete nobody", 3, ["nobody", "does not exist"]),
    ("runai suspend nobody", 3, ["nobody"]),
    ("runai logs nobody", 3, ["nobody"]),
    ("runai exec nobody ls", 3, ["nobody"]),
    ("runai describe job nobody", 3, ["nobody", "does not exist"]),
    ("runai workspace delete taken", 2, ["-y"]),
    (f"runai submit a {IMAGE} --node-pools nowhere", 3, ["nowhere"]),
    ("runai submit a -i ubuntu -e NOVALUE", 2, ["NOVALUE"]),
    ("runai smubit", 2, ["smubit", "submit"]),
    ("pliant down", 5, ["1 task", "--yes"]),
    ("pliant restore /nonexistent/backup", 3, ["/nonexistent/backup"]),
]


@pytest.mark.parametrize(("command", "code", "words"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused(busy: Stage, command: str, code: int, words: list[str]) -> None:
    before = comparable(busy)
    done = busy.run(command)
    assert done.code == code, done.said
    assert done.out == "" and "Traceback" not in done.err
    for word in words:
        assert word in done.err
    assert comparable(busy) == before


def test_more_gpus_than_any_node_has_is_accepted_and_said_at_once(busy: Stage) -> None:
    def said() -> bool:
        done = typed(busy, f"runai submit huge {IMAGE} -g 9")
        if "Never fits: it requests 9 GPUs, the largest eligible node has 2." in done.err:
            return True
        typed(busy, "runai delete huge")  # the answer waits only 20 ms for the plan, which came later
        return False

    until(said, "the answer to say it")
    huge = item(busy, "huge")
    assert (huge["status"], huge["allocatedResources"]["gpu"]) == ("Pending", 0)
    assert huge["reason"]["code"] == "never-fits"
    assert "[never-fits]" in typed(busy, "pliant why huge").out
    typed(busy, "runai delete huge")


def test_wrong_token(busy: Stage) -> None:
    before = comparable(busy)
    for command in ("runai list", f"runai submit a {IMAGE} -g 1", "pliant project update team-a --quota 5"):
        done = busy.run(f"PLIANT_TOKEN=wrong {command}")
        assert done.code == 4, done.said
        assert "token" in done.err.lower() and done.out == ""
    assert comparable(busy) == before


def test_a_second_server_over_the_same_folder_is_refused(busy: Stage) -> None:
    before, record = comparable(busy), (busy.state / "server.json").read_text()
    done = busy.run("pliant up --simulate 8x8")
    assert done.code == 5, done.said
    for word in ("already uses", str(busy.state), "http://127.0.0.1:", "--take-over"):
        assert word in done.err
    assert comparable(busy) == before and (busy.state / "server.json").read_text() == record
    assert len(json.loads(typed(busy, "runai node list -o json").out)) == 1


def test_a_command_that_does_not_exist_is_refused(busy: Stage) -> None:
    done = busy.run("runai submit ghost -i ubuntu -g 1 --command -- no-such-command --flag")
    assert done.code == 2 and "command 'no-such-command' not found in the job's PATH." in done.err


def test_a_command_that_a_shell_does_not_find_fails_its_workload_and_nothing_else(busy: Stage) -> None:
    typed(busy, "runai submit ghost -i ubuntu -g 1 --command -- sh -c 'no-such-command --flag'")
    until(lambda: status(busy, "ghost") == "Failed", "the workload to fail")
    ghost = item(busy, "ghost")
    assert "exit code 127; the command was not found, so it is not retried" in ghost["phaseMessage"]
    assert "no-such-command" in typed(busy, "runai describe job ghost").out
    assert "exit code 127" in typed(busy, "pliant why ghost").out
    assert ghost["allocatedResources"]["gpu"] == 0
    assert status(busy, "taken") == "Running"
    typed(busy, "runai delete ghost")


def test_a_command_that_fails_is_tried_again_after_a_pause_and_says_so(busy: Stage) -> None:
    typed(busy, "runai submit again -i ubuntu -g 1 --command -- false")
    until(
        lambda: (item(busy, "again").get("reason") or {}).get("code") == "back-off",
        "a pause before the retry",
    )
    assert "exit code 1" in typed(busy, "pliant why again").out
    typed(busy, "runai delete again")


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_port_in_use(stage: Stage, occupied: int) -> None:
    done = stage.run(f"pliant up --simulate 1x2 --port {occupied}")
    assert done.code == 5, done.said
    assert f"Port {occupied}" in done.err and "in use" in done.err and "--port" in done.err
    assert stage.processes() == {}
    assert not (stage.state / "server.json").exists()


@pytest.mark.parametrize(
    "command", ["runai list", "pliant status", "pliant queue", f"runai submit a {IMAGE} -g 1"]
)
def test_no_server(stage: Stage, command: str) -> None:
    done = stage.run(command)
    assert done.code == 8, done.said
    assert (
        "No Pliant server runs here" in done.err and "pliant up" in done.err and str(stage.state) in done.err
    )
    assert not stage.state.exists()


def test_a_server_that_is_gone(stage: Stage) -> None:
    typed(stage, "pliant up --simulate 1x2")
    typed(stage, "pliant down --yes")
    done = stage.run("runai list")
    assert done.code == 8 and "pliant up" in done.err
    done = stage.run("runai list --server http://127.0.0.1:9")
    assert done.code == 8 and "127.0.0.1:9" in done.err


def test_a_state_folder_of_a_newer_release_is_left_alone(stage: Stage) -> None:
    typed(stage, "pliant up --simulate 1x2")
    typed(stage, "pliant down --yes")
    (stage.state / "VERSION").write_text("99\n")

    def content() -> dict[str, bytes]:
        files = (path for path in stage.state.rglob("*") if path.is_file() and path.name != "server.log")
        return {str(path): path.read_bytes() for path in files}

    before = content()
    done = stage.run("pliant up")
    assert done.code == 1, done.said
    for word in ("99", str(stage.state), "newer release"):
        assert word in done.err
    assert content() == before
    assert stage.processes() == {}


@pytest.mark.parametrize("spec", ["2", "0x2", "1x-1", "1x2:16Q", "1x2:16G:colour=red", "x"])
def test_simulated_machines_that_make_no_sense(stage: Stage, spec: str) -> None:
    done = stage.run(f"pliant up --simulate {spec}")
    assert done.code in (1, 2), done.said
    assert spec in done.err and "NODESxGPUS" in done.err
    assert stage.processes() == {}


def test_nothing_of_the_refused_was_accepted(busy: Stage) -> None:
    with client(busy) as api:  # workloads accepted and deleted earlier may still be ending
        until(lambda: [workload["name"] for workload in api.workloads()] == ["taken"], "nothing else")
