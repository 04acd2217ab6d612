"""Roles and the rules that give them; all answers come from the table that the guard reads."""

from collections.abc import Iterable

from fastapi import APIRouter, Query, Response

from pliant.api.accounts import by_name
from pliant.api.auth import Caller
from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden
from pliant.api.guard import needs
from pliant.api.models import Received
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.model.identity import APPLICATION, NO_UID, UNIX, UNIX_GROUP, USER, AccessRule, subject_of
from pliant.model.rights import ROLES, TABLE, Grant, Place, Role, cell, may, may_grant, role_named
from pliant.model.tenancy import Project
from pliant.wire.access import (
    Permissions,
    PermittedScopes,
    RoleItem,
    RoleList,
    RolePermission,
    RuleItem,
    RuleList,
    RuleRequest,
)

router = APIRouter(prefix="/api", tags=["access"])

KINDS = {"app": APPLICATION, "group": UNIX_GROUP}
"""Other words for types of subjects."""


@router.get(
    "/v1/authorization/access-rules", dependencies=[needs("access-rules:read")], **answers(200, RuleList)
)
def rules(here: Here, caller: Caller) -> Response:
    """Those within the caller's scope."""
    board = here.service.board
    found = [
        _rule(row, board)
        for row in sorted(board.access.rules.values(), key=lambda row: (row.created, row.id))
        if caller.may("access-rules:read", row.scope)
    ]
    return answer({"next": None, "accessRules": found})


@router.get("/v1/authorization/me/access-rules", dependencies=[needs("self:read")], **answers(200, RuleList))
def own_rules(here: Here, caller: Caller) -> Response:
    board = here.service.board
    found = [_rule(row, board) for row in board.access.by_subject.get(caller.subject, ())]
    return answer({"next": None, "accessRules": found})


@router.post(
    "/v1/authorization/access-rules", dependencies=[needs("access-rules:write")], **answers(201, RuleItem)
)
def create_rule(body: Received[RuleRequest], here: Here, caller: Caller) -> Response:
    """Nobody gives more than they have."""
    board = here.service.board
    role = role_named(str(body.get("roleId", body.get("roleName", ""))))
    if role is None:
        words = ", ".join(it.name for it in ROLES)
        raise BadRequest(
            f"There is no role {str(body.get('roleName', ''))[:60]!r}.", f"The roles are {words}."
        )
    scope = _scope(board, body["scopeType"], body.get("scopeId", ""))
    if not may_grant(caller.grants, Grant(role.id, scope), caller.box):
        raise Forbidden(
            f"You may not give the role {role.name} in this {scope.kind}: it may do more than you there.",
            "Ask somebody who may do all of that.",
        )
    subject, uid = _subject(here, body["subjectType"], body["subjectId"])
    row = here.service.identities.create_rule(subject, role.id, scope, caller.user, uid)
    return answer(_rule(row, board), 201)


@router.delete(
    "/v1/authorization/access-rules/{identity}",
    dependencies=[needs("access-rules:write")],
    status_code=204,
    response_model=None,
)
def delete_rule(identity: str, here: Here, caller: Caller) -> Response:
    row = here.service.board.access.rules.get(identity)
    if row is None or not caller.may("access-rules:read", row.scope):
        raise NotFound(
            f"There is no access rule {identity[:60]!r}.", "See them with: pliant access-rule list"
        )
    if not may_grant(caller.grants, row.grant, caller.box):
        raise Forbidden("This access rule gives more than you have.", "Ask somebody who may do all of that.")
    here.service.identities.delete_rule(identity)
    return empty()


def _scope(board: Board, kind: str, key: str) -> Place:
    if kind in ("system", "tenant", "cluster"):
        return Place()
    views = board.projects if kind == "project" else board.departments
    found = next((view.queue for view in views.values() if key in (view.queue.id, view.queue.name)), None)
    if found is None:
        raise NotFound(f"There is no {kind} {key[:60]!r}.", f"See them with: pliant {kind} list")
    return Place(found.department, found.id) if isinstance(found, Project) else Place(found.id)


def _subject(here: Context, kind: str, key: str) -> tuple[str, int]:
    """(subject, uid of an account of the machine). Raises NotFound, BadRequest."""
    kind, access = KINDS.get(kind, kind), here.service.board.access
    if kind == USER:
        return subject_of(USER, here.service.identities.user(key).id), NO_UID
    if kind == APPLICATION:
        row = access.applications.get(key) or next(
            (it for it in access.applications.values() if it.name == key), None
        )
        if row is None:
            raise NotFound(f"There is no application {key[:60]!r}.", "See them with: pliant app list")
        return subject_of(APPLICATION, row.id), NO_UID
    if kind == UNIX:
        account = by_name(key)
        if account is None:
            raise BadRequest(
                f"There is no account {key[:60]!r} on this machine.", f"Try: getent passwd {key[:60]}"
            )
        return subject_of(UNIX, key), account.uid
    return subject_of(UNIX_GROUP, key), NO_UID


def _rule(row: AccessRule, board: Board) -> RuleItem:
    kind, _, identity = row.subject.partition(":")
    scope = row.scope
    views = board.projects if scope.project else board.departments
    unit = scope.project or scope.department
    return {
        "id": row.id,
        "subjectId": identity,
        "subjectType": kind,
        "subjectName": board.access.subject_name(row.subject),
        "roleId": row.role,
        "roleName": next((role.name for role in ROLES if role.id == row.role), str(row.role)),
        "scopeId": unit,
        "scopeType": scope.kind,
        "scopeName": views[unit].queue.name if unit in views else unit,
        "createdAt": stamp(row.created),
        "createdBy": row.created_by,
    }


# -- the table --------------------------------------------------------------------------------------


@router.get("/v2/authorization/roles", dependencies=[needs("roles:read")], **answers(200, RoleList))
def roles(here: Here) -> Response:
    return answer({"next": None, "roles": [_role(role, here.authority.box) for role in ROLES]})


@router.get("/v2/authorization/roles/{key}", dependencies=[needs("roles:read")], **answers(200, RoleItem))
def role(key: str, here: Here) -> Response:
    """By id, name or alias."""
    found = role_named(key)
    if found is None:
        raise NotFound(f"There is no role {key[:60]!r}.", "See them with: pliant access-rule roles")
    return answer(_role(found, here.authority.box))


def _role(role: Role, box: bool) -> RoleItem:
    return {
        "id": role.id,
        "name": role.name,
        "description": role.about,
        "enabled": True,
        "custom": False,
        "permissions": _by_resource(right for right in TABLE if cell(role.id, right, box) != "-"),
    }


@router.get("/v1/authorization/permissions", dependencies=[needs("self:read")], **answers(200, Permissions))
def permissions(caller: Caller) -> Response:
    """What the caller may do at any scope."""
    return answer({"permissions": _by_resource(right for right in TABLE if caller.may(right))})


@router.get(
    "/v1/authorization/permitted-scopes", dependencies=[needs("self:read")], **answers(200, PermittedScopes)
)
def permitted_scopes(
    caller: Caller, resource: str = Query(alias="resourceType"), action: str = Query(default="read")
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
