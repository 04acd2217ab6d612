"""Who owns quota: projects and departments, and the ranks between them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Response

from pliant.api.auth import Caller
from pliant.api.context import Context, Here
from pliant.api.listing import Listing, Window, window
from pliant.api.models import Received
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.organization import RANKS, UnitRenderer, parent_of
from pliant.api.responses.times import stamp
from pliant.control.board.view import QueueView
from pliant.control.errors import BadRequest, NotFound
from pliant.control.usecases.tenancy import QueueChange, QuotaChange
from pliant.model.machine import DEFAULT_POOL
from pliant.model.quantity import GPU
from pliant.model.tenancy import UNLIMITED, Department, Project, Quota, TimeLimits
from pliant.wire.organization import (
    DepartmentList,
    GpuQuota,
    OrgUnitItem,
    PlainQuota,
    PoolQuota,
    Priorities,
    ProjectList,
    QuotaRequest,
    Ranks,
    Rules,
    UnitRequest,
)
from pliant.wire.workload import Counted

router = APIRouter(prefix="/api/v1/org-unit", tags=["projects and departments"])

Asked = Annotated[Window, Depends(window)]

_UNITS = {"MB": 10**6, "Mib": 2**20, "GB": 10**9}
_LIMITS = {
    "interactiveJobTimeLimitSeconds": "interactive",
    "interactiveJobMaxIdleDurationSeconds": "interactive_idle",
    "interactiveJobPreemptIdleDurationSeconds": "interactive_preemptible_idle",
    "trainingJobMaxIdleDurationSeconds": "training_idle",
    "trainingJobTimeLimitSeconds": "training",
}


# -- reading a body ---------------------------------------------------------------------------------


def change_of(body: UnitRequest, before: TimeLimits, here: Context) -> QueueChange:
    """What the body names; `before` are the limits in time that stand."""
    types = body.get("nodeTypes", {})
    quotas = tuple(quota_change(entry, here) for entry in body.get("resources", ()))
    pools = [pool for pool, _ in quotas]
    if twice := next((pool for pool in pools if pools.count(pool) > 1), None):
        raise BadRequest(f"resources: pool {twice} is named twice.", "Name each pool once.")
    return QueueChange(
        name=body.get("name"),
        quotas=quotas,
        limits=_limits(body["schedulingRules"], before) if "schedulingRules" in body else None,
        description=body.get("description"),
        department=body.get("parentId", body.get("departmentName")),
        default_pools=tuple(body["defaultNodePools"]) if "defaultNodePools" in body else None,
        interactive_node_types=tuple(types["workspace"]) if "workspace" in types else None,
        training_node_types=tuple(types["training"]) if "training" in types else None,
    )


def quota_change(entry: QuotaRequest, here: Context) -> tuple[str, QuotaChange]:
    pool = entry.get("nodePool", {})
    key = pool.get("name") or pool.get("id") or DEFAULT_POOL
    # The service takes pools by name; Run:ai's clients may know only the id.
    name = next((row.name for row in here.service.board.pools if key == row.id), key)
    gpu, cpu, memory = entry.get("gpu", {}), entry.get("cpu", {}), entry.get("memory", {})
    unit = _UNITS[memory.get("units", "MB")]
    if gpu.get("deserved") == UNLIMITED:
        raise BadRequest("resources: gpu.deserved is -1.", "Give 0 or more: only limits have no bound.")
    return name, QuotaChange(
        gpu=_named(gpu, "deserved", GPU, "gpu.deserved"),
        gpu_limit=_named(gpu, "limit", GPU, "gpu.limit"),
        weight=_named(gpu, "overQuotaWeight", 1000, "gpu.overQuotaWeight"),
        rank=rank_of(entry["priority"]) if "priority" in entry else None,
        cpu=_named(cpu, "deserved", 1, "cpu.deserved"),
        cpu_limit=_named(cpu, "limit", 1, "cpu.limit"),
        memory=_named(memory, "deserved", unit, "memory.deserved"),
        memory_limit=_named(memory, "limit", unit, "memory.limit"),
        reclaim_min_runtime=_named(entry, "reclaimMinRuntimeSeconds", 1000, "reclaimMinRuntimeSeconds"),
        preempt_min_runtime=_named(entry, "preemptMinRuntimeSeconds", 1000, "preemptMinRuntimeSeconds"),
    )


def _named(part: GpuQuota | PlainQuota | QuotaRequest, field: str, unit: int, where: str) -> int | None:
    """None: not named, leave it. A null that was sent lifts the bound."""
    if field not in part:
        return None
    value: float | None = part[field]  # type: ignore[literal-required]
    return UNLIMITED if value is None else _bound(value, unit, where)


def _bound(value: float, unit: int, where: str) -> int:
    if value == -1:
        return UNLIMITED
    if value < 0:
        raise BadRequest(f"resources: {where} is {value:g}.", "Give 0 or more, or -1 for no bound.")
    exact = Decimal(repr(value)) * unit
    if exact != exact.to_integral_value():
        raise BadRequest(f"resources: {where} is {value!r}, which is finer than can be counted.")
    return int(exact)


def rank_of(word: str) -> int:
    """'Medium Low', 'medium-low' or a number -> its value."""
    plain = word.replace("-", "").replace("_", "").replace(" ", "").casefold()
    for name, value in RANKS.items():
        if plain == name.replace(" ", "").casefold():
            return value
    if word.isascii() and word.isdigit() and len(word) < 10:
        return int(word)
    words = ", ".join(name.lower().replace(" ", "-") for name in RANKS)
    raise BadRequest(f"There is no rank {word[:40]!r}.", f"Choose one of {words}, or a whole number.")


def _limits(rules: Rules, before: TimeLimits) -> TimeLimits:
    named = {
        _LIMITS[rule]: None if seconds is None else seconds * 1000
        for rule, seconds in cast("dict[str, int | None]", rules).items()
        if rule in _LIMITS
    }
    return replace(before, **named)


# -- projects and departments are the same but for their place --------------------------------------


_listing: Listing[QueueView] = Listing(
    {
        "id": lambda view: view.queue.id,
        "name": lambda view: view.queue.name,
        "description": lambda view: view.queue.description,
        "createdAt": lambda view: stamp(view.queue.created),
        "parentId": lambda view: parent_of(view.queue),
        "departmentId": lambda view: parent_of(view.queue),
        "totalGpuQuota": lambda view: gpus(sum(use.quota for use in view.uses)),
        "gpuAllocated": lambda view: gpus(sum(use.allocated.gpu for use in view.uses)),
    },
    searched=("name", "description"),
)


def _find(views: Mapping[str, QueueView], key: str, what: str) -> QueueView:
    """By id or name."""
    for view in views.values():
        if key in (view.queue.id, view.queue.name):
            return view
    raise NotFound(
        f"There is no {what} {key[:60]!r}.",
        f"See them with: pliant {what} list (GET /api/v1/org-unit/{what}s)",
    )


def _routes(what: str, one: Callable[..., Any], page: Any) -> None:
    def views(here: Context) -> Mapping[str, QueueView]:
        board = here.service.board
        return board.projects if what == "project" else board.departments

    def rendered(here: Context, identity: str, status: int) -> Response:
        renderer = UnitRenderer(here.service.board, here.service.now())
        return answer(renderer.unit(views(here)[identity]), status)

    def changed(here: Context, caller: Caller, key: str, change: QueueChange) -> Project | Department:
        service = here.service
        update = service.update_project if what == "project" else service.update_department
        return update(key, change, caller.user)

    def index(here: Here, asked: Asked) -> Response:
        renderer = UnitRenderer(here.service.board, here.service.now())
        entries = sorted(views(here).values(), key=lambda view: int(view.queue.id))
        return answer(_listing.page(f"{what}s", entries, asked, renderer.unit))

    def count(here: Here, asked: Asked) -> Response:
        return answer(_listing.count(views(here).values(), asked))

    def create(body: Received[UnitRequest], here: Here, caller: Caller) -> Response:
        service = here.service
        change = change_of(body, TimeLimits(), here)
        if not change.name:
            raise BadRequest(f"The {what} has no name.", "Set name.")
        make = service.create_project if what == "project" else service.create_department
        return rendered(here, make(change, caller.user).id, 201)

    def read(key: str, here: Here) -> Response:
        """By id or name."""
        return rendered(here, _find(views(here), key, what).queue.id, 200)

    def update(key: str, body: Received[UnitRequest], here: Here, caller: Caller) -> Response:
        """What is named is set, all else stays."""
        queue = _find(views(here), key, what).queue
        if body.get("name", queue.name) != queue.name:
            raise BadRequest(f"The name of a {what} cannot be changed.", "Make another one.")
        return rendered(here, changed(here, caller, queue.id, change_of(body, queue.limits, here)).id, 200)

    def resources(key: str, body: Received[list[QuotaRequest]], here: Here, caller: Caller) -> Response:
        """Only its quotas; those of pools that are not named stay."""
        identity = _find(views(here), key, what).queue.id
        changed(
            here, caller, identity, QueueChange(quotas=tuple(quota_change(entry, here) for entry in body))
        )
        view = views(here)[identity]
        renderer = UnitRenderer(here.service.board, here.service.now())
        return answer([renderer.resources(view, use) for use in view.uses])

    def delete(key: str, here: Here, caller: Caller) -> Response:
        service = here.service
        identity = _find(views(here), key, what).queue.id
        (service.delete_project if what == "project" else service.delete_department)(identity, caller.user)
        return empty()

    base, each = f"/{what}s", f"/{what}s/{{key}}"
    router.get(base, name=f"list_{what}s", **answers(200, page))(index)
    router.get(f"{base}/count", name=f"count_{what}s", **answers(200, Counted))(count)
    router.post(base, name=f"create_{what}", **answers(201, one))(create)
    router.get(each, name=f"get_{what}", **answers(200, one))(read)
    router.put(each, name=f"put_{what}", **answers(200, one))(update)
    router.patch(each, name=f"patch_{what}", **answers(200, one))(update)
    quotas = answers(200, list[PoolQuota])
    router.patch(f"{each}/resources", name=f"patch_{what}_resources", **quotas)(resources)
    router.put(f"{each}/resources", name=f"put_{what}_resources", **quotas)(resources)
    router.delete(each, name=f"delete_{what}", status_code=204, response_model=None)(delete)


_routes("project", OrgUnitItem, ProjectList)
_routes("department", OrgUnitItem, DepartmentList)


@router.get("/priorities", **answers(200, Priorities))
def ranks() -> Response:
    """Ranks among siblings: the higher one is served first, before weights matter."""
    return answer({"priorities": _ranks()})


def _ranks() -> list[dict[str, Any]]:
    return [
        {"name": name, "value": value, "isDefault": value == Quota().rank} for name, value in RANKS.items()
    ]


@router.get("/ranks", **answers(200, Ranks))
def ranks_by_their_later_name() -> Response:
    """The same by the name that they have since Run:ai 2.25."""
    return answer({"ranks": _ranks()})
