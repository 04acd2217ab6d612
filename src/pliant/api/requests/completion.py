"""A submission with the template and the assets that it names, and with what policies say about it."""

import json
from collections.abc import Mapping
from typing import Any, cast

from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.policy import Effective, Incompliant, Issue, effective, filled, issues
from pliant.model.asset import Asset, AssetKind, Scope
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Kind
from pliant.wire import submission as wire

PLURALS = {
    Kind.TRAINING: "trainings",
    Kind.WORKSPACE: "workspaces",
    Kind.DISTRIBUTED: "distributed",
    Kind.INFERENCE: "inferences",
}


def project_of(board: Board, key: str) -> Project | None:
    """By id or name."""
    for view in board.projects.values():
        if key in (view.queue.id, view.queue.name) and isinstance(view.queue, Project):
            return view.queue
    return None


def above(board: Board, project: Project) -> list[str]:
    """Ids of the departments above a project, the nearest first."""
    found: list[str] = []
    identity = project.department
    while identity and identity not in found:
        found.append(identity)
        view = board.departments.get(identity)
        identity = view.queue.parent if view is not None and isinstance(view.queue, Department) else ""
    return found


def concerns(board: Board, project: Project, row: Asset) -> bool:
    """True if the asset is for that project: its own, of a department above it, or of all."""
    return row.scope is Scope.TENANT or (
        row.scope_id == project.id if row.scope is Scope.PROJECT else row.scope_id in above(board, project)
    )


def policy_for(board: Board, project: Project, workloads: str) -> Effective:
    return effective(board.assets, workloads, project.id, above(board, project))


def complete(body: wire.AnySubmission, kind: Kind, board: Board) -> wire.AnySubmission:
    """Raises Incompliant, NotFound, BadRequest; a project that there is not is for the service to refuse."""
    named = body.get("templateId") or body.get("assets")
    if not named and not board.assets:
        return body
    project = project_of(board, body.get("projectId") or body.get("projectName") or "")
    if project is None:
        return body
    sent: Mapping[str, Any] = body.get("spec", {})
    for row, field in _named(body, kind, board, project):
        kept = json.loads(row.body)
        sent = _over(sent, {"compute": kept} if row.kind is AssetKind.COMPUTE else kept, field)
    policy = policy_for(board, project, PLURALS[kind])
    whole = filled(sent, policy)
    if found := violations(sent, whole, policy, cast("Mapping[str, Any]", body)):
        raise Incompliant(found)
    return cast("wire.AnySubmission", {**body, "spec": whole})


def violations(
    sent: Mapping[str, Any], whole: Mapping[str, Any], policy: Effective, body: Mapping[str, Any]
) -> list[Issue]:
    """Of the spec, and of what its master and its groups say otherwise."""
    found = issues(sent, whole, policy, "spec")
    parts = [("masterSpec", body.get("masterSpec") or {})]
    parts += [
        (f"spec.taskGroups[{at}].spec", group.get("spec", {}))
        for at, group in enumerate(sent.get("taskGroups", ()))
    ]
    for at, part in parts:
        own = {name: value for name, value in part.items() if value is not None}
        found += [issue for issue in issues(own, own, policy, at) if part and issue.rule != "required"]
    return found


def _named(body: wire.AnySubmission, kind: Kind, board: Board, project: Project) -> list[tuple[Asset, str]]:
    """The assets first: they win over the template."""
    chosen = body.get("assets", {})
    wanted = [
        (AssetKind.ENVIRONMENT, "", chosen.get("environment"), "assets.environment"),
        (AssetKind.COMPUTE, "", chosen.get("compute"), "assets.compute"),
        (AssetKind.TEMPLATE, PLURALS[kind], body.get("templateId"), "templateId"),
    ]
    found = []
    for what, workloads, key, field in wanted:
        if not key:
            continue
        known = [
            row
            for row in board.assets
            if row.kind is what and row.workloads == workloads and key in (row.id, row.name)
        ]
        row = next((row for row in reversed(known) if concerns(board, project, row)), None)
        if row is None:
            raise NotFound(
                f"There is no {what.value} {key[:60]!r} for {workloads or 'workloads'} of {project.name}.",
                "See what there is with: GET /api/v1/asset/environment, /asset/compute, /workload-templates/",
                field=field,
            )
        found.append((row, field))
    return found


def _over(sent: Mapping[str, Any], base: Mapping[str, Any], field: str) -> dict[str, Any]:
    """`base` with all that was sent; objects are merged, everything else is replaced."""
    made = dict(base)
    for name, value in sent.items():
        below = made.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            made[name] = _over(value, below, field)
        elif value is not None:
            made[name] = value
    if {"gpuMemoryRequest", "gpuPortionRequest"} <= made.keys() and "gpuRequestType" in made:
        raise BadRequest(
            "Both a portion and an amount of GPU memory would be asked for.",
            "Leave out the one that the template or asset does not have.",
            field=field,
        )
    return made
