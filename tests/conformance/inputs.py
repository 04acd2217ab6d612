"""Inputs of KAI-Scheduler's own Go benchmarks, rebuilt in the scenarios' schema; see data/ATTRIBUTION.md.

`python -m tests.conformance.inputs` lists them, with a NAME it prints one as JSON. Every job has priority 50
and is preemptible, every node has 8 GPUs, every task asks for whole GPUs, one core and 1 GB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]

GPUS = 8
FULL_CYCLE = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
ONE_DEPARTMENT: list[Json] = [
    {
        "name": "default",
        "created_order": 0,
        "deserved_gpus": "unlimited",
        "over_quota_weight": 1,
        "implicit": True,
    }
]
RACK = "benchmark.kai.scheduler/rack"


def node(name: str, **more: Any) -> Json:
    size = {"gpus": GPUS, "gpu_memory_mib": 100, "cpu": 20000, "memory_bytes": 20 * 10**9, "max_pods": 110}
    return {"name": name, **size, **more}


def job(
    name: str, project: str, gpus: int, tasks: Sequence[Json], order: int, total: int, **more: Any
) -> Json:
    return {
        "name": name,
        "project": project,
        "priority": 50,
        "preemptible": True,
        "created_minutes_ago": total - order,
        "per_task": {"gpus": gpus, "cpu": 1, "memory_bytes": 10**9},
        "min_members": len(tasks),
        **more,
        "tasks": [{"id": f"{name}-{index}", **task} for index, task in enumerate(tasks)],
    }


def project(name: str, parent: str, order: int, deserved: float, weight: float, **more: Any) -> Json:
    quota = {"priority": 100, "deserved_gpus": deserved, "over_quota_weight": weight, "gpu_limit": None}
    return {"name": name, "parent": parent, "created_order": order, **quota, **more}


def department(name: str, order: int, deserved: float) -> Json:
    return {"name": name, "created_order": order, "deserved_gpus": deserved, "over_quota_weight": deserved}


def pending() -> Json:
    return {"status": "pending"}


def running(on: str) -> Json:
    return {"status": "running", "node": on}


def case(
    name: str,
    actions: Sequence[str],
    nodes: list[Json],
    departments: list[Json],
    projects: list[Json],
    jobs: list[Json],
    **more: Any,
) -> Json:
    return {
        "id": f"bench-{name}",
        "area": "benchmark",
        "mode": "single_session",
        "actions": list(actions),
        "nodes": nodes,
        "departments": departments,
        "projects": projects,
        "jobs": jobs,
        "expected": {},
        **more,
    }


def ordinary(name: str, actions: Sequence[str], nodes: int, jobs: int, state: str, tasks: int = 1) -> Json:
    """Four projects, two departments, a quarter of the cluster each; `state`: pending, running or mixed."""
    gpus = nodes * GPUS

    def tasks_of(index: int) -> list[Json]:
        if state == "pending":
            return [pending() for _ in range(tasks)]
        runs = state == "running" or index % 2 == 0
        return [running(f"node-{index % nodes}") if runs else pending()]

    return case(
        name,
        actions,
        [node(f"node-{index}") for index in range(nodes)],
        [department("dept-a", 0, gpus / 2), department("dept-b", 1, gpus / 2)],
        [project(f"queue-{i}", "dept-a" if i < 2 else "dept-b", i, gpus / 4, 1) for i in range(4)],
        [job(f"job-{i}", f"queue-{i % 4}", 1, tasks_of(i), i, jobs) for i in range(jobs)],
    )


def many_queues(nodes: int, jobs: int, queues: int) -> Json:
    gpus, departments = nodes * GPUS, max(1, (queues + 3) // 4)
    return case(
        "ManyQueues_Medium",
        ["allocate"],
        [node(f"node-{index}") for index in range(nodes)],
        [department(f"dept-{i}", i, gpus / departments) for i in range(departments)],
        [project(f"queue-{i}", f"dept-{i % departments}", i, gpus / queues, 1) for i in range(queues)],
        [job(f"job-{i}", f"queue-{i % queues}", 1, [pending()], i, jobs) for i in range(jobs)],
    )


def large_job(name: str, nodes: int, tasks: int, holders: float, claimant: float, big: str = "") -> Json:
    """Eight running 1-GPU jobs per node in queue-0; one pending gang of 8-GPU tasks in queue-1."""
    total = nodes * GPUS + 1
    jobs = [
        job(f"running-job-{i}", "queue-0", 1, [running(f"node{i % nodes}")], i, total)
        for i in range(nodes * GPUS)
    ]
    gang = [pending() for _ in range(tasks)]
    jobs.append(job(big or "very-large-job", "queue-1", GPUS, gang, total - 1, total))
    return case(
        name,
        ["reclaim"],
        [node(f"node{i}") for i in range(nodes)],
        ONE_DEPARTMENT,
        [project("queue-0", "default", 0, holders, 0), project("queue-1", "default", 1, claimant, 0)],
        jobs,
    )


def reclaim_large_job(nodes: int) -> Json:
    """Must end with nodes/2 tasks pipelined and half of the running tasks evicted."""
    return large_job(f"ReclaimLargeJobs_{nodes}Node", nodes, nodes // 2, 0, nodes * GPUS)


def unschedulable(nodes: int, variant: str = "") -> Json:
    """A gang of ten full nodes that cannot be placed.

    No suffix: the holders' quota is one GPU too large. `_AntiAffinity`: its tasks must be in different racks,
    and there are nine. `_Topology`: they must be in one rack, and each of the twelve has too few nodes.
    """
    tasks = 10
    quota = nodes * GPUS - tasks * GPUS + (0 if variant else 1)
    name = "unschedulable-distributed-job"
    found = large_job(
        f"ReclaimUnschedulableDistributedJob{variant}_{nodes}Node", nodes, tasks, quota, tasks * GPUS, name
    )
    gang = found["jobs"][-1]
    racks = {"": 0, "_AntiAffinity": tasks - 1, "_Topology": tasks + 2}[variant]
    for index, row in enumerate(found["nodes"] if racks else ()):
        row["labels"] = {RACK: f"rack-{index % racks}"}
    if variant == "_AntiAffinity":
        for task in gang["tasks"]:
            task.update(
                labels={"benchmark.kai.scheduler/job": "distributed-reclaimer"}, pod_anti_affinity_key=RACK
            )
    if variant == "_Topology":
        found["topologies"] = [{"name": "benchmark-topology", "levels": [RACK]}]
        gang["topology"] = {"topology": "benchmark-topology", "required_level": RACK}
    return found


def reclaim_many_jobs(nodes: int, min_runtime_s: int = 0) -> Json:
    """As many 1-GPU jobs wait within quota as run over quota: all of them are exchanged."""
    count = nodes * GPUS
    holders, claimants = "many-single-gpu-running-queue", "many-single-gpu-pending-queue"
    jobs = [
        job(f"many-single-gpu-running-job-{i}", holders, 1, [running(f"node{i % nodes}")], i, 2 * count)
        for i in range(count)
    ]
    jobs += [
        job(f"many-single-gpu-pending-job-{i}", claimants, 1, [pending()], count + i, 2 * count)
        for i in range(count)
    ]
    more = {"reclaim_min_runtime_s": min_runtime_s} if min_runtime_s else {}
    suffix = "WithMinRuntime" if min_runtime_s else ""
    return case(
        f"ReclaimManySingleGPUJobsFullCycle{suffix}_{nodes}Node",
        FULL_CYCLE,
        [node(f"node{i}") for i in range(nodes)],
        ONE_DEPARTMENT,
        [
            project(holders, "default", 0, 0, 0, **more),
            project(claimants, "default", 1, count, 0),
        ],
        jobs,
    )


def inputs() -> dict[str, Callable[[], Json]]:
    """Name -> a function that makes that input of the source."""
    found: dict[str, Callable[[], Json]] = {}

    def add(name: str, make: Callable[..., Json], *arguments: Any) -> None:
        found[name] = lambda: make(*arguments)

    for label, nodes, jobs in (("Small", 10, 50), ("Medium", 50, 200), ("Large", 100, 500)):
        for kind, actions, state in (
            ("AllocateAction", ["allocate"], "pending"),
            ("FullSchedulingCycle", FULL_CYCLE, "mixed"),
            ("ReclaimAction", ["reclaim"], "running"),
            ("PreemptAction", ["preempt"], "mixed"),
            ("ConsolidationAction", ["consolidation"], "mixed"),
        ):
            if label != "Large" or kind in ("AllocateAction", "FullSchedulingCycle"):
                add(f"{kind}_{label}", ordinary, f"{kind}_{label}", actions, nodes, jobs, state)
    add("ManyQueues_Medium", many_queues, 50, 200, 20)
    add("GangScheduling_Medium", ordinary, "GangScheduling_Medium", ["allocate"], 50, 100, "pending", 4)
    for nodes in (10, 50, 100, 200, 500, 1000):
        add(f"ReclaimLargeJobs_{nodes}Node", reclaim_large_job, nodes)
        add(f"ReclaimUnschedulableDistributedJob_{nodes}Node", unschedulable, nodes)
        if nodes < 1000:
            add(f"ReclaimManySingleGPUJobsFullCycle_{nodes}Node", reclaim_many_jobs, nodes)
    add("ReclaimManySingleGPUJobsFullCycleWithMinRuntime_500Node", reclaim_many_jobs, 500, 30)
    for variant in ("_AntiAffinity", "_Topology"):
        add(f"ReclaimUnschedulableDistributedJob{variant}_100Node", unschedulable, 100, variant)
    return found


def main() -> None:
    made = inputs()
    if len(sys.argv) > 1:
        json.dump(made[sys.argv[1]](), sys.stdout)
        return
    for name, make in made.items():
        found = make()
        tasks = sum(len(row["tasks"]) for row in found["jobs"])
        sizes = f"nodes={len(found['nodes']):5d} jobs={len(found['jobs']):5d} tasks={tasks:5d}"
        print(f"{name:60} {sizes} actions={','.join(found['actions'])}")


if __name__ == "__main__":
    main()
