"""Routes for current amounts of workloads, nodes and quotas, summed by group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from fastapi import Query, Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.loads import load_of
from pliant.api.responses.organization import parent_of
from pliant.api.responses.times import stamp
from pliant.api.units import may_see_unit
from pliant.control.board.view import Board, NodeView, PoolUse, QueueView, WorkloadView
from pliant.control.errors import NotFound
from pliant.model.quantity import Resources
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import Phase
from pliant.wire.cluster import Telemetry, TelemetryValue
from pliant.wire.workload import WorkloadLoads

router = Router(prefix="/api/v1", tags=["telemetry"])

T = TypeVar("T")
Group = Callable[[T], tuple[str, str]]
"""(value, its name) of the group of an entry."""


def _summed(
    entries: Iterable[T], amount: Callable[[T], float], keys: Sequence[str], groups: Mapping[str, Group[T]]
) -> list[TelemetryValue]:
    """The sums by the keys; without keys one value, 0 if there are no entries."""
    keys = list(dict.fromkeys(keys))
    found: dict[tuple[tuple[str, str], ...], float] = {} if keys else {(): 0}
    for entry in entries:
        place = tuple(groups[key](entry) for key in keys)
        found[place] = found.get(place, 0) + amount(entry)
    return [
        {
            "value": f"{total:.15g}",
            "groups": [
                {"key": key, "value": value, "name": name}
                for key, (value, name) in zip(keys, place, strict=True)
            ],
        }
        for place, total in sorted(found.items())
    ]


def _told(here: Context, kind: str, values: Sequence[TelemetryValue]) -> Response:
    return answer({"type": kind, "timestamp": stamp(here.service.now()), "values": list(values)})


def _cluster(board: Board, asked: str) -> tuple[str, str]:
    """(uuid, name) of the cluster; refuses another one."""
    cluster = board.cluster
    known = (cluster.uuid, cluster.name) if cluster is not None else ("", "")
    if asked and asked not in known:
        raise NotFound(
            f"There is no cluster {asked[:60]!r}.", f"This server's is {known[0]}.", field="clusterId"
        )
    return known


Cluster = Annotated[str, Query(alias="clusterId", max_length=200)]


# -- workloads --------------------------------------------------------------------------------------

WorkloadKeys = Literal[
    "ClusterId", "DepartmentId", "ProjectId", "Type", "CurrentNodepools", "Phase", "Category"
]
_PHASES = tuple(phase.value for phase in Phase)
_PENDING = ((60, "<1m"), (600, "1m-10m"), (3600, "10m-1h"), (86_400, "1h-24h"))


def _bucket(seconds: float) -> str:
    return next((name for most, name in _PENDING if seconds < most), ">24h")


@router.get("/workloads/telemetry", dependencies=[needs("workloads:read")], **answers(200, Telemetry))
def of_workloads(
    here: Here,
    caller: Caller,
    kind: Annotated[
        Literal["WORKLOADS_COUNT", "GPU_ALLOCATION", "PENDING_TIME_DISTRIBUTION"],
        Query(alias="telemetryType"),
    ],
    by: Annotated[list[WorkloadKeys] | None, Query(alias="groupBy")] = None,
    cluster: Cluster = "",
    pool: Annotated[str, Query(alias="nodepoolName", max_length=200)] = "",
    department: Annotated[str, Query(alias="departmentId", max_length=200)] = "",
    phases: Annotated[
        list[Literal[_PHASES]] | None,  # type: ignore[valid-type]
        Query(alias="filterByPhases"),
    ] = None,
) -> Response:
    """How many there are, which GPUs they hold, or how long those that are pending have waited."""
    board = here.service.board
    uid = _cluster(board, cluster)
    views = [
        view
        for view in board.workloads.values()
        if caller.sees(view, board)
        and (not pool or view.pool == pool)
        and (not department or view.project.department == department)
        and (not phases or view.workload.phase.value in phases)
    ]
    groups: dict[str, Group[WorkloadView]] = {
        "ClusterId": lambda view: uid,
        "DepartmentId": lambda view: (
            view.project.department,
            view.department.name if view.department is not None else "",
        ),
        "ProjectId": lambda view: (view.project.id, view.project.name),
        "Type": lambda view: (view.workload.kind.value,) * 2,
        "CurrentNodepools": lambda view: (view.pool,) * 2,
        "Phase": lambda view: (view.workload.phase.value,) * 2,
        "Category": lambda view: (view.workload.category,) * 2,
    }
    keys: list[str] = list(by or ())
    if kind == "GPU_ALLOCATION":
        return _told(here, kind, _summed(views, lambda view: view.gpu / 1000, keys, groups))
    if kind == "PENDING_TIME_DISTRIBUTION":
        now = here.service.now()
        views = [view for view in views if view.workload.phase is Phase.PENDING]
        groups["PendingTime"] = lambda view: (_bucket((now - view.workload.phase_since) / 1000),) * 2
        keys.append("PendingTime")
    return _told(here, kind, _summed(views, lambda view: 1, keys, groups))


@router.get("/workloads/load", dependencies=[needs("workloads:read")], **answers(200, WorkloadLoads))
def load(here: Here, caller: Caller) -> Response:
    """What the workloads that run use now of processors, memory and GPUs, where it can be measured."""
    board, now = here.service.board, here.service.load()
    uses = here.service.uses()
    seen = [view for view in board.workloads.values() if view.running and caller.sees(view, board)]
    told: WorkloadLoads = {
        "timestamp": stamp(here.service.now()),
        "workloads": [load_of(view, now, uses) for view in seen],
    }
    return answer(told)


# -- nodes ------------------------------------------------------------------------------------------

_OF_NODES: Mapping[str, Callable[[NodeView], float]] = {
    "READY_GPU_NODES": lambda view: bool(view.gpus) and view.node.ready,
    "READY_GPUS": lambda view: len(view.gpus) if view.node.ready else 0,
    "TOTAL_GPU_NODES": lambda view: bool(view.gpus),
    "TOTAL_GPUS": lambda view: len(view.gpus),
    "FREE_GPUS": lambda view: sum(1000 - gpu.carried for gpu in view.gpus) / 1000,
    "FULLY_FREE_GPU_NODES": lambda view: bool(view.gpus) and not any(gpu.carried for gpu in view.gpus),
    "ALLOCATED_GPUS": lambda view: view.used.gpu / 1000,
    "TOTAL_CPU_CORES": lambda view: view.node.cpu / 1000,
    "ALLOCATED_CPU_CORES": lambda view: view.used.cpu / 1000,
    "TOTAL_CPU_MEMORY": lambda view: view.node.memory,
    "ALLOCATED_CPU_MEMORY": lambda view: view.used.memory,
    "TOTAL_GPU_MEMORY": lambda view: sum(gpu.memory for gpu in view.node.gpus),
}


@router.get("/nodes/telemetry", dependencies=[needs("nodes:read")], **answers(200, Telemetry))
def of_nodes(
    here: Here,
    kind: Annotated[Literal[tuple(_OF_NODES)], Query(alias="telemetryType")],  # type: ignore[valid-type]
    by: Annotated[list[Literal["ClusterId", "Nodepool", "Node"]] | None, Query(alias="groupBy")] = None,
    cluster: Cluster = "",
    pool: Annotated[str, Query(alias="nodepoolName", max_length=200)] = "",
) -> Response:
    """What the nodes have: GPUs, cores, bytes; and what of it is allocated or free."""
    board = here.service.board
    uid = _cluster(board, cluster)
    groups: dict[str, Group[NodeView]] = {
        "ClusterId": lambda view: uid,
        "Nodepool": lambda view: (view.pool,) * 2,
        "Node": lambda view: (view.node.name,) * 2,
    }
    views = [view for view in board.nodes if not pool or view.pool == pool]
    return _told(here, kind, _summed(views, _OF_NODES[kind], by or (), groups))


# -- projects and departments -----------------------------------------------------------------------

PoolOfQueue = tuple[QueueView, PoolUse]


def _of(part: Callable[[PoolUse], Resources], what: str) -> Callable[[PoolOfQueue], float]:
    """GPUs, millicores, or MB."""
    unit = {"gpu": 1000, "cpu": 1, "memory": 10**6}[what]
    return lambda held: getattr(part(held[1]), what) / unit


def _quota(field: str, unit: int) -> Callable[[PoolOfQueue], float]:
    def amount(held: PoolOfQueue) -> float:
        value: int = getattr(held[0].queue.quota(held[1].pool), field)
        return 0 if value == UNLIMITED else value / unit

    return amount


_OF_UNITS: Mapping[str, Callable[[PoolOfQueue], float]] = {
    "GPU_QUOTA": lambda held: held[1].quota / 1000,
    "CPU_QUOTA": _quota("cpu", 1),
    "MEMORY_QUOTA": _quota("memory", 10**6),
    **{
        f"{what.upper()}_ALLOCATION": _of(lambda use: use.allocated, what)
        for what in ("gpu", "cpu", "memory")
    },
    **{
        f"{what.upper()}_ALLOCATION_NON_PREEMPTIBLE": _of(lambda use: use.non_preemptible, what)
        for what in ("gpu", "cpu", "memory")
    },
}


def _units(what: Literal["project", "department"]) -> None:
    def telemetry(
        here: Here,
        caller: Caller,
        kind: Annotated[Literal[tuple(_OF_UNITS)], Query(alias="telemetryType")],  # type: ignore[valid-type]
        by: Annotated[
            list[Literal["ClusterId", "NodepoolId", "ParentId", "Id"]] | None, Query(alias="groupBy")
        ] = None,
        cluster: Cluster = "",
        pool: Annotated[str, Query(alias="nodepoolId", max_length=200)] = "",
        department: Annotated[str, Query(alias="departmentId", max_length=200)] = "",
    ) -> Response:
        board = here.service.board
        uid = _cluster(board, cluster)
        ids = {row.name: row.id for row in board.pools}
        names = {key: view.queue.name for key, view in board.departments.items()}
        groups: dict[str, Group[PoolOfQueue]] = {
            "ClusterId": lambda held: uid,
            "NodepoolId": lambda held: (ids.get(held[1].pool, ""), held[1].pool),
            "ParentId": lambda held: (parent := parent_of(held[0].queue), names.get(parent, "")),
            "Id": lambda held: (held[0].queue.id, held[0].queue.name),
        }
        found = board.projects if what == "project" else board.departments
        held = [
            (view, use)
            for view in found.values()
            if may_see_unit(caller, view, what)
            for use in view.uses
            if (not pool or pool in (use.pool, ids.get(use.pool)))
            and (not department or parent_of(view.queue) == department)
        ]
        return _told(here, kind, _summed(held, _OF_UNITS[kind], by or (), groups))

    telemetry.__doc__ = f"Quotas of {what}s, and what is allocated of them: GPUs, millicores, MB."
    path, reads = f"/org-unit/{what}s/telemetry", needs(f"{what}s:read")
    router.get(path, name=f"telemetry_of_{what}s", dependencies=[reads], **answers(200, Telemetry))(telemetry)


_units("project")
_units("department")
