"""Completes a submission with its template and assets, and with the defaults of policies, which it checks."""

import json
from collections.abc import Mapping
from typing import Any, cast

from pliant.api.identity.vault import Vault
from pliant.api.requests.volumes import logins
from pliant.api.units import project_named
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.policy import Effective, Incompliant, Issue, effective, filled, issues
from pliant.model.asset import CREDENTIALS, DATA_SOURCES, Asset, AssetKind, Scope
from pliant.model.tenancy import Department, Project
from pliant.model.volume import login_variables
from pliant.model.workload import Kind
from pliant.wire import submission as wire

PLURALS = {
    Kind.TRAINING: "trainings",
    Kind.WORKSPACE: "workspaces",
    Kind.DISTRIBUTED: "distributed",
    Kind.INFERENCE: "inferences",
}


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
    """True if the asset is for that project: its own, that of a department above it, or the tenant's."""
    return row.scope is Scope.TENANT or (
        row.scope_id == project.id if row.scope is Scope.PROJECT else row.scope_id in above(board, project)
    )


def policy_for(board: Board, project: Project, workloads: str) -> Effective:
    return effective(board.assets, workloads, project.id, above(board, project))


def complete(body: wire.AnySubmission, kind: Kind, board: Board) -> wire.AnySubmission:
    """The body with what its template, its assets and the policies add.

    Raises Incompliant, NotFound, BadRequest; the service refuses a project that does not exist.
    """
    named = body.get("templateId") or body.get("assets")
    if not named and not board.assets:
        return body
    project = project_named(board, body.get("projectId") or body.get("projectName") or "")
    if project is None:
        return body
    sent: Mapping[str, Any] = body.get("spec", {})
    for row, field in _named(body, kind, board, project):
        kept = json.loads(row.body)
        if row.kind in DATA_SOURCES:
            storage = sent.get("storage") or {}
            volumes = [*(storage.get(row.kind.value) or ()), {"name": row.name, **kept}]
            sent = {**sent, "storage": {**storage, row.kind.value: volumes}}
            continue
        sent = _over(sent, {"compute": kept} if row.kind is AssetKind.COMPUTE else kept, field)
    policy = policy_for(board, project, PLURALS[kind])
    whole = filled(sent, policy)
    if found := violations(sent, whole, policy, cast("Mapping[str, Any]", body)):
        raise Incompliant(found)
    return cast("wire.AnySubmission", {**body, "spec": whole})


def violations(
    sent: Mapping[str, Any], whole: Mapping[str, Any], policy: Effective, body: Mapping[str, Any]
) -> list[Issue]:
    """Violations by the spec, and by the fields that its master and its groups set themselves."""
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
    """The assets and the template, each with its field; assets first, because they win over the template."""
    chosen = body.get("assets", {})
    wanted = [
        (_ENVIRONMENT, "", chosen.get("environment"), "assets.environment"),
        (_COMPUTE, "", chosen.get("compute"), "assets.compute"),
        (_TEMPLATE, PLURALS[kind], body.get("templateId"), "templateId"),
    ]
    for at, one in enumerate(chosen.get("datasources", ())):
        word = "hostPath" if one.get("kind") == "host-path" else one.get("kind")
        kinds = frozenset({AssetKind(word)}) if word else DATA_SOURCES
        wanted.append((kinds, "", one["id"], f"assets.datasources[{at}]"))
    return [
        (_found(board, project, kinds, workloads, key, field), field)
        for kinds, workloads, key, field in wanted
        if key
    ]


_ENVIRONMENT, _COMPUTE, _TEMPLATE = (
    frozenset({it}) for it in (AssetKind.ENVIRONMENT, AssetKind.COMPUTE, AssetKind.TEMPLATE)
)


def _found(
    board: Board, project: Project, kinds: frozenset[AssetKind], workloads: str, key: str, field: str
) -> Asset:
    """The asset with that id or name that the project may use. Raises NotFound."""
    for row in reversed(board.assets):
        known = row.kind in kinds and row.workloads == workloads and key in (row.id, row.name)
        if known and concerns(board, project, row):
            return row
    what = next(iter(kinds)).value if len(kinds) == 1 else "data source"
    what = "credential" if kinds == CREDENTIALS else what
    raise NotFound(
        f"There is no {what} {key[:60]!r} for {workloads or 'workloads'} of {project.name}.",
        f"See what there is with: GET {_LISTED.get(what, '/api/v1/asset/datasource/git, /host-path, /nfs')}",
        field=field,
    )


_LISTED = {
    "environment": "/api/v1/asset/environment",
    "compute": "/api/v1/asset/compute",
    "template": "/api/v1/workload-templates",
    "credential": "/api/v1/asset/credentials/password, /generic-secret",
}

_SHARED = frozenset(
    {"gpuRequestType", "gpuPortionRequest", "gpuPortionLimit", "gpuMemoryRequest", "gpuMemoryLimit"}
)
_GIVES_WAY = {"command": "commandArgv", "args": "argsArgv", "workingDir": "submittedFrom"}
"""A field that is sent, and the stored field that would win over it or that is no longer true."""


def overlaid(told: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a workload as answers show it, changed by the fields that were sent.

    It has neither variables nor storage, because answers do not show values and credentials.
    """
    gone = {_GIVES_WAY.get(name, "") for name in sent} | {"environmentVariables", "storage"}
    base = {name: value for name, value in told.items() if name not in gone and value not in (None, "")}
    compute, scaling = sent.get("compute") or {}, sent.get("autoscaling") or {}
    if _SHARED & compute.keys() or compute.get("gpuDevicesRequest") == 0:
        base["compute"] = {name: value for name, value in base["compute"].items() if name not in _SHARED}
    if "minReplicas" in scaling:
        base.pop("autoscaling", None)
    return _over(sent, base, "spec")


# -- values of credentials --------------------------------------------------------------------------


def unsealed(body: wire.AnySubmission, board: Board, vault: Vault) -> wire.AnySubmission:
    """The body with the values of the credentials that it names: for the engine, which seals them again."""
    project = project_named(board, body.get("projectId") or body.get("projectName") or "")
    if project is None:
        return body
    whole: dict[str, Any] = dict(body)
    for name in ("spec", "masterSpec"):
        if isinstance(whole.get(name), Mapping):
            outer = body.get("spec", {}) if name == "masterSpec" else {}
            whole[name] = _with_values(whole[name], outer, board, project, vault, name)
    return cast("wire.AnySubmission", whole)


def _with_values(
    spec: Mapping[str, Any],
    outer: Mapping[str, Any],
    board: Board,
    project: Project,
    vault: Vault,
    at: str,
) -> dict[str, Any]:
    """`outer`: the spec that holds for fields that `spec` does not set."""
    made = dict(spec)
    volumes = [*logins(made.get("storage", outer.get("storage")) or {})]
    own = made.get("environmentVariables")
    if own is None:
        own = outer.get("environmentVariables") or () if volumes else ()

    def value(key: str, of: str, field: str, default: str | None = None) -> str:
        row = _found(board, project, CREDENTIALS, "", of, field)
        values = vault.opened(
            json.loads(row.body)["sealed"],
            f"The values of the credential {row.name} were",
            "Set them again: PATCH the credential with its whole spec.",
        )
        if key not in values and default is None:
            raise BadRequest(
                f"The credential {row.name} has no value {key[:60]!r}.",
                f"It has: {', '.join(sorted(values))}.",
                field=field,
            )
        return values.get(key, default or "")

    variables = []
    for place, entry in enumerate(own):
        chosen = entry.get("credential")
        if chosen is not None and not entry.get("exclude"):
            field = f"{at}.environmentVariables[{place}].credential"
            if "value" in entry:
                raise BadRequest(
                    f"The environment variable {entry['name'][:60]!r} has a value and a credential.",
                    "Leave one of them out.",
                    field=field,
                )
            text = value(chosen["key"], chosen["assetId"], field)
            variables.append({"name": entry["name"], "value": text})
        else:
            variables.append(entry)
    for place, volume in volumes:
        field = f"{at}.storage.git"
        user, password = login_variables(place)
        variables.append({"name": user, "value": value("user", volume["credentialId"], field, "git")})
        variables.append({"name": password, "value": value("password", volume["credentialId"], field)})
    if variables:
        made["environmentVariables"] = variables
    groups = made.get("taskGroups") or ()
    if groups:
        made["taskGroups"] = [
            {
                **group,
                "spec": _with_values(
                    group["spec"], spec, board, project, vault, f"{at}.taskGroups[{n}].spec"
                ),
            }
            if "spec" in group
            else group
            for n, group in enumerate(groups)
        ]
    return made


def _over(sent: Mapping[str, Any], base: Mapping[str, Any], field: str) -> dict[str, Any]:
    """`base` with all that was sent; objects are merged, everything else is replaced. Raises BadRequest."""
    made = dict(base)
    for name, value in sent.items():
        below = made.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            made[name] = _over(value, below, field)
        elif value is not None:
            made[name] = value
    if {"gpuMemoryRequest", "gpuPortionRequest"} <= made.keys() and "gpuRequestType" in made:
        raise BadRequest(
            "Both a portion and an amount of GPU memory would be requested.",
            "Leave out the one that the template or asset does not have.",
            field=field,
        )
    return made
