"""top: the use of jobs beside their request, and blanks where it is not measured."""

import json

import pytest

from tests.cli.items import node, pending, workload

FULL = {
    "cpuCores": 2.5,
    "memoryBytes": 6657199309,
    "gpuPercent": 87.4,
    "gpuMemoryBytes": 7 << 30,
}


@pytest.fixture
def jobs(fake, run):
    run("pliant project set team-a")
    resources = {"gpu": 1.0, "gpuMemory": "16Gi", "cpu": 4.0, "cpuMemory": "16Gi"}
    fake.nodes = [node("node-1", 1.0)]
    fake.workloads = [
        workload("first", allocatedResources=resources),
        pending("later"),
        workload("second", allocatedResources=resources),
    ]
    fake.loads = [
        {
            "id": "id-first",
            "cpuCores": 0.031,
            "memoryBytes": 610 << 20,
            "gpuPercent": None,
            "gpuMemoryBytes": None,
        },
        {"id": "id-second", **FULL},
    ]
    return fake


def test_what_is_used_of_what_was_asked_for(jobs, run):
    rows = [line.split() for line in run("pliant top job").out.splitlines()]
    assert rows[0] == ["NAME", "PROJECT", "STATUS", "GPUS", "GPU%", "GPU-MEM", "CPU%", "MEM", "NODES"]
    assert rows[1][:8] == ["first", "team-a", "Running", "1.00", "-", "-", "3", "610Mi/16Gi"]
    assert rows[2][4:8] == ["-"] * 4, "what waits uses nothing, not what it asked for"
    assert rows[3][3:8] == ["1.00", "87", "7/16Gi", "250", "6.2/16Gi"]


@pytest.mark.parametrize("key", ["gpu", "cpu", "memory"])
def test_the_largest_first(jobs, run, key):
    names = [line.split()[0] for line in run(f"pliant top job --sort {key}").out.splitlines()[1:]]
    assert names[0] == "second"
    assert run("pliant top job --sort colour").code == 2


def test_as_json(jobs, run):
    found = json.loads(run("pliant top job -o json").out)
    assert [item["load"] and item["load"]["gpuPercent"] for item in found] == [None, None, 87.4]


def test_without_a_command_nodes_then_jobs(jobs, run):
    said = run("pliant top").out
    assert said.index("node-1") < said.index("GPU-MEM") < said.index("second")
    assert run("pliant top job").out in said


def test_watched_it_is_shown_again(jobs, run, monkeypatch):
    def stop(seconds):
        if len([it for it in jobs.requests if it.path.endswith("/load")]) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("pliant.cli.workloads.top.time.sleep", stop)
    assert run("pliant top job --watch").out.count("GPU-MEM") == 3


def test_what_has_ended_uses_nothing(jobs, run):
    jobs.workloads.append(workload("over", phase="Completed", status="Succeeded"))
    assert "over" not in run("pliant top job").out
    assert "over" in run("pliant top job over").out


def test_describe_says_how_a_job_ended(jobs, run):
    said = "task-0 ended with exit code 7."
    jobs.workloads.append(workload("over", phase="Failed", status="Failed", phaseMessage=said))
    assert f"\nENDED: {said}\n" in run("pliant describe job over").out
    assert "ENDED" not in run("pliant describe job first").out


def test_without_a_job_there_is_no_empty_table(jobs, run):
    jobs.workloads = [workload("over", phase="Completed", status="Succeeded")]
    assert run("pliant top job -p team-a") == (0, "", "No pending or running jobs in project team-a.\n")
