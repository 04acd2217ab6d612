"""Builds a World, with the rows of our model, from a scenario's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pliant.model.affinity import Affinity, Operator, Term
from pliant.model.machine import DEFAULT_POOL, Gpu, Node, NodePool, Strategy
from pliant.model.quantity import GPU
from pliant.model.tenancy import UNLIMITED, Department, Project, Quota
from pliant.model.topology import Topology, Within
from pliant.model.workload import (
    Desired,
    Kind,
    Launch,
    Phase,
    Request,
    SubGroup,
    Task,
    TaskGroup,
    TaskKey,
    TaskPhase,
    Workload,
)
from pliant.sched.world.state import World
from tests.conformance.state import (
    ACTIVE,
    GONE,
    RUNNING,
    USED,
    ContradictionError,
    Json,
    State,
    TaskState,
    UnsupportedError,
    by_age,
    device_memory,
    uuid,
)
from tests.conformance.words import refuse

MINUTE = 60_000
NODE_NAME = "kai.scheduler/type"
"""A label of every node; its value is the node's name."""


@dataclass(slots=True)
class Built:
    world: World
    keys: dict[str, TaskKey] = field(default_factory=dict)  # task id -> key of its row, if it has one


def build(state: State, now: int, epoch: int) -> Built:
    """Builds a new world; `epoch` (ms) is the scenario's beginning, from which ages count."""
    case = state.case
    refuse(case)
    _named_once(case)
    built = Built(World())
    put = built.world.put
    put(pool(case))
    for row in queues(case):
        put(row)
    for row in case.get("topologies", ()):
        put(Topology(row["name"], tuple(row["levels"])))
    for node in case["nodes"]:
        put(machine(node, state))
    for serial, job in enumerate(by_age(case), 1):
        _put_job(built, state, job, serial, now, epoch)
    return built


def _named_once(case: Json) -> None:
    for what, rows in (
        ("nodes", case["nodes"]),
        ("jobs", case["jobs"]),
        ("queues", [*case["departments"], *case["projects"]]),
    ):
        seen: set[str] = set()
        for row in rows:
            if row["name"] in seen:
                raise ContradictionError(f"two {what} are called {row['name']}")
            seen.add(row["name"])


def pool(case: Json) -> NodePool:
    config = case.get("config", {})
    placement = config.get("plugin_args", {}).get("nodeplacement", {})
    gpu, cpu = (Strategy(placement.get(key, Strategy.PACK.value)) for key in ("gpu", "cpu"))
    devices = Strategy.SPREAD if "gpuspread" in config.get("plugins", ()) else Strategy.PACK
    return NodePool(DEFAULT_POOL, DEFAULT_POOL, gpu_strategy=gpu, cpu_strategy=cpu, device_strategy=devices)


def queues(case: Json) -> Iterator[Department | Project]:
    """Leaves become projects, all queues above them departments."""
    rows = [*case["departments"], *case["projects"]]
    names = {row["name"]: row for row in rows}
    above = {row["name"] for row in case["departments"]} | {row.get("parent") for row in rows}
    free = "proportion" not in case.get("config", {}).get("plugins", ("proportion",))
    for row in rows:
        if free:  # no quota rule applies
            row = {**row, "deserved_gpus": "unlimited", "gpu_limit": None}
        if row in case["departments"]:  # its weight is its quota unless one is given
            deserved = row.get("deserved_gpus", 0)
            row = {"over_quota_weight": 1 if deserved == "unlimited" else deserved, **row}
        name, parent = row["name"], row.get("parent") or ""
        if parent and parent not in names:
            raise ContradictionError(f"project {name} belongs to {parent}, which is unknown")
        above_it, now = {name}, parent
        while now in names:
            if now in above_it:
                raise ContradictionError(f"queue {name} is below itself")
            above_it.add(now)
            now = names[now].get("parent") or ""
        if name in above:
            yield Department(name, name, _quotas(row), created=_created(row), parent=parent)
        else:
            yield Project(name, name, _quotas(row), created=_created(row), department=parent)


def _created(row: Json) -> int:
    return int(row.get("created_order", 0)) * MINUTE


def _quotas(row: Json) -> tuple[tuple[str, Quota], ...]:
    quota = Quota(
        gpu=_amount(row.get("deserved_gpus", 0), GPU),
        gpu_limit=_amount(row.get("gpu_limit"), GPU),
        weight=round(float(row.get("over_quota_weight") or 0) * 1000),
        rank=int(row.get("priority", 100)),
        cpu=_amount(row.get("deserved_cpu_milli"), 1),
        cpu_limit=_amount(row.get("cpu_limit_milli"), 1),
        memory=_amount(row.get("deserved_memory_mb"), 10**6),
        memory_limit=_amount(row.get("memory_limit_mb"), 10**6),
        reclaim_min_runtime=_ms(row.get("reclaim_min_runtime_s")),
        preempt_min_runtime=_ms(row.get("preempt_min_runtime_s")),
    )
    return ((DEFAULT_POOL, quota),)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _amount(value: object, unit: int) -> int:
    if value is None or value == "unlimited":
        return UNLIMITED
    return round(float(str(value)) * unit)


def machine(node: Json, state: State) -> Node:
    """A node row, without the resources that are stuck in releasing: no task may be promised these."""
    name = node["name"]
    stuck = [
        task.placement
        for task in state.tasks.values()
        if task.status == "stuck_in_releasing" and task.placement is not None and task.placement.node == name
    ]
    lost = {share.gpu for placement in stuck for share in placement.shares}
    gpus = tuple(
        Gpu(uuid(name, index), index, device_memory(node), foreign=uuid(name, index) in lost)
        for index in range(int(node["gpus"]))
    )
    cpu = round(float(node.get("cpu", 20000)) * 1000) - sum(placement.cpu for placement in stuck)
    memory = int(node.get("memory_bytes", 20 * 10**9)) - sum(placement.memory for placement in stuck)
    labels = {**node.get("labels", {}), NODE_NAME: name}
    filtered = state.case.get("config", {}).get("predicates_plugin", True)
    most = int(node.get("max_pods", 110)) - len(stuck) if filtered else None
    return Node(name, gpus, cpu, memory, tuple(sorted(labels.items())), max_tasks=most)


# ---------------------------------------------------------------- jobs
def _put_job(built: Built, state: State, job: Json, serial: int, now: int, epoch: int) -> None:
    case = state.case
    tasks = [task for task in state.of_job(job["name"]) if task.status not in (*GONE, "gated")]
    staying = [task for task in tasks if task.status not in ("releasing", "stuck_in_releasing")]
    leaving = [task for task in tasks if task.status == "releasing"]
    asked = {task.id: wish_of(case, task) for task in tasks}
    apart = {wish.apart for wish in asked.values()}
    shape = shape_of(job, staying, asked)
    tree = job.get("subgroups", {})
    stale = stale_since(state, job, tasks, now)
    phase = Phase.RUNNING if any(task.status in RUNNING for task in staying) else Phase.PENDING
    if stale is not None:
        phase = Phase.DEGRADED
    workload = Workload(
        job["name"],
        job["name"],
        job["project"],
        Kind.DISTRIBUTED if len(tasks) > 1 else Kind.TRAINING,
        Launch(""),
        tuple(shape.groups),
        0 if "priority" not in case.get("config", {}).get("plugins", ("priority",)) else int(job["priority"]),
        bool(job["preemptible"]),
        created=round(epoch - float(job.get("created_minutes_ago", 0)) * MINUTE),
        serial=serial,
        subgroups=tuple(shape.subgroups),
        min_groups=tree.get("min_subgroups"),
        within=within(tree) or within(job),
        phase=phase,
        phase_since=stale or 0,
        stale_grace=_ms(job.get("staleness_grace_s")),
        preemption_delay=_ms(job.get("preemption_delay_s")) or 0,
        apart=apart.pop() if len(apart) == 1 else "",
    )
    built.world.put(workload)
    for group in shape.groups:
        for index, task in enumerate(shape.members[group.name]):
            _put_task(built, workload.id, group.name, index, task, now)
    if leaving:
        # Deleted tasks return as other tasks: they get a workload of their own, which cannot be placed again.
        ghost = replace(
            workload,
            id=f"{job['name']}/leaving",
            desired=Desired.DELETED,
            phase=Phase.DELETING,
            groups=(TaskGroup("leaving", leaving[0].request, 0, len(leaving), len(leaving)),),
        )
        built.world.put(ghost)
        for index, task in enumerate(leaving):
            _put_task(built, ghost.id, "leaving", index, task, now)


def _put_task(built: Built, wid: str, group: str, index: int, task: TaskState, now: int) -> None:
    before = now - MINUTE  # the schema: running tasks started a minute before each snapshot
    row = Task(wid, f"{group}-{index}", group, index)
    if task.status in RUNNING:
        row = replace(
            row, phase=TaskPhase.RUNNING, claims=task.placement, carries=task.placement, attempt=1,
            started=before, first_started=before,
        )  # fmt: skip
    elif task.status == "pipelined":
        row = replace(row, claims=task.promised)
    elif task.status == "releasing":
        row = replace(row, phase=TaskPhase.STOPPING, carries=task.placement, attempt=1, started=before)
    elif task.status == "succeeded":
        row = replace(row, phase=TaskPhase.SUCCEEDED, attempt=1)
    elif task.status == "failed":
        row = replace(row, phase=TaskPhase.FAILED, attempt=1)
    elif task.status != "pending":
        raise ContradictionError(f"task {task.id} has the unknown status {task.status}")
    built.world.put(row)
    built.keys[task.id] = row.key


class Wish(NamedTuple):
    """What a task requires of a node. Tasks of a podset with equal wishes form one group."""

    request: Request
    nodes: tuple[str, ...]  # one of these; empty: any
    apart: str  # label key: no two tasks of its podset on nodes with equal values

    def of(self, group: TaskGroup) -> TaskGroup:
        """The group with these requirements."""
        asked = Affinity(((Term(NODE_NAME, Operator.IN, self.nodes),),)) if self.nodes else None
        return replace(group, affinity=asked, apart=self.apart)


Inside = dict[str, dict[Wish, list[TaskState]]]
"""Podset -> its tasks by wish."""


@dataclass(slots=True)
class Shape:
    """A job's tree in our model, and the tasks of its groups."""

    groups: list[TaskGroup] = field(default_factory=list)
    subgroups: list[SubGroup] = field(default_factory=list)
    members: dict[str, list[TaskState]] = field(default_factory=dict)


def wish_of(case: Json, task: TaskState) -> Wish:
    """A task's request and its constraints on nodes. Raises UnsupportedError."""
    if not case.get("config", {}).get("predicates_plugin", True):
        return Wish(task.request, (), "")
    key = task.spec.get("pod_anti_affinity_key") or ""
    if key:
        own = {row["id"] for job in case["jobs"] if job["name"] == task.job for row in job["tasks"]}
        others = (row for job in case["jobs"] for row in job["tasks"] if row["id"] not in own)
        if any(task.spec.get("labels", {}).items() <= row.get("labels", {}).items() for row in others):
            raise UnsupportedError("tasks that keep apart from those of another job")
    return Wish(task.request, tuple(task.spec.get("node_affinity") or ()), key)


def shape_of(job: Json, tasks: list[TaskState], asked: Mapping[str, Wish]) -> Shape:
    """The job's groups in the order of their placement. Raises ContradictionError."""
    shape = Shape()
    inside: Inside = {}
    for task in tasks:
        podset = (task.spec.get("subgroup") or "default") if "subgroups" in job else "default"
        inside.setdefault(podset, {}).setdefault(asked[task.id], []).append(task)
    if "subgroups" in job:
        _branch(job["subgroups"], "", inside, shape)
        _podset({"name": "default", "min_members": 0}, "", inside, shape)
    else:
        _podset({"name": "default", "min_members": least_members(job)}, "", inside, shape)
    for podset, some in inside.items():
        task = next(iter(some.values()))[0]
        raise ContradictionError(f"task {task.id} names the subgroup {podset}, which is unknown")
    return shape


def _branch(tree: Json, above: str, inside: Inside, shape: Shape) -> None:
    for group in tree.get("groups", ()):
        name = group["name"]
        shape.subgroups.append(SubGroup(name, above, group.get("min_subgroups"), within(group)))
        _branch(group, name, inside, shape)
    for podset in tree.get("podsets", ()):
        _podset(podset, above, inside, shape)


def _podset(podset: Json, above: str, inside: Inside, shape: Shape) -> None:
    """Adds a podset as one group of tasks; if their wishes differ, as a sub-group of several groups."""
    name, least = podset["name"], int(podset.get("min_members", 1))
    by_wish = inside.pop(name, {})
    total = sum(len(some) for some in by_wish.values())
    near = within(podset)
    for some in by_wish.values():
        some.sort(key=lambda task: (-(task.spec.get("task_priority", float("-inf"))), task.id))
    if len(by_wish) < 2:
        if total or least:
            wish, some = next(iter(by_wish.items()), (Wish(Request(), (), ""), []))
            most = max(least, total)
            group = TaskGroup(name, wish.request, least, most, most, parent=above, within=near)
            shape.groups.append(wish.of(group))
            shape.members[name] = some
        return
    wishes = {task.id: wish for wish, some in by_wish.items() for task in some}
    split = [[task] for some in by_wish.values() for task in some]
    if least >= total:
        split = list(by_wish.values())
    else:
        split.sort(key=lambda one: (-(one[0].spec.get("task_priority", float("-inf"))), one[0].id))
    needed = None if least >= total else least
    shape.subgroups.append(SubGroup(name, above, needed, near))
    for at, some in enumerate(split):
        part, count = f"{name}{at}", len(some)
        group = TaskGroup(part, some[0].request, count, count, count, parent=name)
        shape.groups.append(wishes[some[0].id].of(group))
        shape.members[part] = some


def within(row: Json) -> Within | None:
    """The topology constraint of a job, a group or a podset; None without one."""
    near = row.get("topology")
    if not near:
        return None
    return Within(near["topology"], near.get("required_level") or "", near.get("preferred_level") or "")


def least_members(job: Json) -> int:
    """The number of tasks that its gang needs."""
    least = job.get("min_members")
    return len(job["tasks"]) if least is None else int(least)


def _flatten(tree: Json, minimum: dict[str, int]) -> None:
    """Fills `minimum`: podset -> its minimum."""
    for group in tree.get("groups", ()):
        _flatten(group, minimum)
    for podset in tree.get("podsets", ()):
        minimum[podset["name"]] = int(podset.get("min_members", 1))


def stale_since(state: State, job: Json, tasks: list[TaskState], now: int) -> int | None:
    """The time (ms) since which it runs with some group below its minimum; None while it is whole."""
    broken = any(task.status in ACTIVE for task in tasks) and not any(
        task.status == "succeeded" for task in tasks
    )
    if broken:
        minimum: dict[str, int] = {}
        if "subgroups" in job:
            _flatten(job["subgroups"], minimum)
        else:
            minimum["default"] = least_members(job)
        used = [task for task in tasks if task.status in USED]
        broken = any(
            sum(1 for task in used if "subgroups" not in job or task.spec.get("subgroup", "default") == name)
            < least
            for name, least in minimum.items()
        )
    if not broken:
        state.stale_since.pop(job["name"], None)
        return None
    since = now - round(float(job.get("stale_for_s", 0)) * 1000)
    return state.stale_since.setdefault(job["name"], since)
