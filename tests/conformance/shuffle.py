"""The same scenario under other names and in another order."""

from __future__ import annotations

import random
from typing import Any

from tests.conformance.state import Json


def shuffled(case: Json, seed: int) -> Json:
    """Gives nodes and jobs new names and their lists another order.

    Names decide ties, so the new names sort as the old ones do; they have nothing else in common.
    """
    return _shuffled(case, random.Random(f"{seed}/{case.get('id')}"), ordered=True)[0]


def renamed(case: Json, seed: int) -> tuple[Json, dict[str, str]]:
    """The same with names that sort differently; and new name -> old name of each job."""
    found, jobs = _shuffled(case, random.Random(f"{seed}/{case.get('id')}"), ordered=False)
    return found, {new: old for old, new in jobs.items()}


def _shuffled(case: Json, rng: random.Random, ordered: bool) -> tuple[Json, dict[str, str]]:
    nodes = _names(rng, [node["name"] for node in case["nodes"]], "n", ordered)
    jobs = _names(rng, [job["name"] for job in case["jobs"]], "j", ordered)
    tasks = {
        task["id"]: f"{jobs[job['name']]}-{number:04d}"
        for job in case["jobs"]
        for number, task in enumerate(job["tasks"])
    }
    found: Json = dict(case)
    found["nodes"] = [_node(node, nodes) for node in case["nodes"]]
    found["jobs"] = [_job(job, nodes, jobs, tasks) for job in case["jobs"]]
    rng.shuffle(found["nodes"])
    rng.shuffle(found["jobs"])
    found["expected"] = _expected(case.get("expected", {}), nodes, jobs, tasks)
    return found, jobs


def _names(rng: random.Random, names: list[str], prefix: str, ordered: bool) -> dict[str, str]:
    fresh = [f"{prefix}{number:06d}" for number in rng.sample(range(10**6), len(names))]
    return dict(zip(sorted(names), sorted(fresh) if ordered else fresh, strict=True))


def _node(node: Json, nodes: dict[str, str]) -> Json:
    return {**node, "name": nodes[node["name"]]}


def _job(job: Json, nodes: dict[str, str], jobs: dict[str, str], tasks: dict[str, str]) -> Json:
    def task(row: Json) -> Json:
        new = {**row, "id": tasks[row["id"]]}
        if "node" in row:
            new["node"] = nodes.get(row["node"], row["node"])
        if "node_affinity" in row:
            new["node_affinity"] = [nodes.get(name, name) for name in row["node_affinity"]]
        return new

    return {**job, "name": jobs[job["name"]], "tasks": [task(row) for row in job["tasks"]]}


def _expected(
    expected: Json, nodes: dict[str, str], jobs: dict[str, str], tasks: dict[str, str]
) -> dict[str, Any]:
    def want(row: Json) -> Json:
        return {**row, "node": nodes.get(row["node"], row["node"])} if row.get("node") else row

    found = dict(expected)
    for key, names in (("jobs", jobs), ("tasks", tasks), ("nodes", nodes)):
        if key in expected:
            found[key] = {names.get(name, name): want(row) for name, row in expected[key].items()}
    if "domain_checks" in expected:
        found["domain_checks"] = [_check(check, nodes, tasks) for check in expected["domain_checks"]]
    return found


def _check(check: Json, nodes: dict[str, str], tasks: dict[str, str]) -> Json:
    found = dict(check)
    if "tasks" in check:
        found["tasks"] = [tasks[name] for name in check["tasks"]]
    if "node_set" in check:
        found["node_set"] = [nodes[name] for name in check["node_set"]]
    if "different_domains" in check:
        found["different_domains"] = [[tasks[name] for name in some] for some in check["different_domains"]]
    return found
