"""The keys of a scenario that this runner knows. It reports any other key and never ignores one."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.state import Json, UnsupportedError

KNOWN = {
    "scenario": {
        "id", "area", "tags", "source", "source_oddity", "summary", "note", "why", "mode", "actions",
        "config", "rounds", "topologies", "nodes", "departments", "projects", "jobs", "expected",
    },
    "config": {"staleness_grace_s", "plugins", "plugins_note", "plugin_args", "predicates_plugin"},
    "plugin_args": {"nodeplacement"},
    "nodeplacement": {"gpu", "cpu"},
    "rounds": {"until_match", "after_match", "delay_s"},
    "topology": {"name", "levels"},
    "node": {"name", "gpus", "gpu_memory_mib", "cpu", "memory_bytes", "max_pods", "labels"},
    "queue": {
        "name", "parent", "implicit", "created_order", "priority", "deserved_gpus", "over_quota_weight",
        "gpu_limit", "deserved_cpu_milli", "cpu_limit_milli", "deserved_memory_mb", "memory_limit_mb",
        "reclaim_min_runtime_s", "preempt_min_runtime_s",
    },
    "job": {
        "name", "namespace", "project", "priority", "preemptible", "preemptibility_explicit",
        "created_minutes_ago", "per_task", "best_effort", "min_members", "subgroups", "topology",
        "stale_for_s", "staleness_grace_s", "preemption_delay_s", "victim_terminates", "qos", "tasks",
    },
    "per_task": {
        "gpus", "gpu_fraction", "gpu_memory_mib", "num_devices", "cpu", "memory_bytes", "best_effort",
    },
    "task": {
        "id", "status", "node", "gpu_groups", "subgroup", "gpus", "task_priority", "node_affinity", "labels",
        "pod_anti_affinity_key", "annotations",
    },
    "group": {"name", "topology", "min_subgroups", "groups", "podsets"},
    "podset": {"name", "min_members", "topology"},
    "nearness": {"topology", "required_level", "preferred_level"},
    "expected": {"jobs", "tasks", "nodes", "max_calls", "domain_checks"},
    "calls": {"bind", "evict", "pipeline"},
    "expectation": {
        "status", "node", "gpus_required", "gpus_accepted", "cpu_required", "memory_required_bytes",
        "started_at_least_s_ago", "gpu_groups", "skip_gpu_group_check", "expects_fit_error",
    },
    "expected node": {"releasing_gpus", "idle_gpus"},
    "domain check": {"tasks", "label", "all_in", "node_set", "single_domain_of", "different_domains"},
}  # fmt: skip
"""Kind of object -> its keys. `qos` means nothing without NUMA, `labels` of a task only serve selectors, and
other keys express all that `annotations` could mean."""

ACTIONS = {"allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"}


def refuse(case: Json) -> None:
    """Raises UnsupportedError for the first unknown key; ignores empty values."""
    for kind, row in _objects(case):
        for word, value in row.items():
            if word not in KNOWN[kind] and value not in (None, "", [], {}, False):
                raise UnsupportedError(f"the word {word!r} of a {kind}")
    for action in case["actions"]:
        if action not in ACTIONS:
            raise UnsupportedError(f"the action {action!r}")


def _objects(case: Json) -> Iterator[tuple[str, Json]]:
    """Every object of a scenario, with its kind."""
    yield "scenario", case
    yield "config", case.get("config", {})
    arguments = case.get("config", {}).get("plugin_args", {})
    yield "plugin_args", arguments
    yield "nodeplacement", arguments.get("nodeplacement", {})
    yield "rounds", case.get("rounds", {})
    for kind, rows in (("topology", "topologies"), ("node", "nodes")):
        yield from ((kind, row) for row in case.get(rows, ()))
    yield from (("queue", row) for row in (*case["departments"], *case["projects"]))
    for job in case["jobs"]:
        yield "job", job
        yield "per_task", job["per_task"]
        yield "nearness", job.get("topology") or {}
        yield from (("task", row) for row in job["tasks"])
        yield from _tree(job.get("subgroups") or {})
    expected = case.get("expected", {})
    yield "expected", expected
    yield "calls", expected.get("max_calls", {})
    for rows in ("jobs", "tasks"):
        yield from (("expectation", row) for row in expected.get(rows, {}).values())
    yield from (("expected node", row) for row in expected.get("nodes", {}).values())
    yield from (("domain check", row) for row in expected.get("domain_checks", ()))


def _tree(group: Json) -> Iterator[tuple[str, Json]]:
    yield "group", group
    yield "nearness", group.get("topology") or {}
    for podset in group.get("podsets", ()):
        yield "podset", podset
        yield "nearness", podset.get("topology") or {}
    for below in group.get("groups", ()):
        yield from _tree(below)
