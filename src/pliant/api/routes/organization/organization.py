"""Routes for projects and departments, their quotas, and the ranks between them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Response

from pliant.api.context import Context, Here
from pliant.api.guard import check, demand, needs, unit, unit_target
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal, unit_place
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.repeats import answered
from pliant.api.requests.parse_submission import check_cluster
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.organization import RANKS, UnitRenderer, parent_of
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received
from pliant.api.units import known_unit, may_see_unit, unit_named, units
from pliant.control.board.view import Board, QueueView
from pliant.control.errors import BadRequest
from pliant.control.usecases.changes import QueueChange, QuotaChange, revision
from pliant.model.machine import DEFAULT_POOL
from pliant.model.quantity import GPU
from pliant.model.rights import Place
from pliant.model.tenancy import UNLIMITED, Department, Project, Queue, Quota
from pliant.wire.organization import (
    DepartmentList,
    GpuQuota,
    OlderRanks,
    OrgUnitItem,
    PlainQuota,
    PoolQuota,
    ProjectList,
    QuotaRequest,
    QuotaSheet,
    Ranks,
    Rules,
    UnitChange,
    UnitRequest,
)
from pliant.wire.workload import Counted

router = Router(prefix="/api/v1/org-unit", tags=["projects and departments"])


_UNITS = {"MB": 10**6, "Mib": 2**20, "GB": 10**9}
_LIMITS = {
    "interactiveJobTimeLimitSeconds": "interactive",
    "interactiveJobMaxIdleDurationSeconds": "interactive_idle",
    "interactiveJobPreemptIdleDurationSeconds": "interactive_preemptible_idle",
    "trainingJobMaxIdleDurationSeconds": "training_idle",
    "trainingJobTimeLimitSeconds": "training",
}


# -- reading a body ---------------------------------------------------------------------------------


def change_of(body: UnitRequest | UnitChange, here: Context) -> QueueChange:
    """The changes that the body names. Raises BadRequest, NotFound."""
    check_cluster(body.get("clusterId"), here.service.board)
    if body.get("enforceRunaiScheduler", True) is False:
        raise BadRequest(
            "enforceRunaiScheduler is false.",
            "There is no other scheduler: leave it out.",
            field="enforceRunaiScheduler",
        )
    if (namespace := body.get("requestedNamespace")) and namespace != f"runai-{body.get('name')}":
        raise BadRequest(
            f"The namespace {namespace[:60]!r} cannot be chosen.",
            "A project's namespace is runai- and its name: leave requestedNamespace out.",
            field="requestedNamespace",
        )
    types = body.get("nodeTypes", {})
    quotas = tuple(quota_change(entry, here) for entry in body.get("resources", ()))
    pools = [pool for pool, _ in quotas]
    if twice := next((pool for pool in pools if pools.count(pool) > 1), None):
        raise BadRequest(
            f"resources: pool {twice} is named twice.", "Name each pool once.", field="resources"
        )
    return QueueChange(
        name=body.get("name"),
        quotas=quotas,
        limits=_limits(body["schedulingRules"]) if "schedulingRules" in body else None,
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
        raise BadRequest(
            "resources: gpu.deserved is -1.",
            "Give 0 or more: only limits have no bound.",
            field="resources.gpu.deserved",
        )
    return name, QuotaChange(
        gpu=_named(gpu, "deserved", GPU, "gpu.deserved"),
        gpu_limit=_named(gpu, "limit", GPU, "gpu.limit"),
        weight=_named(gpu, "overQuotaWeight", 1000, "gpu.overQuotaWeight"),
        rank=_rank(entry),
        cpu=_named(cpu, "deserved", 1, "cpu.deserved"),
        cpu_limit=_named(cpu, "limit", 1, "cpu.limit"),
        memory=_named(memory, "deserved", unit, "memory.deserved"),
        memory_limit=_named(memory, "limit", unit, "memory.limit"),
        reclaim_min_runtime=_named(entry, "reclaimMinRuntimeSeconds", 1000, "reclaimMinRuntimeSeconds"),
        preempt_min_runtime=_named(entry, "preemptMinRuntimeSeconds", 1000, "preemptMinRuntimeSeconds"),
    )


def _rank(entry: QuotaRequest) -> int | None:
    """The rank by either of its names; both at once must agree."""
    said = {rank_of(entry[field]) for field in ("rank", "priority") if field in entry}
    if len(said) > 1:
        raise BadRequest(
            f"resources: rank is {entry['rank']} and priority is {entry['priority']}.",
            "Both set the rank: send rank only.",
            field="resources.rank",
        )
    return next(iter(said), None)


def _named(part: GpuQuota | PlainQuota | QuotaRequest, field: str, unit: int, where: str) -> int | None:
    """None if it was not sent, which leaves it; a null that was sent lifts the bound."""
    if field not in part:
        return None
    value: float | None = part[field]  # type: ignore[literal-required]
    return UNLIMITED if value is None else _bound(value, unit, where)


def _bound(value: float, unit: int, where: str) -> int:
    if value == -1:
        return UNLIMITED
    if value < 0:
        raise BadRequest(
            f"resources: {where} is {value:g}.",
            "Give 0 or more, or -1 for no bound.",
            field=f"resources.{where}",
        )
    exact = Decimal(repr(value)) * unit
    if exact != exact.to_integral_value():
        raise BadRequest(
            f"resources: {where} is {value!r}, which has too many decimals.",
            field=f"resources.{where}",
        )
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
    raise BadRequest(
        f"There is no rank {word[:40]!r}.",
        f"Choose one of {words}, or a whole number.",
        field="resources.rank",
    )


def _limits(rules: Rules) -> dict[str, int | None]:
    return {
        _LIMITS[rule]: None if seconds is None else seconds * 1000
        for rule, seconds in cast("dict[str, int | None]", rules).items()
        if rule in _LIMITS
    }


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
Asked = Annotated[Window, Depends(_listing.asked)]


IfMatch = Annotated[
    str, Header(alias="If-Match", max_length=1000, description="ETag of what was read: changed only then.")
]


def _revisions(match: str) -> tuple[str, ...]:
    """'"a", "b"' -> ('a', 'b'); () for * and for nothing: any revision."""
    found = tuple(part.strip().removeprefix("W/").strip('"') for part in match.split(","))
    return () if "*" in found or not match.strip() else found


def _quotas(body: Sequence[QuotaRequest], here: Context) -> QueueChange:
    return change_of({"resources": list(body)}, here)


def _below(here: Context, key: str | None) -> Place:
    """The place of the department with that id or name, by default of the one named default."""
    found = unit_named(here.service.board, "department", key or "default")
    return Place(found.queue.id if found is not None else "-")


def _routes(what: str, one: Callable[..., Any], page: Any) -> None:
    def rendered(here: Context, key: str, status: int = 200) -> Response:
        board = here.service.board
        view = known_unit(board, what, key)
        made = answer(UnitRenderer(board, here.service.now()).unit(view), status)
        made.headers["ETag"] = f'"{revision(view.queue)}"'
        return made

    def found(here: Context, key: str) -> Queue:
        return known_unit(here.service.board, what, key).queue

    def changed(here: Context, caller: Caller, key: str, change: QueueChange) -> Project | Department:
        service = here.service
        update = service.update_project if what == "project" else service.update_department
        return update(key, change, caller.user)

    def seen(board: Board, caller: Principal) -> list[QueueView]:
        return [view for view in units(board, what).values() if may_see_unit(caller, view, what)]

    def index(here: Here, asked: Asked, caller: Caller) -> Response:
        board = here.service.board
        entries = sorted(seen(board, caller), key=lambda view: int(view.queue.id))
        return answer(_listing.page(f"{what}s", entries, asked, UnitRenderer(board, here.service.now()).unit))

    def count(here: Here, asked: Asked, caller: Caller) -> Response:
        return answer(_listing.count(seen(here.service.board, caller), asked))

    def create(body: Received[UnitRequest], here: Here, caller: Caller) -> Response:
        change = change_of(body, here)
        if what == "project":
            demand(caller, "projects:create", _below(here, change.department))
        make = here.service.create_project if what == "project" else here.service.create_department
        return answered(
            lambda: make(change, caller.user),
            lambda queue: rendered(here, queue.id, 201),
            lambda queue: f"/api/v1/org-unit/{what}s/{queue.id}",
        )

    def read(key: str, here: Here) -> Response:
        """By id or name."""
        return rendered(here, key)

    def update(
        key: str, body: Received[UnitChange], here: Here, caller: Caller, match: IfMatch = ""
    ) -> Response:
        """What is named is set, all else stays."""
        queue = found(here, key)
        if body.get("name", queue.name) != queue.name:
            raise BadRequest(f"The name of a {what} cannot be changed.", "Make another one.", field="name")
        place = unit_place(known_unit(here.service.board, what, key).queue)
        if what == "project" and body.get("resources"):
            demand(caller, "projects:quota", place)
        if what == "project" and ("parentId" in body or "departmentName" in body):
            demand(caller, "projects:create", _below(here, body.get("parentId", body.get("departmentName"))))
        change = replace(change_of({**body, "name": queue.name}, here), only_if=_revisions(match))
        return rendered(here, changed(here, caller, queue.id, change).id)

    def resources(
        key: str, body: Received[list[QuotaRequest]], here: Here, caller: Caller, match: IfMatch = ""
    ) -> Response:
        """Only its quotas; those of pools that are not named stay."""
        identity = found(here, key).id
        changed(here, caller, identity, replace(_quotas(body, here), only_if=_revisions(match)))
        board = here.service.board
        view = known_unit(board, what, identity)
        renderer = UnitRenderer(board, here.service.now())
        made = answer([renderer.resources(view, use) for use in view.uses])
        made.headers["ETag"] = f'"{revision(view.queue)}"'
        return made

    def sheet(body: Received[QuotaSheet], here: Here, caller: Caller) -> Response:
        """Quotas of several at once: all are changed, or none."""
        service = here.service
        right = "projects:quota" if what == "project" else "departments:update"
        for number, row in enumerate(body["entries"]):
            check(caller, right, unit_target(service.board, what, row["id"], f"entries[{number}].id"))
        changes = [
            (row["id"], replace(_quotas(row["resources"], here), only_if=_revisions(row.get("etag", ""))))
            for row in body["entries"]
        ]
        done: Sequence[Queue]
        if what == "project":
            done = service.update_projects(changes, caller.user)
        else:
            done = service.update_departments(changes, caller.user)
        board = service.board
        renderer = UnitRenderer(board, service.now())
        views = units(board, what)
        items = [renderer.unit(views[queue.id]) for queue in done if queue.id in views]
        return answer({f"{what}s": items})

    def delete(key: str, here: Here, caller: Caller) -> Response:
        service = here.service
        identity = found(here, key).id
        (service.delete_project if what == "project" else service.delete_department)(identity, caller.user)
        return empty()

    reads, writes = needs(f"{what}s:read", unit(what)), needs(f"{what}s:update", unit(what))
    shares = needs("projects:quota" if what == "project" else "departments:update", unit(what))
    ends = needs(f"{what}s:delete", unit(what))
    base, each = f"/{what}s", f"/{what}s/{{key}}"
    router.get(base, name=f"list_{what}s", dependencies=[needs(f"{what}s:read")], **answers(200, page))(index)
    router.get(
        f"{base}/count", name=f"count_{what}s", dependencies=[needs(f"{what}s:read")], **answers(200, Counted)
    )(count)
    router.post(base, name=f"create_{what}", dependencies=[needs(f"{what}s:create")], **answers(201, one))(
        create
    )
    router.get(each, name=f"get_{what}", dependencies=[reads], **answers(200, one))(read)
    router.put(each, name=f"put_{what}", dependencies=[writes], **answers(200, one))(update)
    router.patch(each, name=f"patch_{what}", dependencies=[writes], **answers(200, one))(update)
    router.post(
        f"{base}/node-pool-resources/batch-patch",
        name=f"patch_{what}s_resources",
        dependencies=[needs("projects:quota" if what == "project" else "departments:update")],
        **answers(200, page),
    )(sheet)
    quotas = answers(200, list[PoolQuota])
    router.patch(f"{each}/resources", name=f"patch_{what}_resources", dependencies=[shares], **quotas)(
        resources
    )
    router.put(f"{each}/resources", name=f"put_{what}_resources", dependencies=[shares], **quotas)(resources)
    router.delete(each, name=f"delete_{what}", dependencies=[ends], status_code=204, response_model=None)(
        delete
    )


_routes("project", OrgUnitItem, ProjectList)
_routes("department", OrgUnitItem, DepartmentList)


@router.get("/priorities", dependencies=[needs("priorities:read")], **answers(200, OlderRanks))
def ranks() -> Response:
    """Ranks among siblings: the higher one is served first, before weights matter."""
    return answer({"priorities": _ranks()})


def _ranks() -> list[dict[str, Any]]:
    return [
        {"name": name, "value": value, "isDefault": value == Quota().rank} for name, value in RANKS.items()
    ]


@router.get("/ranks", dependencies=[needs("priorities:read")], **answers(200, Ranks))
def ranks_by_their_later_name() -> Response:
    """The same by the name that they have since Run:ai 2.25."""
    return answer({"ranks": _ranks()})
