"""Routes for measurements over time: of the cluster, pools, nodes, projects, departments, workloads, pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs, unit, workload
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers, described
from pliant.api.responses.measurements import Span, as_csv, of_subject
from pliant.api.routes.organization.machines import check_that_cluster, known_node, known_pool
from pliant.api.routes.workloads.workloads import find, typed
from pliant.api.units import known_unit, may_see_unit, units
from pliant.control.errors import BadRequest, NotFound
from pliant.model.workload import Kind
from pliant.wire.measurements import MeasuredGroup, Measurements

router = Router(prefix="/api/v1", tags=["metrics over time"])

_PROFILES = (
    "GPU_GRAPHICS_ENGINE_ACTIVITY_PER_GPU", "GPU_SM_ACTIVITY_PER_GPU", "GPU_SM_OCCUPANCY_PER_GPU",
    "GPU_TENSOR_ACTIVITY_PER_GPU", "GPU_FP64_ENGINE_ACTIVITY_PER_GPU", "GPU_FP32_ENGINE_ACTIVITY_PER_GPU",
    "GPU_FP16_ENGINE_ACTIVITY_PER_GPU", "GPU_MEMORY_BANDWIDTH_UTILIZATION_PER_GPU",
    "GPU_NVLINK_TRANSMITTED_BANDWIDTH_PER_GPU", "GPU_NVLINK_RECEIVED_BANDWIDTH_PER_GPU",
    "GPU_PCIE_TRANSMITTED_BANDWIDTH_PER_GPU", "GPU_PCIE_RECEIVED_BANDWIDTH_PER_GPU",
    "NVLINK_BANDWIDTH_TOTAL", "NVLINK_BANDWIDTH_TOTAL_PER_GPU",
)  # fmt: skip
"""Run:ai's metrics that are not measured here: accepted, and reported as missing."""

OF_CLUSTER = (
    "TOTAL_GPU", "TOTAL_GPU_NODES", "ALLOCATED_GPU", "UNALLOCATED_GPU", "GPU_QUOTA", "GPU_UTILIZATION",
    "GPU_UTILIZATION_DISTRIBUTION", "GPU_MEMORY_UTILIZATION", "CPU_UTILIZATION", "CPU_MEMORY_UTILIZATION",
    "AVG_WORKLOAD_WAIT_TIME", "WORKLOADS_COUNT",
)  # fmt: skip
OF_UNITS = (
    "GPU_QUOTA", "CPU_QUOTA_MILLICORES", "CPU_MEMORY_QUOTA_MB", "GPU_ALLOCATION", "CPU_ALLOCATION_MILLICORES",
    "CPU_MEMORY_ALLOCATION_MB", "GPU_MEMORY_UTILIZATION", "GPU_UTILIZATION",
)  # fmt: skip
OF_NODES = (
    "GPU_UTILIZATION", "GPU_UTILIZATION_PER_GPU", "GPU_MEMORY_UTILIZATION", "GPU_MEMORY_UTILIZATION_PER_GPU",
    "GPU_MEMORY_USAGE_BYTES", "GPU_MEMORY_USAGE_BYTES_PER_GPU", "GPU_ALLOCATION_PER_GPU",
    "GPU_MEMORY_ALLOCATION_BYTES_PER_GPU", "GPU_IDLE_TIME_SECONDS_PER_GPU", "CPU_USAGE_CORES",
    "CPU_UTILIZATION", "CPU_MEMORY_USAGE_BYTES", "CPU_MEMORY_UTILIZATION", "GPU_OOMKILL_BURST_COUNT_PER_GPU",
    "GPU_OOMKILL_IDLE_COUNT_PER_GPU", "GPU_OOMKILL_SWAP_OUT_OF_RAM_COUNT_PER_GPU", *_PROFILES,
)  # fmt: skip
OF_PODS = (
    "GPU_UTILIZATION", "GPU_UTILIZATION_PER_GPU", "GPU_MEMORY_USAGE_BYTES", "GPU_MEMORY_USAGE_BYTES_PER_GPU",
    "CPU_USAGE_CORES", "CPU_MEMORY_USAGE_BYTES", "GPU_SWAP_MEMORY_BYTES_PER_GPU", *_PROFILES,
)  # fmt: skip
OF_WORKLOADS = (
    "GPU_ALLOCATION", "GPU_UTILIZATION", "GPU_MEMORY_USAGE_BYTES", "GPU_MEMORY_REQUEST_BYTES",
    "CPU_USAGE_CORES", "CPU_REQUEST_CORES", "CPU_LIMIT_CORES", "CPU_MEMORY_USAGE_BYTES",
    "CPU_MEMORY_REQUEST_BYTES", "CPU_MEMORY_LIMIT_BYTES", "POD_COUNT", "RUNNING_POD_COUNT",
    "NVLINK_BANDWIDTH_TOTAL",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    span: Span
    csv: bool

    def told(self, answered: Measurements) -> Response:
        if self.csv:
            return Response(as_csv(answered), media_type="text/csv")
        return answer(answered, 207 if answered["missing"] else 200)


async def _asked(
    start: Annotated[datetime, Query(description="Start of the period.")],
    end: Annotated[datetime, Query(description="Until then.")],
    samples: Annotated[
        int,
        Query(
            alias="numberOfSamples",
            ge=0,
            le=1000,
            description="Number of equal parts of the period; each has one mean.",
        ),
    ] = 20,
    accept: Annotated[str, Header(max_length=1000)] = "",
) -> Asked:
    since, until = _ms(start), _ms(end)
    if until <= since:
        raise BadRequest("The end is not after the start.", "Give a start before the end.", field="end")
    return Asked(Span(since, until, samples), "text/csv" in accept)


def _ms(moment: datetime) -> int:
    """Ms since the epoch; without an offset the time is UTC."""
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


When = Annotated[Asked, Depends(_asked)]
Pool = Annotated[str, Query(alias="nodepoolName", max_length=200)]


def _described() -> dict[str, Any]:
    told = answers(200, Measurements)
    told["responses"][200]["content"]["text/csv"] = {"schema": {"type": "string"}}
    told["responses"][207] = described(Measurements, "Some of it was not measured: `missing`")
    return told


def _names(kinds: Sequence[str]) -> Any:
    """The type of the parameter that names the metrics."""
    return Annotated[
        list[Literal[tuple(kinds)]],  # type: ignore[misc]
        Query(alias="metricType", min_length=1, max_length=100),
    ]


def _told(here: Context, subject: str, names: Sequence[str], when: Asked, part: str = "") -> Measurements:
    span = when.span
    samples = here.service.series.of(subject, span.start, span.end)
    return of_subject(samples, list(dict.fromkeys(names)), span, part)


# -- machines ---------------------------------------------------------------------------------------

_CLUSTER = needs("clusters:read")


@router.get("/clusters/{identity}/metrics", dependencies=[_CLUSTER], **_described())
def of_cluster(
    identity: str,
    here: Here,
    caller: Caller,
    when: When,
    names: _names(OF_CLUSTER),  # type: ignore[valid-type]
    by: Annotated[
        Literal["Nodepool", "Project", "Department"] | None,
        Query(alias="groupBy", description="Of projects and departments: what is about GPUs."),
    ] = None,
    pool: Pool = "",
) -> Response:
    """GPUs, what is allocated and used of them, and how long what waits has waited."""
    check_that_cluster(here.service.board, identity)
    if by is None:
        return when.told(
            _told(
                here, f"pool:{known_pool(here.service.board, pool).name}" if pool else "cluster", names, when
            )
        )
    renamed = {} if by == "Nodepool" else {"ALLOCATED_GPU": "GPU_ALLOCATION"}
    asked = list(dict.fromkeys(names))
    whole: Measurements = {"measurements": [], "histogram": [], "missing": []}
    for subject, key, name in _groups(here, caller, by, pool):
        samples = here.service.series.of(subject, when.span.start, when.span.end)
        groups: list[MeasuredGroup] = [{"key": by, "value": key, "name": name}]
        told = of_subject(samples, asked, when.span, "", groups, renamed)
        whole["measurements"] += [it for it in told["measurements"] if it["values"]]
        whole["histogram"] += told["histogram"]
    known = {it["type"] for it in (*whole["measurements"], *whole["histogram"])}
    whole["missing"] = [it for it in asked if it not in known]
    return when.told(whole)


def _groups(here: Context, caller: Caller, by: str, pool: str) -> list[tuple[str, str, str]]:
    """(subject, id, name) of those that the caller may see."""
    board = here.service.board
    if by == "Nodepool":
        rows = [row for row in board.pools if not pool or pool in (row.name, row.id)]
        return [(f"pool:{row.name}", row.id, row.name) for row in rows]
    if pool:
        raise BadRequest(
            "nodepoolName cannot be used in groups of projects.", "Leave it out.", field="nodepoolName"
        )
    what: Literal["project", "department"] = "project" if by == "Project" else "department"
    return [
        (f"{what}:{view.queue.id}", view.queue.id, view.queue.name)
        for view in units(board, what).values()
        if may_see_unit(caller, view, what)
    ]


@router.get(
    "/clusters/{identity}/nodepools/{name}/metrics", dependencies=[needs("nodepools:read")], **_described()
)
def of_pool(
    identity: str,
    name: str,
    here: Here,
    when: When,
    names: _names(OF_CLUSTER),  # type: ignore[valid-type]
) -> Response:
    """The same of one node pool, by its name or id."""
    check_that_cluster(here.service.board, identity)
    return when.told(_told(here, f"pool:{known_pool(here.service.board, name).name}", names, when))


@router.get("/nodes/{name}/metrics", dependencies=[needs("nodes:read")], **_described())
def of_node(
    name: str,
    here: Here,
    when: When,
    names: _names(OF_NODES),  # type: ignore[valid-type]
) -> Response:
    """What its GPUs are used and what Pliant's tasks use of its processors and memory."""
    return when.told(_told(here, f"node:{known_node(here.service.board, name).node.name}", names, when))


# -- projects and departments -----------------------------------------------------------------------


def _units(what: Literal["project", "department"]) -> None:
    def metrics(
        key: str,
        here: Here,
        when: When,
        names: _names(OF_UNITS),  # type: ignore[valid-type]
        pool: Pool = "",
    ) -> Response:
        board = here.service.board
        found = known_unit(board, what, key).queue.id
        return when.told(
            _told(here, f"{what}:{found}", names, when, known_pool(board, pool).name if pool else "")
        )

    metrics.__doc__ = f"Quotas of a {what}, and what was allocated and used of them."
    sees = needs(f"{what}s:read", unit(what))
    path = f"/org-unit/{what}s/{{key}}/metrics"
    router.get(path, name=f"metrics_of_{what}", dependencies=[sees], **_described())(metrics)


_units("project")
_units("department")


# -- workloads --------------------------------------------------------------------------------------


@router.get("/workloads/{identity}/metrics", dependencies=[needs("workloads:read", workload)], **_described())
def of_workload(
    identity: str,
    here: Here,
    when: When,
    names: _names(OF_WORKLOADS),  # type: ignore[valid-type]
) -> Response:
    """Summed over its tasks, from its first minute to its last."""
    return when.told(_told(here, f"workload:{identity}", names, when))


@router.get(
    "/workloads/inferences/{identity}/metrics",
    dependencies=[needs("workloads:read", workload)],
    **_described(),
)
def of_inference(
    identity: str,
    here: Here,
    when: When,
    names: _names(OF_WORKLOADS),  # type: ignore[valid-type]
) -> Response:
    """The same of an inference: summed over its replicas."""
    typed(here, identity, Kind.INFERENCE)
    return of_workload(identity, here, when, names)


@router.get(
    "/workloads/{identity}/pods/{pod}/metrics",
    dependencies=[needs("workloads:read", workload)],
    **_described(),
)
def of_pod(
    identity: str,
    pod: str,
    here: Here,
    caller: Caller,
    when: When,
    names: _names(OF_PODS),  # type: ignore[valid-type]
) -> Response:
    """Of one task, by the name or id of its pod."""
    renderer = here.renderer(caller)
    view = find(here, identity, renderer.board)
    items = renderer.pods(view, here.service.attempts(identity))
    found = next((it for it in items if pod in (it["name"], it["id"])), None)
    if found is None:
        known = ", ".join(it["name"] for it in items[:10]) or "none yet"
        raise NotFound(f"{view.workload.name} has no pod {pod[:60]!r}.", f"It has {known}.")
    task = str(found["containers"][0]["name"])
    return when.told(_told(here, f"workload:{identity}", names, when, task))
