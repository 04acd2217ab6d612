"""quickstart-distributed: the quickstart's losses, for any number of ranks and any rank that leaves."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

DISTRIBUTED = [sys.executable, "-m", "pliant.engines.local.images.distributed"]
QUICKSTART = [sys.executable, "-m", "pliant.engines.local.images.quickstart"]
STEPS = {"QUICKSTART_STEPS": "12", "QUICKSTART_STEP_SECONDS": "0.01"}


@pytest.fixture
def port() -> Iterator[str]:
    """A port held by a socket that does not listen: a server may bind it, and no one gets it by chance."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield str(held.getsockname()[1])


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(
    processes: list[subprocess.Popen[str]], command: Sequence[str], **env: str
) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI", "PLIANT"))}
    process = subprocess.Popen(
        command, env=own | STEPS | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    processes.append(process)
    return process


def losses(text: str) -> list[str]:
    return re.findall(r"^step=\d+ loss=[\d.]+ accuracy=[\d.]+", text, re.MULTILINE)


@pytest.fixture(scope="module")
def expected() -> list[str]:
    done = subprocess.run(QUICKSTART, env=os.environ | STEPS, capture_output=True, text=True, check=True)
    found = losses(done.stdout)
    assert len(found) == 12
    return found


def pytorch(
    processes: list[subprocess.Popen[str]], port: str, ranks: int, **env: str
) -> list[subprocess.Popen[str]]:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    return [start(processes, DISTRIBUTED, RANK=str(rank), **shared, **env) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_of_a_pytorch_job(started, expected, port, ranks):
    leader, *_ = pytorch(started, port, ranks)
    text = leader.communicate(timeout=240)[0]
    assert leader.returncode == 0, text
    assert losses(text) == expected
    assert text.startswith(f"quickstart-distributed: {ranks} ranks; starting at step 0\n")


def test_a_rank_that_goes_changes_no_loss(started, expected, port):
    leader, one, _ = pytorch(started, port, 3, QUICKSTART_STEP_SECONDS="0.5")
    assert leader.stdout is not None
    begun = leader.stdout.readline() + leader.stdout.readline()
    one.kill()
    text = begun + leader.communicate(timeout=240)[0]
    assert losses(text) == expected
    assert "ranks=3" in text and "ranks=2" in text


def test_a_stop_and_another_start_go_on_where_it_was(started, expected, port, tmp_path: Path):
    folder = {"PLIANT_CHECKPOINT_DIR": str(tmp_path)}
    leader, _ = pytorch(started, port, 2, QUICKSTART_STEP_SECONDS="1", **folder)
    assert leader.stdout is not None
    begun = [leader.stdout.readline() for _ in range(3)]
    leader.send_signal(signal.SIGTERM)
    rest = leader.communicate(timeout=240)[0]
    assert leader.returncode == 0 and "stopped before step" in rest
    first = losses("".join(begun) + rest)
    again, _ = pytorch(started, port, 2, **folder)
    assert first + losses(again.communicate(timeout=240)[0]) == expected


def test_an_mpi_launcher_starts_ranks_in_the_workers(started, expected, tmp_path: Path):
    agent = tmp_path / "rsh"
    agent.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/hosts\nshift\nexec "$@"\n')
    agent.chmod(0o700)
    (tmp_path / "hostfile").write_text("d-worker-0 slots=1\nd-worker-1 slots=2\n")
    told = {
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
    }
    launcher = start(started, DISTRIBUTED, **told)
    text = launcher.communicate(timeout=240)[0]
    assert launcher.returncode == 0, text
    assert losses(text) == expected
    assert sorted((tmp_path / "hosts").read_text().split()) == ["d-worker-0", "d-worker-1", "d-worker-1"]


def test_wrong_settings_are_named(started):
    process = start(started, DISTRIBUTED, QUICKSTART_STEPS="many")
    assert "QUICKSTART_STEPS=many" in process.communicate(timeout=240)[0]
    assert process.returncode == 2


GRID = """
import sys
from runai import hpo
hpo.init({root!r}, "search")
print(hpo.pick(dict(a=[1, 2], b=["x"]), {strategy}))
hpo.report(epoch=0, metrics=dict(loss=0.5))
if len(sys.argv) > 1:
    import time
    print("waits", flush=True)
    for _ in range(600):
        time.sleep(0.1)  # a signal just before a long sleep would wait for its end
"""


def search(started, tmp_path: Path, *words: str, strategy: str = "hpo.Strategy.GridSearch"):
    from pliant.engines.local.images import hpo

    script = GRID.format(root=str(tmp_path), strategy=strategy)
    folder = str(Path(hpo.__file__).parent)
    return start(started, [sys.executable, "-c", script, *words], PYTHONPATH=folder)


def test_a_search_is_shared_and_what_was_broken_off_comes_again(started, tmp_path: Path):
    import yaml

    broken = search(started, tmp_path, "wait")
    assert broken.stdout is not None
    assert broken.stdout.readline() == "Picked HPO experiment #1\n"
    assert {broken.stdout.readline() for _ in range(2)} >= {"waits\n"}
    broken.send_signal(signal.SIGTERM)
    broken.communicate(timeout=240)
    assert broken.returncode == 1
    second = search(started, tmp_path, strategy="hpo.Strategy.RandomSearch").communicate(timeout=240)[0]
    assert second == "Picked HPO experiment #1\n{'a': 1, 'b': 'x'}\n"
    third = search(started, tmp_path).communicate(timeout=240)[0]
    assert third.startswith("Picked HPO experiment #2\n")
    assert "every experiment of the grid is taken" in search(started, tmp_path).communicate(timeout=240)[0]
    state = yaml.safe_load((tmp_path / "search" / "runai.yaml").read_text())
    assert [entry["status"] for entry in state["experiments"]] == ["assigned", "assigned"]
    assert [len(entry["reports"]) for entry in state["experiments"]] == [2, 1]
    assert time.strptime(state["creationTime"], "%d/%m/%Y %H:%M:%S")


def test_the_hpo_image_trains_what_it_picked(started, tmp_path: Path):
    process = start(
        started,
        [sys.executable, "-m", "pliant.engines.local.images.hpo"],
        HPO_ROOT=str(tmp_path),
        QUICKSTART_EPOCHS="1",
    )
    text = process.communicate(timeout=240)[0]
    assert process.returncode == 0, text
    assert text.startswith("Picked HPO experiment #1\nbatch_size=16 lr=1.0\nepoch=0 accuracy=0.")


def test_a_wrong_number_of_epochs_is_named(started, tmp_path: Path):
    command = [sys.executable, "-m", "pliant.engines.local.images.hpo"]
    process = start(started, command, HPO_ROOT=str(tmp_path), QUICKSTART_EPOCHS="many")
    assert "QUICKSTART_EPOCHS=many is not a whole number" in process.communicate(timeout=240)[0]
    assert (process.returncode, list(tmp_path.iterdir())) == (2, [])
