"""What-if: turns supposed changes, in the words of the API, into changed rows. Nothing is recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.grouping import MOST_TASKS
from pliant.model.machine import DEFAULT_POOL, Gpu, Node
from pliant.model.priority import PRIORITIES
from pliant.model.tenancy import Department, Project, Quota, with_quota
from pliant.model.workload import Kind, Launch, Phase, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.explain.drain import drained
from pliant.sched.explain.trial import Change, apply, gone
from pliant.sched.settings import Settings
from pliant.sched.world.rows import WORLD_ROWS
from pliant.sched.world.state import World

MOST = 10**9
"""The largest number that can be supposed."""

MOST_NODES, MOST_GPUS = 1_000, 64
"""Nodes that can be added at once, and GPUs of each."""

LABELS = "See them with: pliant node list -o wide"
KINDS = ("submit", "end", "add-nodes", "drain", "remove", "fail", "quota", "limit", "weight", "priority")


def suppose(world: World, now: int, settings: Settings, said: Sequence[Mapping[str, Any]]) -> Change:
    """All as one change; each part sees those before it. Raises Refused; the world stays as it was."""
    total, undo = Change(), []
    try:
        for number, entry in enumerate(said, 1):
            change = _one(world, now, settings, entry, number)
            undo.append(apply(world, change))
            total = total.and_then(change)
    finally:
        for before in reversed(undo):
            apply(world, before)
    return _final(total)


def _final(change: Change) -> Change:
    """The change without puts of dropped rows: drops are applied first, so the puts would bring them back."""
    dropped = set(map(WORLD_ROWS.identity, change.drops))
    return Change(tuple(row for row in change.puts if WORLD_ROWS.identity(row) not in dropped), change.drops)


def _one(world: World, now: int, settings: Settings, entry: Mapping[str, Any], number: int) -> Change:
    kind = entry.get("kind")
    match kind:
        case "submit":
            return _submit(world, now, entry, number)
        case "end":
            return gone(world, _workload(world, entry).id)
        case "add-nodes":
            return _nodes(world, entry, number)
        case "drain":
            stop = bool(entry.get("stop", True))
            return drained(world, now, settings, decide, _some(world, entry), stop=stop).change
        case "remove" | "fail":
            return _lost(world, _some(world, entry))
        case "quota" | "limit" | "weight":
            return _queue(world, str(kind), entry)
        case "priority":
            row = _workload(world, entry)
            return Change((replace(row, priority=_count(entry, "to")),))
        case _:
            raise BadRequest(f"Unknown change {kind!r}.", f"Choose one of {', '.join(KINDS)}.")


def _count(entry: Mapping[str, Any], field: str, default: int | None = None, unit: int = 1) -> int:
    """A number that is not negative, times `unit`."""
    value = entry.get(field, default if default is None else default / unit)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{entry.get('kind')}: {field} must be a number.", f"It is {value!r}.", field=field)
    if not 0 <= value <= MOST:
        raise BadRequest(
            f"{entry.get('kind')}: {field} must be from 0 to {MOST}.", f"It is {value:g}.", field=field
        )
    return round(value * unit)


def _node(world: World, entry: Mapping[str, Any]) -> str:
    name = str(entry.get("node", ""))
    if name not in world.nodes:
        raise NotFound(f"There is no node {name!r}.", f"There are: {', '.join(sorted(world.nodes)[:20])}.")
    return name


def _some(world: World, entry: Mapping[str, Any]) -> list[str]:
    """The named node, or all nodes with a label, such as that of a rack."""
    if "label" not in entry:
        return [_node(world, entry)]
    key, value = str(entry["label"]), str(entry.get("value", ""))
    names = sorted(name for name, state in world.nodes.items() if state.row.label(key) == value)
    if not names:
        raise NotFound(f"No node has the label {key}={value}.", LABELS)
    return names


def _project(world: World, name: str) -> Project:
    for row in world.projects.values():
        if name in (row.id, row.name):
            return row
    raise NotFound(f"There is no project {name!r}.", "See them with: pliant project list")


def _workload(world: World, entry: Mapping[str, Any]) -> Workload:
    name = str(entry.get("workload", ""))
    found = [
        row
        for row in world.workloads.values()
        if name in (row.id, row.name)
        and entry.get("project") in (None, row.project, world.projects[row.project].name)
    ]
    if not found:
        raise NotFound(f"There is no workload {name!r}.", "List them first.")
    if len(found) > 1 and found[0].id != name:
        raise BadRequest(f"There are {len(found)} workloads named {name!r}.", "Name the project as well.")
    return found[0]


def supposed_job(entry: Mapping[str, Any], number: int) -> tuple[str, str]:
    """(id, name) of the job that a `submit`, the change with that number from 1, supposes."""
    name = str(entry.get("name") or f"supposed-{number}")
    return f"supposed-{number}-{name}", name


def _submit(world: World, now: int, entry: Mapping[str, Any], number: int) -> Change:
    wid, name = supposed_job(entry, number)
    project = _project(world, str(entry.get("project", "")))
    gpus = _count(entry, "gpus", 0, 1000)
    if gpus > 1000 and gpus % 1000:
        raise BadRequest(
            f"Invalid number of GPUs {gpus / 1000:g}.", "Request whole GPUs, or a part of one below 1."
        )
    devices, portion = (gpus // 1000, 1000) if gpus >= 1000 or not gpus else (1, gpus)
    tasks = max(1, _count(entry, "tasks", 1))
    if tasks > MOST_TASKS:
        raise BadRequest(
            "submit: tasks must be smaller.", f"Suppose at most {MOST_TASKS} tasks.", field="tasks"
        )
    priority = _count(entry, "priority", PRIORITIES["low"])
    request = Request(devices, portion, cpu=1000 * max(1, devices) // 10, memory=100 * 2**20)
    group = TaskGroup(
        "main", request, tasks, tasks, tasks, elastic=bool(entry.get("elastic", False)) and tasks == 1
    )
    row = Workload(
        wid,
        name,
        project.id,
        Kind.TRAINING if tasks == 1 else Kind.DISTRIBUTED,
        Launch("supposed"),
        (group,),
        priority=priority,
        preemptible=bool(entry.get("preemptible", priority < 100)),
        pools=(str(entry["pool"]),) if entry.get("pool") else (),
        node_type=str(entry.get("nodeType", "")),
        serial=1 + max((other.serial for other in world.workloads.values()), default=0),
        created=now,
        phase=Phase.PENDING,
        phase_since=now,
    )
    return Change((row, *(Task(wid, f"main-{index}", "main", index) for index in range(tasks))))


def _nodes(world: World, entry: Mapping[str, Any], number: int) -> Change:
    count, gpus = _count(entry, "count", 1), _count(entry, "gpus", 8)
    if not 0 < count <= MOST_NODES or gpus > MOST_GPUS:
        raise BadRequest(
            f"add-nodes: {'count' if gpus <= MOST_GPUS else 'gpus'} must be smaller.",
            f"Suppose 1 to {MOST_NODES} nodes with at most {MOST_GPUS} GPUs each.",
            field="count" if gpus <= MOST_GPUS else "gpus",
        )
    pool = world.pools.get(str(entry.get("pool", DEFAULT_POOL)))
    if pool is None:
        raise NotFound(f"There is no node pool {entry.get('pool')!r}.", "See them with: pliant nodepool list")
    like = [state.row for state in world.nodes.values() if state.row.gpus]
    memory = max((gpu.memory for row in like for gpu in row.gpus), default=80 * 10**9)
    labels = [(str(key), str(value)) for key, value in dict(entry.get("labels") or {}).items()]
    if pool.label_key:
        labels.append((pool.label_key, pool.label_value))
    rows = []
    for index in range(count):
        name = f"supposed-{number}-{index}"
        cards = tuple(Gpu(f"{name}.{at}", at, memory) for at in range(gpus))
        rows.append(Node(name, cards, 16_000 * max(1, gpus), 2**36 * max(1, gpus), tuple(sorted(labels))))
    return Change(tuple(rows))


def _lost(world: World, names: Sequence[str]) -> Change:
    """The loss of nodes with all that runs there, which then waits for another place."""
    there = [world.tasks[key] for name in names for key in sorted(world.nodes[name].tasks)]
    lost = frozenset(names)
    puts = {
        task.key: replace(
            task,
            claims=None if task.claims is not None and task.claims.node in lost else task.claims,
            carries=None,
            phase=TaskPhase.WAITING,
            started=None,
        )
        for task in there
        if task.carries is not None and task.carries.node in lost
    }
    return Change(tuple(puts.values()), tuple(world.nodes[name].row for name in names))


def _queue(world: World, kind: str, entry: Mapping[str, Any]) -> Change:
    row: Project | Department
    name = str(entry.get("department") or "")
    if name and entry.get("project"):
        raise BadRequest(f"{kind}: whose is given twice.", "Name a project or a department.", field="project")
    if name:
        found = [it for it in world.departments.values() if name in (it.id, it.name)]
        if not found:
            raise NotFound(f"There is no department {name!r}.", "See them with: pliant department list")
        row = found[0]
    else:
        row = _project(world, str(entry.get("project", "")))
    pool = str(entry.get("pool", DEFAULT_POOL))
    if pool not in world.pools:
        raise NotFound(f"There is no node pool {pool!r}.", "See them with: pliant nodepool list")
    amount = _count(entry, "to", None, 1000)
    field = {"quota": "gpu", "limit": "gpu_limit", "weight": "weight"}[kind]
    quota: Quota = replace(row.quota(pool), **{field: amount})
    derived = row.derived and kind != "quota"
    if isinstance(row, Project):
        return Change((replace(with_quota(row, pool, quota), derived=derived),))
    return Change((replace(with_quota(row, pool, quota), derived=derived),))
