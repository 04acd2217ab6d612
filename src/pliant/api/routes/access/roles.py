"""Routes for roles, permission sets and the caller's permissions: all from the table that the guard reads."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastapi import Query, Response

from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received
from pliant.control.errors import BadRequest, Conflict, NotFound
from pliant.model.identity import CustomRole
from pliant.model.rights import (
    ROLES,
    SETS,
    TABLE,
    TENANT,
    Grant,
    PermissionSet,
    Place,
    Role,
    cell,
    has_all,
    may,
)
from pliant.wire.access import (
    Permissions,
    PermissionSetItem,
    PermissionSets,
    PermittedScopes,
    RoleChange,
    RoleItem,
    RoleList,
    RolePermission,
    RoleRequest,
    RoleSet,
)

router = Router(prefix="/api", tags=["access"])


@router.get("/v2/authorization/roles", dependencies=[needs("roles:read")], **answers(200, RoleList))
def roles(here: Here) -> Response:
    """The built-in ones, and those that an administrator made of permission sets."""
    made = sorted(here.service.board.access.roles.values(), key=lambda row: row.id)
    found: list[Role | CustomRole] = [*ROLES, *made]
    return answer({"next": None, "roles": [_role(row, here.authority.box) for row in found]})


@router.post("/v2/authorization/roles", dependencies=[needs("roles:create")], **answers(201, RoleItem))
def create_role(body: Received[RoleRequest], here: Here, caller: Caller) -> Response:
    """It may do what its permission sets do together. Only a caller who has all of that creates it."""
    wanted = CustomRole(
        0,
        body["name"],
        body.get("description", ""),
        _chosen(body["permissionSets"]),
        body.get("enabled") is not False,
        created_by=caller.user,
    )
    _within(wanted, caller)
    return answered(
        lambda: here.service.roles.create(wanted),
        lambda row: answer(_role(row, here.authority.box), 201),
    )


@router.get("/v2/authorization/roles/{key}", dependencies=[needs("roles:read")], **answers(200, RoleItem))
def role(key: str, here: Here) -> Response:
    """By id, name or alias."""
    return answer(_role(_known(here, key), here.authority.box))


@router.put("/v2/authorization/roles/{key}", dependencies=[needs("roles:update")], **answers(200, RoleItem))
def update_role(key: str, body: Received[RoleChange], here: Here, caller: Caller) -> Response:
    """What is left out stays. It acts on the next request of everybody who has the role."""
    sets = _chosen(body["permissionSets"]) if "permissionSets" in body else None
    on = body.get("enabled")

    def changed(row: CustomRole) -> CustomRole:
        return replace(
            row,
            name=body.get("name", row.name),
            about=body.get("description", row.about),
            sets=row.sets if sets is None else sets,
            enabled=row.enabled if on is None else on,
        )

    row = _own(here, key, caller)
    _within(changed(row), caller)
    return answered(
        lambda: here.service.roles.change(row.id, changed),
        lambda made: answer(_role(made, here.authority.box)),
    )


@router.post(
    "/v2/authorization/roles/{key}/enable", dependencies=[needs("roles:update")], **answers(200, RoleItem)
)
def enable_role(key: str, here: Here, caller: Caller) -> Response:
    """Its rules give it again."""
    return _switch(here, key, caller, True)


@router.post(
    "/v2/authorization/roles/{key}/disable", dependencies=[needs("roles:update")], **answers(200, RoleItem)
)
def disable_role(key: str, here: Here, caller: Caller) -> Response:
    """Its rules give nothing from now on."""
    return _switch(here, key, caller, False)


@router.delete(
    "/v2/authorization/roles/{key}",
    dependencies=[needs("roles:delete")],
    status_code=204,
    response_model=None,
)
def delete_role(key: str, here: Here, caller: Caller) -> Response:
    """With the rules that give it; one that is in use must be disabled first."""
    here.service.roles.delete(_own(here, key, caller).id)
    return empty()


def _switch(here: Context, key: str, caller: Principal, on: bool) -> Response:
    row = _own(here, key, caller)
    return answered(
        lambda: here.service.roles.change(row.id, lambda it: replace(it, enabled=on)),
        lambda made: answer(_role(made, here.authority.box)),
    )


def _known(here: Context, key: str) -> Role | CustomRole:
    found = here.service.board.access.role(key)
    if found is None:
        raise NotFound(f"There is no role {key[:60]!r}.", "See them with: pliant role list")
    return found


def _own(here: Context, key: str, caller: Principal) -> CustomRole:
    """The custom role with that key, which the caller may change. Raises NotFound, Conflict, Forbidden."""
    found = _known(here, key)
    if isinstance(found, Role):
        raise Conflict(
            f"The role {found.name} is built in and stays as it is.",
            "Create another one: pliant role create NAME --set SET",
        )
    _within(found, caller)
    return found


def _within(wanted: CustomRole, caller: Principal) -> None:
    """Raise Forbidden if that role has a permission that the caller lacks in the tenant."""
    if not has_all(caller.grants, Grant(wanted.id, TENANT, wanted.rights), caller.box):
        raise Forbidden(
            f"The role {wanted.name} has permissions that you lack in the whole tenant.",
            "Ask somebody who has these permissions.",
            field="permissionSets",
        )


def _chosen(told: list[RoleSet]) -> tuple[str, ...]:
    """Ids of permission sets, in the order of the table. Raises BadRequest."""
    wanted = {it["id"] for it in told}
    wrong = sorted(wanted - SETS.keys()) or sorted(
        it["name"] for it in told if it.get("name", it["id"]) != it["id"]
    )
    if wrong:
        raise BadRequest(
            f"There is no permission set {wrong[0][:64]!r} with that id and name.",
            "See GET /api/v1/authorization/permission-sets",
            field="permissionSets",
        )
    return tuple(name for name in SETS if name in wanted)


def _role(row: Role | CustomRole, box: bool) -> RoleItem:
    made = row if isinstance(row, CustomRole) else None
    rights = [right for right in TABLE if cell(row.id, right, box) != "-"] if made is None else made.rights
    sets = () if made is None else made.sets
    return {
        "id": row.id,
        "name": row.name,
        "description": row.about,
        "enabled": made is None or made.enabled,
        "effectiveEnabled": made is None or made.enabled,
        "custom": made is not None,
        "deprecated": False,
        "permissionSets": [{"id": name, "name": name} for name in sets],
        "permissions": _by_resource(right for right in TABLE if right in rights),
        "kubernetesPermissions": None,
        "createdAt": None if made is None else stamp(made.created),
        "createdBy": "" if made is None else made.created_by,
        "updatedAt": None if made is None else stamp(made.updated or made.created),
    }


def _set(row: PermissionSet) -> PermissionSetItem:
    return {"id": row.id, "name": row.id, "description": row.about, "permissions": _by_resource(row.rights)}


@router.get(
    "/v1/authorization/permission-sets", dependencies=[needs("roles:read")], **answers(200, PermissionSets)
)
def permission_sets() -> Response:
    """Rights by the thing that they are about."""
    return answer({"permissionSets": [_set(row) for row in SETS.values()]})


@router.get(
    "/v1/authorization/permission-sets/{key}",
    dependencies=[needs("roles:read")],
    **answers(200, PermissionSetItem),
)
def permission_set(key: str) -> Response:
    found = SETS.get(key)
    if found is None:
        raise NotFound(
            f"There is no permission set {key[:60]!r}.", "See GET /api/v1/authorization/permission-sets"
        )
    return answer(_set(found))


@router.get("/v1/authorization/permissions", dependencies=[needs("self:read")], **answers(200, Permissions))
def permissions(caller: Caller) -> Response:
    """What the caller may do at any scope."""
    return answer({"permissions": _by_resource(right for right in TABLE if caller.may(right))})


_RESOURCE: Any = Query(
    alias="resourceType", json_schema_extra={"enum": sorted({right.partition(":")[0] for right in TABLE})}
)
_ACTIONS: Any = {"enum": sorted({right.partition(":")[2] for right in TABLE})}


@router.get(
    "/v1/authorization/permitted-scopes", dependencies=[needs("self:read")], **answers(200, PermittedScopes)
)
def permitted_scopes(
    caller: Caller, resource: str = _RESOURCE, action: str = Query(default="read", json_schema_extra=_ACTIONS)
) -> Response:
    """The scopes of the caller's rules by which that is permitted; `own`: for their own things only."""
    right = f"{resource}:{action}"
    if right not in TABLE:
        raise BadRequest(f"There is no permission {right[:60]!r}.", "See GET /api/v2/authorization/roles")
    scopes: dict[Place, bool] = {}  # True: for the caller's own things only
    for grant in caller.grants:
        if may([grant], right, box=caller.box):
            own = not may([grant], right, grant.scope, box=caller.box)
            scopes[grant.scope] = own and scopes.get(grant.scope, True)
    ordered = sorted(scopes, key=lambda it: (it.department, it.project))
    told = [{"type": it.kind, "id": it.project or it.department, "own": scopes[it]} for it in ordered]
    return answer({"scopes": told})


def _by_resource(rights: Iterable[str]) -> list[RolePermission]:
    found: dict[str, list[str]] = {}
    for right in rights:
        resource, _, action = right.partition(":")
        found.setdefault(resource, []).append(action)
    return [{"resourceType": resource, "actions": actions} for resource, actions in found.items()]
