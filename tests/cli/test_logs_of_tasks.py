"""logs of several tasks, of one task, and of the attempt before the last."""

import pytest

from tests.cli.fake import Answer, Chunks
from tests.cli.items import POD, workload


def pod(at: int, attempt: int = 1):
    name = f"worker-{at}"
    return POD | {"name": f"gang-{name}", "attempt": attempt, "containers": [{"name": name}]}


@pytest.fixture
def gang(fake, run):
    run("pliant project set team-a")
    fake.workloads = [workload("gang", type="Distributed")]
    path = "/api/v1/workloads/id-gang"
    fake.answers["GET", f"{path}/pods"] = Answer(body={"next": None, "pods": [pod(0, 3), pod(1), pod(2, 0)]})
    fake.chunks[f"{path}/logs"] = Chunks([b"one\ntw", b"o\n 1%\r 2%\rthree"])
    return fake


def asked(fake):
    return [dict(it.query) for it in fake.requests if it.path.endswith("/logs")]


def test_all_tasks_that_have_started_by_whole_lines(gang, run):
    done = run("pliant logs gang -n 5")
    assert done.out.splitlines() == [
        f"[worker-{at}] {line}" for at in (0, 1) for line in ("one", "two", "three")
    ]
    assert [it["pod"] for it in asked(gang)] == ["gang-worker-0", "gang-worker-1"]
    assert asked(gang)[0]["tail"] == "5"
    assert run("pliant logs gang --no-prefix").out.splitlines() == ["one", "two", "three"] * 2


@pytest.mark.parametrize("task", ["worker-1", "gang-worker-1", "1"])
def test_one_task(gang, run, task):
    assert run(f"pliant logs gang --task {task}").out == "one\ntwo\n 1%\r 2%\rthree"
    assert asked(gang)[-1]["pod"] == "gang-worker-1"
    assert run(f"pliant logs gang --task {task} --prefix").out.splitlines()[0] == "[worker-1] one"
    missing = run("pliant logs gang --task worker-7")
    assert missing.code == 3
    assert missing.err == "Error: gang has no task worker-7.\nUse one of: worker-0, worker-1, worker-2.\n"


def test_the_older_program_shows_the_first(gang, run):
    assert run("runai logs gang").out.startswith("one\n")
    assert "pod" not in asked(gang)[-1]


def test_the_attempt_before_the_last(gang, run):
    run("pliant logs gang --previous --task 0")
    assert (asked(gang)[-1]["attempt"], asked(gang)[-1]["pod"]) == ("2", "gang-worker-0")
    none = run("pliant logs gang --previous --task 1")
    assert (none.code, none.err.splitlines()[0]) == (5, "Error: gang has no previous attempt.")
    assert run("pliant logs gang --previous --attempt 1").code == 2


def test_every_attempt_of_a_task(gang, run):
    done = run("pliant logs gang --attempt all --task 0 -n 2")
    assert [it["attempt"] for it in asked(gang)] == ["1", "2", "3"]
    assert done.out == "one\ntwo\n 1%\r 2%\rthree" * 3
    assert done.err.splitlines() == [f"-- gang: attempt {number}" for number in (1, 2, 3)]
    assert run("pliant logs gang --attempt all -f").code == 125
    assert run("pliant logs gang --attempt some").code == 2


def test_all_are_followed_until_the_job_ends(gang, run):
    done = run("pliant logs -f gang")
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == sorted(
        f"[worker-{at}] {line}" for at in (0, 1) for line in ("one", "two", "three")
    ), "the fake job has ended: each task is shown once"


def test_with_times_the_last_state_of_a_line_keeps_its_time(gang, run):
    gang.chunks["/api/v1/workloads/id-gang/logs"] = Chunks([b"T1 one\nT2  1%\r 2%\rthr", b"ee\n- four\n"])
    done = run("pliant logs gang --timestamps --task 0 --prefix")
    assert done.out.splitlines() == ["[worker-0] T1 one", "[worker-0] T2 three", "[worker-0] - four"]
    assert asked(gang)[-1]["timestamps"] == "true"
