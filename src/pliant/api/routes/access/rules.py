"""Routes for access rules, which give roles."""

import uuid
from typing import Annotated

from fastapi import Depends, Response

from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden, status_of_refusal
from pliant.api.guard import needs
from pliant.api.identity.accounts import by_name
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal, unit_place
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received
from pliant.api.units import seen_unit
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound, Refused
from pliant.control.explain.dry import Trial, Tried, together
from pliant.model.identity import (
    APPLICATION,
    NO_UID,
    UNIX,
    UNIX_GROUP,
    USER,
    AccessRule,
    CustomRole,
    subject_of,
)
from pliant.model.rights import ROLES, Grant, Place, may_grant
from pliant.wire.access import (
    RuleFailed,
    RuleItem,
    RuleList,
    RuleRequest,
    RulesBatch,
    RulesMade,
    RulesRequest,
)
from pliant.wire.workload import BatchDone, Counted

router = Router(prefix="/api", tags=["access"])

KINDS = {"app": APPLICATION, "group": UNIX_GROUP}
"""Other words for types of subjects."""

RULES: Listing[RuleItem] = Listing(
    {
        "id": lambda item: item["id"],
        "subjectId": lambda item: item["subjectId"],
        "subjectType": lambda item: item["subjectType"],
        "subjectName": lambda item: item["subjectName"],
        "roleId": lambda item: item["roleId"],
        "roleName": lambda item: item["roleName"],
        "scopeId": lambda item: item["scopeId"],
        "scopeType": lambda item: item["scopeType"],
        "scopeName": lambda item: item["scopeName"],
        "createdBy": lambda item: item["createdBy"],
        "createdAt": lambda item: item["createdAt"],
    },
    searched=("subjectName", "subjectId", "roleName", "scopeName"),
    most=10_000,
    usual=10_000,
)
AskedRules = Annotated[Window, Depends(RULES.asked)]


def _rules(here: Context, caller: Principal) -> list[RuleItem]:
    board = here.service.board
    rows = sorted(board.access.rules.values(), key=lambda row: (row.created, row.id))
    return [_rule(row, board) for row in rows if caller.may("access-rules:read", row.scope)]


def _own_rules(here: Context, caller: Principal) -> list[RuleItem]:
    board = here.service.board
    return [_rule(row, board) for row in board.access.by_subject.get(caller.subject, ())]


@router.get(
    "/v1/authorization/access-rules", dependencies=[needs("access-rules:read")], **answers(200, RuleList)
)
def rules(here: Here, caller: Caller, asked: AskedRules) -> Response:
    """Those within the caller's scope."""
    return answer(RULES.page("accessRules", _rules(here, caller), asked, lambda item: item))


@router.get("/v1/authorization/me/access-rules", dependencies=[needs("self:read")], **answers(200, RuleList))
def own_rules(here: Here, caller: Caller, asked: AskedRules) -> Response:
    return answer(RULES.page("accessRules", _own_rules(here, caller), asked, lambda item: item))


@router.post(
    "/v1/authorization/access-rules", dependencies=[needs("access-rules:write")], **answers(201, RuleItem)
)
def create_rule(body: Received[RuleRequest], here: Here, caller: Caller) -> Response:
    """A role is given only by a caller who has all of its permissions."""
    return answered(
        lambda: _create(body, here, caller), lambda row: answer(_rule(row, here.service.board), 201)
    )


def _create(body: RuleRequest, here: Context, caller: Principal) -> AccessRule:
    board = here.service.board
    access = board.access
    role = access.role(str(body.get("roleId", body.get("roleName", ""))))
    if role is None:
        names = [*(it.name for it in ROLES), *(it.name for it in access.roles.values())]
        words = ", ".join(names)
        raise BadRequest(
            f"There is no role {str(body.get('roleName', ''))[:60]!r}.", f"The roles are {words}."
        )
    scope = _scope(board, caller, body["scopeType"], body.get("scopeId", ""))
    rights = role.rights if isinstance(role, CustomRole) else None
    if not may_grant(caller.grants, Grant(role.id, scope, rights), caller.box):
        raise Forbidden(
            f"You may not give the role {role.name} in this {scope.kind}: it has permissions that you "
            "lack there.",
            "Ask somebody who has these permissions.",
            field="roleId",
        )
    subject, uid = _subject(here, body["subjectType"], body["subjectId"])
    return here.service.identities.create_rule(subject, role.id, scope, caller.user, uid)


@router.get(
    "/v1/authorization/access-rules/count", dependencies=[needs("access-rules:read")], **answers(200, Counted)
)
def count_rules(here: Here, caller: Caller, asked: AskedRules) -> Response:
    return answer(RULES.count(_rules(here, caller), asked))


@router.get(
    "/v1/authorization/me/access-rules/count", dependencies=[needs("self:read")], **answers(200, Counted)
)
def count_own_rules(here: Here, caller: Caller, asked: AskedRules) -> Response:
    return answer(RULES.count(_own_rules(here, caller), asked))


@router.post(
    "/v1/authorization/access-rules/batch-create",
    dependencies=[needs("access-rules:write")],
    **answers(200, RulesMade),
)
def create_rules(body: Received[RulesRequest], here: Here, caller: Caller) -> Response:
    """One role for several subjects at several scopes; each succeeds or fails by itself."""
    asked = body["payload"]
    made: list[RuleItem] = []
    failed: list[RuleFailed] = []
    trials: list[Trial] = []
    for subject in asked["subjects"]:
        for scope in asked["scopes"]:
            each: RuleRequest = {
                "roleId": asked["roleId"],
                "subjectId": subject["subjectId"],
                "subjectType": subject["subjectType"],
                "scopeId": scope.get("scopeId", ""),
                "scopeType": scope["scopeType"],
            }
            try:
                made.append(_rule(_create(each, here, caller), here.service.board))
            except Refused as error:
                failed.append({"payload": each, "code": status_of_refusal(error), "message": str(error)})
            except Tried as tried:
                trials.append(tried.trial)
    if trials:
        raise Tried(together(trials))
    return answer({"succeeded": made, "failed": failed})


@router.post(
    "/v1/authorization/access-rules/batch",
    dependencies=[needs("access-rules:write")],
    **answers(200, BatchDone),
)
def delete_rules(body: Received[RulesBatch], here: Here, caller: Caller) -> Response:
    """Delete several, each by itself; `validate_delete` only says which could be."""
    succeeded: list[str] = []
    failed: list[dict[str, object]] = []
    trials: list[Trial] = []
    for identity in dict.fromkeys(body["ids"]):
        try:
            row = _deletable(identity, here, caller)
            if body["action"] == "delete":
                here.service.identities.delete_rule(row.id)
        except Refused as error:
            failed.append({"id": identity, "code": status_of_refusal(error), "message": str(error)})
        except Tried as tried:
            trials.append(tried.trial)
        else:
            succeeded.append(identity)
    if trials:
        raise Tried(together(trials))
    return answer({"id": str(uuid.uuid4()), "succeeded": succeeded, "failed": failed})


@router.get(
    "/v1/authorization/access-rules/{identity}",
    dependencies=[needs("access-rules:read")],
    **answers(200, RuleItem),
)
def read_rule(identity: str, here: Here, caller: Caller) -> Response:
    return answer(_rule(_known(identity, here, caller), here.service.board))


@router.delete(
    "/v1/authorization/access-rules/{identity}",
    dependencies=[needs("access-rules:write")],
    status_code=204,
    response_model=None,
)
def delete_rule(identity: str, here: Here, caller: Caller) -> Response:
    here.service.identities.delete_rule(_deletable(identity, here, caller).id)
    return empty()


def _known(identity: str, here: Context, caller: Principal) -> AccessRule:
    row = here.service.board.access.rules.get(identity)
    if row is None or not caller.may("access-rules:read", row.scope):
        raise NotFound(
            f"There is no access rule {identity[:60]!r}.", "See them with: pliant access-rule list"
        )
    return row


def _deletable(identity: str, here: Context, caller: Principal) -> AccessRule:
    row = _known(identity, here, caller)
    if not may_grant(caller.grants, here.service.board.access.grant(row), caller.box):
        raise Forbidden(
            "This access rule grants permissions that you lack.", "Ask somebody who has these permissions."
        )
    return row


def _scope(board: Board, caller: Principal, kind: str, key: str) -> Place:
    """Raises NotFound, also for a department or project that the caller may not see."""
    if kind in ("system", "tenant", "cluster"):
        return Place()
    return unit_place(seen_unit(caller, board, kind, key).queue)


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
            raise NotFound(
                f"There is no application {key[:60]!r}.", "See them with: pliant app list", field="subjectId"
            )
        return subject_of(APPLICATION, row.id), NO_UID
    if kind == UNIX:
        account = by_name(key)
        if account is None:
            raise BadRequest(
                f"There is no account {key[:60]!r} on this machine.",
                f"Try: getent passwd {key[:60]}",
                field="subjectId",
            )
        return subject_of(UNIX, key), account.uid
    return subject_of(UNIX_GROUP, key), NO_UID


def _rule(row: AccessRule, board: Board) -> RuleItem:
    kind, _, identity = row.subject.partition(":")
    scope = row.scope
    views = board.projects if scope.project else board.departments
    unit = scope.project or scope.department
    made = board.access.roles.get(row.role)
    return {
        "id": row.id,
        "subjectId": identity,
        "subjectType": kind,
        "subjectName": board.access.subject_name(row.subject),
        "roleId": row.role,
        "roleName": board.access.role_name(row.role),
        "scopeId": unit,
        "scopeType": scope.kind,
        "scopeName": views[unit].queue.name if unit in views else unit,
        "createdAt": stamp(row.created),
        "updatedAt": stamp(row.created),  # a rule is never changed
        "deletedAt": None,
        "createdBy": row.created_by,
        "tenantId": 1,
        "status": {"phase": "Ready" if made is None or made.enabled else "NotReady"},
    }
