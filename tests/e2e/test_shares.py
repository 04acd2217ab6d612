"""Numbers of acceptance cases that a page shows only for an instant."""

import json
from typing import Any

from examples.walkthrough import Stage
from tests.e2e.witness import client, until


def test_non_preemptible_work_never_goes_beyond_the_departments_quota(stage: Stage) -> None:
    """Two projects of quota 4 under a department of 6, each asking for 5 GPUs of its own."""
    for command in (
        "pliant up --simulate 1x12",
        "pliant department create research --quota 6",
        "pliant project create team-a --quota 4 --department research",
        "pliant project create team-b --quota 4 --department research",
    ):
        assert stage.run(command).code == 0, command
    for number in range(5):
        for team in ("a", "b"):
            command = f"runai submit {team}{number} -i ubuntu -g 1 --interactive -p team-{team}"
            assert stage.run(f"{command} --command -- sleep infinity").code == 0
            assert held(stage) <= 6
    until(lambda: held(stage) == 6, "six GPUs to be held")
    with client(stage) as api:

        def waiting() -> list[Any]:
            found = [item for item in api.workloads() if item["phase"] == "Pending"]
            return found if all(item["reason"] for item in found) else []

        told = until(waiting, "each that waits to be told why")
        assert len(told) == 4
        assert {item["phaseReason"] for item in told} == {"NonPreemptibleOverQuota"}
        assert {item["reason"]["numbers"]["queue"] for item in told} == {"research"}
    first = json.loads(stage.run("runai list -A -o json").out)[0]["name"]
    assert stage.run(f"runai delete {first} -p team-a").code == 0
    until(lambda: len(running(stage)) == 6 and first not in running(stage), "another to take its place")
    until(lambda: held(stage) == 6, "the one that is deleted to give its GPU back")


def running(stage: Stage) -> set[str]:
    with client(stage) as api:
        return {item["name"] for item in api.workloads() if item["phase"] == "Running"}


def held(stage: Stage) -> float:
    """GPUs that non-preemptible work of the department's projects holds."""
    with client(stage) as api:
        return sum(item["allocatedResources"]["gpu"] for item in api.workloads() if not item["preemptible"])


def test_semi_preemptible_and_background_jobs_as_a_user_types_them(stage: Stage) -> None:
    """Minimum 2, maximum 4 in a project of quota 2: it loses exactly two tasks when the other team asks."""
    for command in (
        "pliant up --simulate 1x4",
        "pliant project create team-a --quota 2",
        "pliant project create team-b --quota 2",
        "pliant training pytorch submit half -i ubuntu -g 1 --no-master --workers 2 --min-replicas 2 "
        "--max-replicas 4 --preemptibility semi-preemptible -p team-a -- sleep infinity",
    ):
        done = stage.run(command)
        assert done.code == 0, done
    until(lambda: tasks(stage, "half") == {f"worker-{i}": (1, "Running") for i in range(4)}, "four to run")
    assert "partly" in stage.run("runai describe job half -p team-a").out
    for name in ("b1", "b2"):
        assert (
            stage.run(f"runai submit {name} -i ubuntu -g 1 -p team-b --command -- sleep infinity").code == 0
        )
    until(lambda: running(stage) == {"half", "b1", "b2"}, "team-b to have its share")
    kept = {"worker-0": (1, "Running"), "worker-1": (1, "Running")}
    until(lambda: tasks(stage, "half") == kept, "the first two alone to run, in their first attempt")

    filler = "runai submit fill -i ubuntu -g 1 -p team-b --background --command -- sleep infinity"
    assert stage.run(filler).code == 0
    told = "Background jobs run only on idle GPUs: this one needs 1 GPU; 0 GPUs are idle"
    until(lambda: told in stage.run("runai why fill -p team-b").out, "it to be told what it waits for")
    assert stage.run("runai delete b1 -p team-b").code == 0
    until(lambda: "fill" in running(stage) or "worker-2" in tasks(stage, "half"), "the free GPU to be used")
    assert stage.run("runai delete half -p team-a").code == 0
    until(lambda: "fill" in running(stage), "the background job to run")
    asks = "runai submit big -i ubuntu -g 3 -p team-a --command -- sleep infinity"
    assert stage.run(asks).code == 0
    until(lambda: {"big", "b2"} == running(stage), "the background job to give way")
    told = "background jobs give way to every other job"
    until(lambda: told in stage.run("runai why fill -p team-b").out, "its history to say so")
    refused = stage.run("runai submit no -i ubuntu --interactive --background -p team-a")
    assert refused.code != 0 and "always preemptible" in refused.err


def tasks(stage: Stage, name: str) -> dict[str, tuple[int, str]]:
    """Its running tasks -> (number of the attempt, status)."""
    with client(stage) as api:
        (item,) = (it for it in api.workloads() if it["name"] == name)
        pods = [pod for pod in api.pods(item["id"]) if pod["status"] == "Running"]
    return {pod["name"].removeprefix(f"{name}-"): (pod["attempt"], pod["status"]) for pod in pods}
