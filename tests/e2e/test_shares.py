"""Numbers of acceptance cases that a page shows for one instant only."""

import json

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
        waiting = [item for item in api.workloads() if item["phase"] == "Pending"]
        assert len(waiting) == 4
        assert {item["phaseReason"] for item in waiting} == {"NonPreemptibleOverQuota"}
        assert {item["reason"]["numbers"]["queue"] for item in waiting} == {"research"}
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
