"""Routes for environments, compute, data sources, credentials and templates, each with a name and a scope."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Query, Response

from pliant.api.context import Context, Here
from pliant.api.guard import demand, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal, unit_place
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.repeats import answered
from pliant.api.requests.completion import concerns, policy_for, violations
from pliant.api.requests.parse_submission import check_cluster, told_of
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received, without_effect
from pliant.api.units import seen_project, seen_unit, unit_named
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.policy import filled
from pliant.model.asset import CREDENTIALS, DATA_SOURCES, Asset, AssetKind, Scope
from pliant.model.rights import Place
from pliant.model.tenancy import Project
from pliant.wire.assets import (
    AssetItem,
    AssetList,
    AssetMeta,
    ComputeChange,
    ComputeRequest,
    DistributedTemplateChange,
    DistributedTemplateRequest,
    EnvironmentChange,
    EnvironmentRequest,
    GenericSecretChange,
    GenericSecretRequest,
    GitChange,
    GitRequest,
    HostPathChange,
    HostPathRequest,
    InferenceTemplateChange,
    InferenceTemplateRequest,
    Meta,
    NameAvailable,
    NfsChange,
    NfsRequest,
    PasswordChange,
    PasswordRequest,
    TemplateChange,
    TemplateRequest,
)
from pliant.wire.workload import Counted

router = Router(prefix="/api/v1", tags=["assets and templates"])

Comply = Annotated[
    str, Query(alias="complyToProject", max_length=200, description="Say whether its policies allow each.")
]

_listing: Listing[Asset] = Listing(
    {
        "id": lambda row: row.id,
        "name": lambda row: row.name,
        "description": lambda row: row.description,
        "scope": lambda row: row.scope.value,
        "scopeId": lambda row: row.scope_id,
        "createdBy": lambda row: row.created_by,
        "createdAt": lambda row: stamp(row.created),
    },
    searched=("name", "description"),
)
Asked = Annotated[Window, Depends(_listing.asked)]


def meta_of(row: Asset) -> AssetMeta:
    own = row.scope_id or None
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.workloads or row.kind.value,
        "description": row.description,
        "scope": row.scope.value,
        "scopeType": row.scope.value,
        "scopeId": own,
        "departmentId": own if row.scope is Scope.DEPARTMENT else None,
        "projectId": own if row.scope is Scope.PROJECT else None,
        "createdBy": row.created_by,
        "createdAt": stamp(row.created),
        "updatedAt": stamp(row.updated),
    }


def scope_of(meta: Any, board: Board) -> tuple[Scope, str]:
    """The scope, and the department or project ('' for the tenant). Raises BadRequest, NotFound."""
    check_cluster(meta.get("clusterId"), board)
    keys = {Scope.PROJECT: meta.get("projectId"), Scope.DEPARTMENT: meta.get("departmentId")}
    words = [word for word in (meta.get("scope"), meta.get("scopeType")) if word]
    words = words or [scope.value for scope, key in keys.items() if key] or ["tenant"]
    scopes = {Scope.TENANT if word in ("system", "cluster") else Scope(word) for word in words}
    named = {key for key in (meta.get("scopeId"), *keys.values()) if key}
    scope = scopes.pop()
    if scopes or len(named) > 1 or any(key for it, key in keys.items() if it is not scope):
        raise BadRequest("The scope is given twice.", "Name one department or one project.", field="meta")
    if scope is Scope.TENANT:
        if named:
            raise BadRequest(f"The scope {words[0]} excludes scopeId.", "Leave it out.", field="meta.scopeId")
        return scope, ""
    if not named:
        raise BadRequest(f"Which {scope.value}?", f"Name its id in {scope.value}Id.", field="meta.scopeId")
    return scope, named.pop()


def place_at(board: Board, scope: Scope, key: str) -> Place:
    """The place of an asset; for a missing unit, a place where only rights in the whole tenant hold."""
    if scope is Scope.TENANT:
        return Place()
    found = unit_named(board, scope.value, key)
    return unit_place(found.queue) if found is not None else Place("-")


def seen_at(caller: Principal, board: Board, scope: Scope, key: str) -> Place:
    """Like `place_at`. Raises NotFound for a unit that is missing or that the caller may not see."""
    if scope is Scope.TENANT:
        return Place()
    return unit_place(seen_unit(caller, board, scope.value, key, "meta.scopeId").queue)


def may_see(caller: Principal, row: Asset, board: Board) -> bool:
    """True for the tenant's assets, and if the caller may read assets in the unit or a project below it."""
    if row.scope is Scope.TENANT:
        return True
    if caller.may("assets:read", place_at(board, row.scope, row.scope_id)):
        return True
    projects = (view.queue for view in board.projects.values())
    return any(
        isinstance(it, Project) and concerns(board, it, row) and caller.may("assets:read", unit_place(it))
        for it in projects
    )


def _sealed(here: Context, kind: AssetKind, spec: Any) -> dict[str, Any]:
    """What is stored of a credential: the names of its values, and the sealed values. Raises BadRequest."""
    if kind is AssetKind.PASSWORD:
        values = {"password": spec["password"]} | ({"user": spec["user"]} if "user" in spec else {})
    else:
        values = {pair["key"]: pair["value"] for pair in spec["keyValuePairs"]}
        if len(values) < len(spec["keyValuePairs"]):
            raise BadRequest("A key is named twice.", "Name each key once.", field="spec.keyValuePairs")
    return {"user": spec.get("user"), "keys": sorted(values), "sealed": here.authority.vault.sealed(values)}


def _number(text: str) -> float:
    """`1.0` as `1`, for clients that read numbers of GPUs as integers."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _spec_told(row: Asset) -> dict[str, Any]:
    """The spec as answers show it: that of a credential without its secret values."""
    kept: dict[str, Any] = json.loads(row.body, parse_float=_number)
    match row.kind:
        case AssetKind.PASSWORD:
            return {"user": kept["user"], "password": None}
        case AssetKind.GENERIC_SECRET:
            return {"keyValuePairs": [{"key": key, "value": None} for key in kept["keys"]]}
    return kept


def _item(row: Asset, board: Board, project: Project | None = None, notices: Sequence[str] = ()) -> AssetItem:
    spec = _spec_told(row)
    item: AssetItem = {"meta": meta_of(row), "spec": spec, "runnable": None, "notices": [*notices]}
    if project is not None:
        policy = policy_for(board, project, row.workloads)
        found = [it for it in violations(spec, filled(spec, policy), policy, {}) if it.rule != "required"]
        item["runnable"] = {"isRunnable": not found, "issue": found[0].details if found else None}
    return item


def _routes(path: str, kind: AssetKind, sent: Any, changed: Any, workloads: str = "") -> None:
    word = workloads or path.rpartition("/")[2].replace("-", "_")
    title = f"template of {workloads}" if workloads else word.replace("_", " ")
    kept = get_type_hints(sent, include_extras=True)["spec"]
    resource = "data-sources" if kind in DATA_SOURCES else "assets"

    def rows(here: Context, caller: Principal) -> Sequence[Asset]:
        board = here.service.board
        found = [row for row in board.assets if (row.kind, row.workloads) == (kind, workloads)]
        return [row for row in found if may_see(caller, row, board)]

    def known(here: Context, identity: str, caller: Principal) -> Asset:
        for row in rows(here, caller):
            if row.id == identity:
                return row
        raise NotFound(f"There is no {title} {identity[:60]!r}.", f"See them with: GET /api/v1{path}")

    def in_vain(spec: Any, meta: Any = None) -> list[str]:
        return told_of([*without_effect(Meta, meta or {}, "meta"), *without_effect(kept, spec, "spec")])

    def spec_text(here: Context, spec: Any) -> str:
        if kind in CREDENTIALS:
            return json.dumps(_sealed(here, kind, spec))
        return json.dumps(spec, sort_keys=True)

    def index(here: Here, asked: Asked, caller: Caller, comply: Comply = "") -> Response:
        board, found, project = here.service.board, rows(here, caller), None
        if comply:
            project = seen_project(caller, board, comply, "complyToProject")
            found = [row for row in found if concerns(board, project, row)]
        judged = project if workloads else None
        body = _listing.page("entries", found, asked, lambda row: _item(row, board, judged))
        after = body.get("next")
        body["pagination"] = {"limit": asked.limit, "offset": asked.offset, "nextOffset": after}
        return answer(body)

    def count(here: Here, asked: Asked, caller: Caller) -> Response:
        return answer(_listing.count(rows(here, caller), asked))

    def available(here: Here, caller: Caller, name: Annotated[str, Query(max_length=200)]) -> Response:
        return answer({"available": all(row.name != name for row in rows(here, caller))})

    def create(body: Any, here: Here, caller: Caller) -> Response:
        meta: Meta = body["meta"]
        scope, scope_id = scope_of(meta, here.service.board)
        demand(caller, f"{resource}:write", seen_at(caller, here.service.board, scope, scope_id))
        description = meta.get("description") or ""
        text = spec_text(here, body["spec"])
        row = Asset("", kind, workloads, meta["name"], scope, scope_id, text, description)
        return answered(
            lambda: here.service.assets.create(row, caller.user),
            lambda made: answer(_item(made, here.service.board, notices=in_vain(body["spec"], meta)), 202),
        )

    def read(identity: str, here: Here, caller: Caller) -> Response:
        return answer(_item(known(here, identity, caller), here.service.board))

    def update(identity: str, body: Any, here: Here, caller: Caller) -> Response:
        """What is named is set; its scope stays."""
        row = known(here, identity, caller)
        demand(caller, f"{resource}:write", place_at(here.service.board, row.scope, row.scope_id))
        change: dict[str, str] = {}
        for name, value in body.get("meta", {}).items():
            if name not in ("name", "description"):
                raise BadRequest(
                    f"meta.{name[:40]} cannot be changed.", "Make another one.", field=f"meta.{name}"
                )
            change[name] = value or ""
        if "spec" in body:
            change["body"] = spec_text(here, body["spec"])
        made = here.service.assets.update(row.id, change, caller.user)
        return answer(_item(made, here.service.board, notices=in_vain(body.get("spec", {}))))

    def delete(identity: str, here: Here, caller: Caller) -> Response:
        row = known(here, identity, caller)
        demand(caller, f"{resource}:write", place_at(here.service.board, row.scope, row.scope_id))
        here.service.assets.delete(row.id, caller.user)
        return empty()

    received: Any = Received
    create.__annotations__["body"] = received[sent]
    update.__annotations__["body"] = received[changed]
    create.__doc__ = f"Keep a {title} for all, a department or a project."
    each = f"{path}/{{identity}}"
    routes: tuple[tuple[str, str, str, dict[str, Any], Callable[..., Response]], ...] = (
        ("get", path, f"list_{word}", answers(200, AssetList), index),
        ("get", f"{path}/count", f"count_{word}", answers(200, Counted), count),
        (
            "get",
            f"{path}/name-availability",
            f"{word}_name_availability",
            answers(200, NameAvailable),
            available,
        ),
        ("post", path, f"keep_{word}", answers(202, AssetItem), create),
        ("get", each, f"read_{word}", answers(200, AssetItem), read),
        ("put", each, f"put_kept_{word}", answers(200, AssetItem), update),
        ("patch", each, f"patch_kept_{word}", answers(200, AssetItem), update),
        ("delete", each, f"drop_{word}", {"status_code": 204, "response_model": None}, delete),
    )
    for method, at, name, told, handler in routes:
        right = needs(f"{resource}:read" if method == "get" else f"{resource}:write")
        getattr(router, method)(at, name=name, dependencies=[right], **told)(handler)


_routes("/asset/environment", AssetKind.ENVIRONMENT, EnvironmentRequest, EnvironmentChange)
_routes("/asset/compute", AssetKind.COMPUTE, ComputeRequest, ComputeChange)
_routes("/asset/datasource/git", AssetKind.GIT, GitRequest, GitChange)
_routes("/asset/datasource/host-path", AssetKind.HOST_PATH, HostPathRequest, HostPathChange)
_routes("/asset/datasource/nfs", AssetKind.NFS, NfsRequest, NfsChange)
_routes("/asset/credentials/password", AssetKind.PASSWORD, PasswordRequest, PasswordChange)
_routes(
    "/asset/credentials/generic-secret",
    AssetKind.GENERIC_SECRET,
    GenericSecretRequest,
    GenericSecretChange,
)
_TEMPLATES = {
    "trainings": (TemplateRequest, TemplateChange),
    "workspaces": (TemplateRequest, TemplateChange),
    "distributed": (DistributedTemplateRequest, DistributedTemplateChange),
    "inferences": (InferenceTemplateRequest, InferenceTemplateChange),
}
for _kind, (_sent, _changed) in _TEMPLATES.items():
    _routes(f"/workload-templates/{_kind}", AssetKind.TEMPLATE, _sent, _changed, _kind)


def _templates(here: Context, caller: Principal) -> list[Asset]:
    board = here.service.board
    return [row for row in board.assets if row.kind is AssetKind.TEMPLATE and may_see(caller, row, board)]


@router.get("/workload-templates", dependencies=[needs("assets:read")], **answers(200, AssetList))
def all_templates(here: Here, caller: Caller, asked: Asked) -> Response:
    """Those of all kinds of workloads."""
    board = here.service.board
    body = _listing.page("entries", _templates(here, caller), asked, lambda row: _item(row, board))
    body["pagination"] = {"limit": asked.limit, "offset": asked.offset, "nextOffset": body.get("next")}
    return answer(body)


@router.get("/workload-templates/count", dependencies=[needs("assets:read")], **answers(200, Counted))
def count_templates(here: Here, caller: Caller, asked: Asked) -> Response:
    return answer(_listing.count(_templates(here, caller), asked))


@router.get("/workload-templates/{identity}", dependencies=[needs("assets:read")], **answers(200, AssetItem))
def any_template(identity: str, here: Here, caller: Caller) -> Response:
    """Of whatever kind of workloads."""
    for row in _templates(here, caller):
        if row.id == identity:
            return answer(_item(row, here.service.board))
    raise NotFound(
        f"There is no template {identity[:60]!r}.", "See them with: GET /api/v1/workload-templates"
    )
