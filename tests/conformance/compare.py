"""Compares a scenario's outcome with what it expects: one sentence per difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pliant.model.quantity import GPU
from pliant.model.workload import Request
from pliant.sched.world.state import World
from tests.conformance.state import RUNNING, Json, State, TaskState


def differences(case: Json, state: State, world: World, unplaced: Iterable[str], now: int) -> Iterator[str]:
    """Compares a state; `unplaced` are the jobs with a reason for not fitting."""
    expected = case.get("expected", {})
    for name, want in expected.get("jobs", {}).items():
        tasks = state.of_job(name)
        if not tasks:
            yield f"job {name} is expected, but the scenario has no such job"
        yield from _tasks(f"job {name}", want, tasks, now)
        if want.get("expects_fit_error") and name not in unplaced:
            yield f"job {name} carries no reason for not fitting"
    for name, want in expected.get("tasks", {}).items():
        if name not in state.tasks:
            yield f"task {name} is expected, but the scenario has no such task"
            continue
        yield from _tasks(f"task {name}", want, [state.tasks[name]], now)
        if want.get("expects_fit_error") and state.tasks[name].job not in unplaced:
            yield f"task {name} is of a job that carries no reason for not fitting"
    yield from _devices(expected, state)
    for name, want in expected.get("nodes", {}).items():
        yield from _node(name, want, world)
    labels = {node["name"]: node.get("labels", {}) for node in case["nodes"]}
    for check in expected.get("domain_checks", ()):
        yield from _domain(check, state, labels)


def _tasks(who: str, want: Json, tasks: list[TaskState], now: int) -> Iterator[str]:
    for task in tasks:
        if task.status != want["status"]:
            where = f" on {task.node}" if task.node else ""
            yield f"{who}: {task.id} is {task.status}{where}, expected {want['status']}"
        elif want.get("node") and task.node != want["node"] and task.status != "pending":
            # The source leaves a node in pending tasks; it means nothing.
            yield f"{who}: {task.id} is {task.status} on {task.node}, expected on {want['node']}"
        if want["status"] in RUNNING and task.status in RUNNING and task.started is None:
            yield f"{who}: {task.id} is {task.status} and has no start time"
    least = want.get("started_at_least_s_ago")
    begun = [task.started for task in tasks if task.started is not None]
    if least is not None and (not begun or now - max(begun) < least * 1000):
        yield f"{who}: its start time was refreshed"
    sums = {
        "gpus_required": sum(gpus_required(task.request) for task in tasks),
        "cpu_required": sum(task.request.cpu for task in tasks) / 1000,
        "memory_required_bytes": sum(task.request.memory for task in tasks),
        "gpus_accepted": sum(gpus_accepted(task) for task in tasks),
    }
    for key, value in sums.items():
        if want.get(key) is not None and abs(value - want[key]) > 0.005:
            yield f"{who}: {key} is {value:g}, expected {want[key]:g}"


def gpus_required(request: Request) -> float:
    """GPUs as the source counts them: a fraction in hundredths, a request for GPU memory as 0."""
    return round(request.gpu / GPU, 2)


def gpus_accepted(task: TaskState) -> float:
    """GPUs as the source counts them: its portion of each device in hundredths, rounded up."""
    shares = task.place.shares if task.place is not None else ()
    return sum(-(-share.portion * 100 // GPU) for share in shares) / 100


def _devices(expected: Json, state: State) -> Iterator[str]:
    """Checks that tasks on one node share a device if and only if their group names are equal."""
    named: list[tuple[TaskState, list[str]]] = []
    for name, want in expected.get("jobs", {}).items():
        if want.get("gpu_groups") and not want.get("skip_gpu_group_check"):
            named += [(task, want["gpu_groups"]) for task in state.of_job(name)]
    for name, want in expected.get("tasks", {}).items():
        if want.get("gpu_groups") and not want.get("skip_gpu_group_check") and name in state.tasks:
            named.append((state.tasks[name], want["gpu_groups"]))
    named = [(task, groups) for task, groups in named if task.place is not None and task.place.shares]
    for at, (task, groups) in enumerate(named):
        for other, others in named[:at]:
            assert task.place is not None and other.place is not None
            if task.node != other.node or not (task.request.shared and other.request.shared):
                continue
            shared = len(set(task.place.uuids) & set(other.place.uuids))
            wanted = len(set(groups) & set(others))
            if shared != wanted:
                yield (
                    f"{task.id} and {other.id} share {shared} devices of {task.node}, expected {wanted}: "
                    f"{', '.join(task.place.uuids)} and {', '.join(other.place.uuids)}"
                )


def _node(name: str, want: Json, world: World) -> Iterator[str]:
    node = world.nodes.get(name)
    if node is None:
        yield f"node {name} is expected, but the scenario has no such node"
        return
    devices = node.devices.values()
    found = {
        "idle_gpus": sum(1 for device in devices if device.idle),
        "releasing_gpus": sum(1 for device in devices if device.free and not device.idle),
    }
    for key, value in found.items():
        if want.get(key) is not None and value != want[key]:
            yield f"node {name}: {key} is {value}, expected {want[key]}"


def _domain(check: Json, state: State, labels: dict[str, dict[str, str]]) -> Iterator[str]:
    label = check["label"]

    def domains(tasks: Iterable[str]) -> set[str | None]:
        return {labels.get(state.tasks[task].node or "", {}).get(label) for task in tasks}

    if "tasks" in check:
        found = domains(check["tasks"])
        names = ", ".join(check["tasks"])
        if "all_in" in check and found != {check["all_in"]}:
            yield f"{names} are in {sorted(map(str, found))} of {label}, expected {check['all_in']}"
        if "single_domain_of" in check and (len(found) != 1 or not found <= set(check["single_domain_of"])):
            few = check["single_domain_of"]
            yield f"{names} are in {sorted(map(str, found))} of {label}, expected one of {few}"
        if "node_set" in check:
            nodes = {state.tasks[task].node for task in check["tasks"]}
            if not nodes <= set(check["node_set"]):
                yield f"{names} are on {sorted(map(str, nodes))}, expected within {check['node_set']}"
    if "different_domains" in check:
        found_sets = [domains(tasks) for tasks in check["different_domains"]]
        for at, some in enumerate(found_sets):
            for other in found_sets[:at]:
                if some & other:
                    same = sorted(map(str, some & other))
                    yield f"{check['different_domains']} share a domain of {label}: {same}"
