"""Changes of a scenario that must not change its verdict; each function returns None if it does not apply."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.conformance.state import Json

SIZE = {"gpus": 8, "cpu": 16, "memory_bytes": 8 * 10**9}


def _filtered(case: Json) -> bool:
    return bool(case.get("config", {}).get("predicates_plugin", True))


def _project(case: Json, deserved: int, weight: int) -> None:
    """Adds a project, in the implicit department or in a department of its own."""
    row: Json = {"created_order": 90, "deserved_gpus": deserved, "over_quota_weight": weight}
    wide = next((row["name"] for row in case["departments"] if row.get("implicit")), None)
    if wide is None:
        case["departments"].append({"name": "zz-department", **row})
    case["projects"].append({"name": "zz", "parent": wide or "zz-department", **row})


def _job(case: Json, name: str, per_task: Json, *tasks: Json, **more: Json | int | bool) -> None:
    rows = [{"id": f"{name}-{at}", **task} for at, task in enumerate(tasks)]
    shape: Json = {"name": name, "project": "zz", "priority": 50, "preemptible": True, "per_task": per_task}
    case["jobs"].append({**shape, "created_minutes_ago": 9999, **more, "tasks": rows})


def full_node(case: Json) -> Json:
    """Adds a node that is full of another project's non-preemptible work within its quota."""
    _project(case, 8, 1)
    case["nodes"].append({"name": "zz-node", "gpu_memory_mib": 100, **SIZE})
    _job(case, "zz-runs", SIZE, {"status": "running", "node": "zz-node"}, preemptible=False, priority=100)
    return case


def empty_queue(case: Json) -> Json:
    """Adds a project with quota and without work."""
    _project(case, 5, 1)
    return case


def hopeless(case: Json) -> Json | None:
    """Adds a job that fits no node, one that waits for a gate, and one that has ended."""
    if not _filtered(case):
        return None
    _project(case, 0, 0)
    one = {"gpus": 1}
    _job(case, "zz-nowhere", one, {"status": "pending", "node_affinity": ["nowhere"]})
    _job(case, "zz-gated", one, {"status": "gated"}, {"status": "pending"})
    _job(case, "zz-over", one, {"status": "succeeded"}, {"status": "failed"})
    return case


def deeper(case: Json) -> Json:
    """Adds a queue with the same numbers above each project, and an unbounded one above all departments."""
    inner = {row.get("parent") for row in case["projects"]}
    for row in [row for row in case["projects"] if row["name"] not in inner]:
        case["projects"].append({**row, "name": f"around-{row['name']}"})
        row["parent"] = f"around-{row['name']}"
    for row in (*case["departments"], *case["projects"]):
        row["parent"] = row.get("parent") or "zz-root"
    root = {"name": "zz-root", "parent": None, "deserved_gpus": "unlimited", "over_quota_weight": 1}
    case["departments"].append(root)
    return case


def trees(case: Json) -> Json:
    """Moves each job's minimum to a podset in a group."""
    for job in case["jobs"]:
        if "subgroups" not in job and job["tasks"]:
            least = job.pop("min_members", None)
            pods = {"name": "pods", "min_members": len(job["tasks"]) if least is None else least}
            job["subgroups"] = {"name": "root", "groups": [{"name": "group", "podsets": [pods]}]}
            for task in job["tasks"]:
                task["subgroup"] = "pods"
    return case


def one_zone(case: Json) -> Json:
    """Puts all nodes into one zone, in which every job must be placed."""
    case.setdefault("topologies", []).append({"name": "zz", "levels": ["zz/zone"]})
    for node in case["nodes"]:
        node.setdefault("labels", {})["zz/zone"] = "only"
    for job in case["jobs"]:
        tree = job.get("subgroups", job)
        if not tree.get("topology") and not job.get("topology"):
            tree["topology"] = {"topology": "zz", "required_level": "zz/zone"}
    return case


def any_node(case: Json) -> Json | None:
    """Allows every task every node explicitly; scales ages and priorities."""
    if not _filtered(case):
        return None
    names = [node["name"] for node in case["nodes"]]
    for job in case["jobs"]:
        job["created_minutes_ago"] = 7 * job.get("created_minutes_ago", 0)
        job["priority"] *= 3
        for task in job["tasks"]:
            task["node_affinity"] = task.get("node_affinity") or names
    return case


def backwards(case: Json) -> Json:
    """Reverses all lists, and adds cycles."""
    for rows in (case["nodes"], case["departments"], case["projects"], case["jobs"]):
        rows.reverse()
    for job in case["jobs"]:
        job["tasks"].reverse()
    if case["mode"] == "rounds":
        rounds = case.setdefault("rounds", {})
        rounds.update(until_match=rounds.get("until_match", 2) + 3, after_match=9)
    return case


def _by_quota_alone(case: Json) -> bool:
    """True if no share depends on the cluster's size: no queue has a weight or an unlimited quota."""
    wide = [row for row in case["departments"] if not row.get("implicit")]
    rows = (*wide, *case["projects"])
    return not any(
        row.get("over_quota_weight")
        or row.get("deserved_gpus") == "unlimited"
        or row.get("priority", 100) != 100
        for row in rows
    )


def doubled(case: Json) -> Json | None:
    """Doubles the GPUs of nodes, quotas, limits and requests."""
    jobs = case["jobs"]
    if not _by_quota_alone(case) or any(not job["per_task"].keys() & {"gpus"} for job in jobs):
        return None
    if any(job["per_task"]["gpus"] % 1 for job in jobs):
        return None

    def twice(row: Json, *words: str) -> None:
        for word in words:
            if isinstance(row.get(word), int | float):
                row[word] *= 2

    for row in (*case["departments"], *case["projects"]):
        twice(row, "deserved_gpus", "gpu_limit")
    for row in (*case["nodes"], *(job["per_task"] for job in jobs)):
        twice(row, "gpus")
    for row in (task for job in jobs for task in job["tasks"]):
        twice(row, "gpus")
    expected = case.get("expected", {})
    for row in (*expected.get("jobs", {}).values(), *expected.get("tasks", {}).values()):
        twice(row, "gpus_required", "gpus_accepted")
    for row in expected.get("nodes", {}).values():
        twice(row, "idle_gpus", "releasing_gpus")
    return case


def side_by_side(case: Json) -> Json | None:
    """Adds a copy of the scenario, with nodes, queues and jobs of its own."""
    if not (_filtered(case) and _by_quota_alone(case)) or case.get("topologies"):
        return None
    if not all(row.get("implicit") for row in case["departments"]):
        return None
    nodes = [node["name"] for node in case["nodes"]]

    def other(names: list[str]) -> list[str]:
        return [f"zz-{name}" for name in names]

    for row in case["projects"][:]:
        case["projects"].append({**row, "name": f"zz-{row['name']}"})
        if row.get("parent") in [each["name"] for each in case["projects"]]:
            case["projects"][-1]["parent"] = f"zz-{row['parent']}"
    case["nodes"] += [{**node, "name": f"zz-{node['name']}"} for node in case["nodes"]]
    for job in case["jobs"][:]:
        tasks = [{**task, "id": f"zz-{task['id']}"} for task in job["tasks"]]
        for task, twin in zip(job["tasks"], tasks, strict=True):
            task["node_affinity"] = task.get("node_affinity") or nodes
            twin["node_affinity"] = other(task["node_affinity"])
            if "node" in task:
                twin["node"] = f"zz-{task['node']}"
        name = f"zz-{job['name']}"
        case["jobs"].append({**job, "name": name, "project": f"zz-{job['project']}", "tasks": tasks})
    expected = case.get("expected", {})
    for words in ("jobs", "tasks", "nodes"):
        for name, want in list(expected.get(words, {}).items()):
            twin = {**want, "node": f"zz-{want['node']}"} if want.get("node") else want
            expected[words][f"zz-{name}"] = twin
    for name, count in expected.get("max_calls", {}).items():
        expected["max_calls"][name] = count and 2 * count
    return case


VARIANTS: tuple[Callable[[Json], Json | None], ...] = (
    full_node, empty_queue, hopeless, deeper, trees, one_zone, any_node, backwards, doubled, side_by_side,
)  # fmt: skip


def varied(case: Json, by: Callable[[Json], Json | None]) -> Json | None:
    """A copy of the scenario with that change; does not modify the original."""
    return by(copy.deepcopy(case))
