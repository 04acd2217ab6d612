"""Routes for policies about submissions: one for each kind of workloads and scope, and all combined."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Response

from pliant.api.context import Context, Here
from pliant.api.errors import issue_item, policy_of
from pliant.api.guard import demand, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.requests.completion import PLURALS, concerns, policy_for, violations
from pliant.api.requests.parse_submission import told_of
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.spec import HIDDEN, spec_of
from pliant.api.routes.workloads.assets import meta_of, place_at, scope_of, seen_at
from pliant.api.schemas.models import Received, without_effect
from pliant.api.schemas.policy_rules import check_fields
from pliant.api.units import known_unit, seen_project, unit_named
from pliant.control.errors import NotFound
from pliant.control.submit.policy import WORDS, Issue, Path, Said, effective, filled, rules_of
from pliant.model.asset import Asset, AssetKind
from pliant.model.workload import Desired
from pliant.wire.assets import (
    AnyPolicy,
    DistributedPolicyRequest,
    EffectivePolicy,
    InferencePolicyRequest,
    Kinds,
    PolicyItem,
    PolicyList,
    PolicyPreview,
    PolicyRequest,
    ScopeWord,
)
from pliant.wire.server import ComplianceIssue
from pliant.wire.submission import DistributedSpec, InferenceSpec, Spec

router = Router(prefix="/api", tags=["policies"])

KINDS: tuple[Kinds, ...] = ("trainings", "workspaces", "distributed", "inferences")
SPECS = {"trainings": Spec, "workspaces": Spec, "distributed": DistributedSpec, "inferences": InferenceSpec}
SENT = {
    "trainings": PolicyRequest,
    "workspaces": PolicyRequest,
    "distributed": DistributedPolicyRequest,
    "inferences": InferencePolicyRequest,
}

Scoped = Annotated[ScopeWord | None, Query(description="Whose it is.")]
Key = Annotated[str, Query(alias="projectId", max_length=200)]
DepartmentKey = Annotated[str, Query(alias="departmentId", max_length=200)]
ValidateOnly = Annotated[bool, Query(alias="validateOnly", description="Validate only; save nothing.")]


def _checked(kind: str, body: Mapping[str, Any]) -> str:
    """The policy as it is stored. Raises BadRequest."""
    rules: Mapping[str, Any] = body.get("rules", {})
    check_fields(rules, SPECS[kind], kind)
    list(rules_of(rules))
    return json.dumps(body, sort_keys=True)


def _find(here: Context, kind: str, meta: Mapping[str, Any]) -> Asset | None:
    scope, key = scope_of(meta, here.service.board)
    board = here.service.board
    unit = unit_named(board, scope.value, key) if key else None
    of = (AssetKind.POLICY, kind, scope, "" if unit is None else unit.queue.id)
    if key and unit is None:
        return None
    return next((it for it in board.assets if (it.kind, it.workloads, it.scope, it.scope_id) == of), None)


def _known(
    here: Context,
    caller: Principal,
    right: str,
    kind: str,
    scope: str | None,
    project: str,
    department: str,
) -> Asset:
    """The policy of that scope, in which the caller needs the right. Raises NotFound, Forbidden."""
    meta = {"scope": scope, "projectId": project, "departmentId": department}
    board = here.service.board
    place = seen_at(caller, board, *scope_of(meta, board))
    row = _find(here, kind, meta)
    if row is None:
        raise NotFound(
            f"There is no policy for {kind} there.",
            f"Make one: pliant policy set {kind} -f FILE (PUT /api/v2/policy/{kind})",
        )
    demand(caller, right, place)
    return row


def _item(row: Asset, notices: Sequence[str] = ()) -> Any:
    return {"meta": meta_of(row), "policy": json.loads(row.body), "notices": [*notices]}


@router.get("/v2/policy", dependencies=[needs("policies:read")], **answers(200, PolicyList))
def policies(here: Here, caller: Caller) -> Response:
    """All that the caller may read; `type` is the kind of workloads."""
    board = here.service.board
    found = [
        {"type": row.workloads, **_item(row)}
        for row in board.assets
        if row.kind is AssetKind.POLICY
        and caller.may("policies:read", place_at(board, row.scope, row.scope_id))
    ]
    return answer({"policies": found})


def _keep(
    kind: Kinds, body: AnyPolicy, here: Context, caller: Principal, over: Callable[[Any], Any]
) -> Response:
    """Store a policy. `over` makes it from the present one; from {} if there is none."""
    text = _checked(kind, over({}))
    old = _find(here, kind, body["meta"])
    scope, scope_id = scope_of(body["meta"], here.service.board)
    demand(caller, "policies:write", seen_at(caller, here.service.board, scope, scope_id))
    notices = told_of(without_effect(SENT[kind], body))

    def changed(row: Asset) -> dict[str, str]:
        return {"body": _checked(kind, over(json.loads(row.body)))}

    if old is not None:
        return answer(_item(here.service.assets.update(old.id, changed, caller.user), notices))
    row = Asset("", AssetKind.POLICY, kind, "", scope, scope_id, text)
    return answer(_item(here.service.assets.create(row, caller.user), notices))


def _merged(
    before: Mapping[str, Any], after: Mapping[str, Any], words: Collection[str] = ()
) -> dict[str, Any]:
    """`before` changed by `after`. What has one of `words` is a rule and is replaced as a whole."""
    made = dict(before)
    for name, value in after.items():
        below = made.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            whole = any(word in value or word in below for word in words)
            value = value if whole else _merged(below, value, words)
        made[name] = value
    return made


@router.get("/v1/policies/effective", dependencies=[needs("policies:read")], **answers(200, EffectivePolicy))
def effective_policy(
    here: Here,
    caller: Caller,
    project: Annotated[str, Query(alias="projectId", max_length=200)],
    kind: Annotated[Kinds, Query(alias="workloadType")] = "trainings",
) -> Response:
    """Each default and each rule that holds for a project, and the policy that says it."""
    board = here.service.board
    row = seen_project(caller, board, project, "projectId")
    found = policy_for(board, row, kind)
    return answer(
        {
            "projectId": row.id,
            "workloadType": kind,
            "defaults": _entries(found.defaults),
            "rules": _entries(found.rules),
        }
    )


def _entries(said: Mapping[Path, Said]) -> list[dict[str, Any]]:
    return [
        {"field": ".".join(path), "value": it.value, "policy": policy_of(it.policy)}
        for path, it in sorted(said.items())
    ]


def _issue(issue: Issue, inside: bool) -> ComplianceIssue:
    """`inside`: the caller may know what runs in the job; without it, the details name no value of that."""
    item = issue_item(issue)
    if not inside and issue.field.split(".")[1] in HIDDEN:
        item["details"] = f"{issue.field} does not comply with the rule {issue.rule}."
    return item


def _preview(kind: str, body: AnyPolicy, here: Context, caller: Principal) -> Response:
    text = _checked(kind, body["policy"])
    board = here.service.board
    scope, key = scope_of(body["meta"], board)
    demand(caller, "policies:write", seen_at(caller, board, scope, key))
    unit = known_unit(board, scope.value, key).queue.id if key else ""
    trial = Asset("", AssetKind.POLICY, kind, "", scope, unit, text)
    refused, checked = [], 0
    for view in sorted(board.workloads.values(), key=lambda view: view.workload.serial):
        row = view.workload
        if PLURALS[row.kind] != kind or row.desired is Desired.DELETED:
            continue
        if not concerns(board, view.project, trial):
            continue
        checked += 1
        spec = {name: value for name, value in spec_of(row).items() if value is not None}
        departments = [trial.scope_id] if scope.value == "department" else []
        policy = effective([trial], kind, view.project.id, departments)
        found = violations(spec, filled(spec, policy), policy, {})
        if found:
            refused.append(
                {
                    "id": row.id,
                    "name": row.name,
                    "projectName": view.project.name,
                    "complianceIssues": [_issue(it, caller.inside(row)) for it in found],
                }
            )
    return answer({"workloads": refused, "checked": checked})


def _routes(kind: Kinds) -> None:
    """The routes for one kind of workloads; its policies concern its fields."""

    def read(
        here: Here, caller: Caller, scope: Scoped = None, project: Key = "", department: DepartmentKey = ""
    ) -> Response:
        """The policy of one scope; what all of them say together is at /api/v1/policies/effective."""
        return answer(_item(_known(here, caller, "policies:read", kind, scope, project, department)))

    def put(body: Any, here: Here, caller: Caller, validate: ValidateOnly = False) -> Response:
        """Replace the whole policy of a scope, or make it."""
        if validate:
            here = replace(here, service=here.service.dry())
        return _keep(kind, body, here, caller, lambda _: body["policy"])

    def patch(body: Any, here: Here, caller: Caller, validate: ValidateOnly = False) -> Response:
        """Set what is named and leave the rest; a rule is replaced as a whole."""
        after: Any = body["policy"]

        def over(before: Any) -> Any:
            return {
                part: _merged(before.get(part, {}), after.get(part, {}), words)
                for part, words in (("defaults", ()), ("rules", WORDS))
            }

        if validate:
            here = replace(here, service=here.service.dry())
        return _keep(kind, body, here, caller, over)

    def delete(
        here: Here, caller: Caller, scope: Scoped = None, project: Key = "", department: DepartmentKey = ""
    ) -> Response:
        row = _known(here, caller, "policies:write", kind, scope, project, department)
        here.service.assets.delete(row.id, caller.user)
        return empty()

    def preview(body: Any, here: Here, caller: Caller) -> Response:
        """Which of today's workloads this policy would have refused. Nothing is changed."""
        return _preview(kind, body, here, caller)

    received: Any = Received
    for handler in (put, patch, preview):
        handler.__annotations__["body"] = received[SENT[kind]]
    path, told = f"/v2/policy/{kind}", answers(200, PolicyItem)
    reads, writes = [needs("policies:read")], [needs("policies:write")]
    router.get(path, name=f"read_policy_{kind}", dependencies=reads, **told)(read)
    router.put(path, name=f"put_policy_{kind}", dependencies=writes, **told)(put)
    router.patch(path, name=f"patch_policy_{kind}", dependencies=writes, **told)(patch)
    router.delete(
        path, name=f"delete_policy_{kind}", dependencies=writes, status_code=204, response_model=None
    )(delete)
    router.post(
        f"{path}/preview",
        name=f"preview_policy_{kind}",
        dependencies=[needs("policies:write", writes=False)],
        **answers(200, PolicyPreview),
    )(preview)


for _kind in KINDS:
    _routes(_kind)
