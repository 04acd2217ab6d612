"""asset: stored parts of submissions. policy: defaults and rules for submissions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.organization.apply import fault
from pliant.cli.output.amounts import counted, show_age
from pliant.cli.output.formats import as_yaml, output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound
from pliant.client.transport import Query, segment

KINDS = {
    "environment": "asset/environment",
    "compute": "asset/compute",
    "git": "asset/datasource/git",
    "host-path": "asset/datasource/host-path",
    "nfs": "asset/datasource/nfs",
    "password": "asset/credentials/password",
    "generic-secret": "asset/credentials/generic-secret",
    "training-template": "workload-templates/trainings",
    "workspace-template": "workload-templates/workspaces",
    "distributed-template": "workload-templates/distributed",
    "inference-template": "workload-templates/inferences",
}
WORKLOADS = ("trainings", "workspaces", "distributed", "inferences")
POLICY, EFFECTIVE = "/api/v2/policy", "/api/v1/policies/effective"
_HERE = "pliant.cli.organization.kept"

asset = LazyGroup(
    {
        "Commands": {
            "list": f"{_HERE}:list_assets",
            "create": f"{_HERE}:create_asset",
            "update": f"{_HERE}:update_asset",
            "describe": f"{_HERE}:describe_asset",
            "delete": f"{_HERE}:delete_assets",
        }
    },
    name="asset",
    help="Keep parts of submissions. KIND is environment, compute, git, host-path, nfs, password, "
    "generic-secret, or training-template, workspace-template, distributed-template, inference-template.",
)

policy = LazyGroup(
    {
        "Commands": {
            "list": f"{_HERE}:list_policies",
            "describe": f"{_HERE}:describe_policy",
            "set": f"{_HERE}:set_policy",
            "delete": f"{_HERE}:delete_policy",
        }
    },
    name="policy",
    help="Set defaults and rules for submissions: of everybody, a department or a project.",
)


def _scope(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--in-project", metavar="NAME", help="Only for this project.")(function)
    return click.option("--department", metavar="NAME", help="Only for this department.")(function)


def _meta(session: Session, department: str | None, in_project: str | None) -> dict[str, Any]:
    """The scope as the API has it; the options take a name or an id. Raises UsageError, NotFound."""
    if department is not None and in_project is not None:
        raise click.UsageError("Specify --department or --in-project, not both.")
    if in_project is not None:
        return {"scope": "project", "projectId": session.client.project(in_project)["id"]}
    if department is not None:
        path = f"/api/v1/org-unit/departments/{segment(department)}"
        return {"scope": "department", "departmentId": session.client.call("GET", path)["id"]}
    return {"scope": "tenant"}


def _whose(session: Session, meta: Mapping[str, Any]) -> str:
    if meta["scope"] == "tenant":
        return "all"
    names = {it["id"]: it["name"] for it in session.client.pages(f"/api/v1/org-unit/{meta['scope']}s")}
    return f"{meta['scope']} {names.get(meta['scopeId'], meta['scopeId'])}"


def _mapping(file: str, *, texts: bool = False) -> dict[str, Any]:
    """The fields of a YAML or JSON file; '-' is standard input. Raises UsageError.

    `texts`: each value is the text that the file has, also 0123, yes and null.
    """
    import yaml  # most commands never need it

    try:
        if file == "-":
            text = sys.stdin.read()
        else:
            with open(file, encoding="utf-8") as stream:
                text = stream.read()
        # Neither loader makes objects of other classes.
        found = yaml.load(text, yaml.BaseLoader if texts else yaml.SafeLoader)  # nosec B506
        json.dumps(found)
    except RecursionError:
        raise click.UsageError(f"--file {file}: its values are nested too deep.") from None
    except TypeError as error:
        raise click.UsageError(f"--file {file}: {error}; write dates and times in quotes.") from None
    except OSError as error:
        raise click.UsageError(f"--file {file}: {error.strerror or error}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise click.UsageError(f"--file {file}:{fault(error)}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"--file {file}: this must be fields with values, such as image: ubuntu.")
    return found


# -- assets -----------------------------------------------------------------------------------------

_kind = click.argument("kind", type=click.Choice([*KINDS]), metavar="KIND")
_file = click.option(
    "-f", "--file", metavar="FILE", help="File with its fields, in YAML or JSON; - is standard input."
)


def _path(kind: str, identity: str = "") -> str:
    return f"/api/v1/{KINDS[kind]}" + (f"/{segment(identity)}" if identity else "")


def _named(session: Session, kind: str, name: str) -> dict[str, Any]:
    """The asset of that id or name. Raises NotFound."""
    for one in session.client.pages(_path(kind)):
        if name in (one["meta"]["id"], one["meta"]["name"]):
            return one
    raise NotFound(f"{kind} {name} does not exist.", f"See them with: pliant asset list {kind}")


def _spec(kind: str, file: str | None, user: str | None) -> dict[str, Any]:
    """The fields to send. Credentials come from the terminal or a file: all users can read arguments."""
    if kind == "password":
        if file is not None:
            raise click.UsageError("A password is typed, or read from standard input: leave --file out.")
        secret = click.prompt("Password", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
        return {"password": secret.rstrip("\n"), **({"user": user} if user else {})}
    if user is not None:
        raise click.UsageError("Only a password has a --user.")
    if file is None:
        raise click.UsageError("Specify --file.")
    if kind != "generic-secret":
        return _mapping(file)
    found = _mapping(file, texts=True)
    return {"keyValuePairs": [{"key": key, "value": value} for key, value in found.items()]}


@click.command("list", cls=Command)
@click.argument("kind", type=click.Choice([*KINDS]), required=False, metavar="[KIND]")
@output_options
@pass_session
def list_assets(session: Session, kind: str | None) -> None:
    """List assets of one KIND, or all of them."""
    found = [
        {"kind": each, **one}
        for each in ([kind] if kind is not None else KINDS)
        for one in session.client.pages(_path(each))
    ]

    def rows() -> str:
        if not found:
            return "No assets."
        lines = []
        for one in found:
            meta = one["meta"]
            age = show_age(meta["createdAt"])
            lines.append([one["kind"], meta["name"], _whose(session, meta), meta["createdBy"], age])
        return table(("Kind", "Name", "For", "By", "Age"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("create", cls=Command)
@_kind
@click.argument("name")
@_file
@click.option("--user", metavar="NAME", help="User name that belongs to a password.")
@click.option("--description", metavar="TEXT", help="Description.")
@_scope
@output_options
@pass_session
def create_asset(
    session: Session,
    kind: str,
    name: str,
    file: str | None,
    user: str | None,
    description: str | None,
    department: str | None,
    in_project: str | None,
) -> None:
    """Create an asset for all users, a department or a project."""
    meta = {"name": name, "description": description or "", **_meta(session, department, in_project)}
    body = {"meta": meta, "spec": _spec(kind, file, user)}
    made = session.client.call("POST", _path(kind), body=body)
    if structured(session, made):
        return
    click.echo(f"{kind} {name} created.")
    for notice in made["notices"]:
        session.note(notice)


@click.command("update", cls=Command)
@_kind
@click.argument("name")
@_file
@click.option("--user", metavar="NAME", help="User name that belongs to a password.")
@output_options
@pass_session
def update_asset(session: Session, kind: str, name: str, file: str | None, user: str | None) -> None:
    """Replace the fields of an asset. Workloads that were submitted with it are not changed."""
    path = _path(kind, _named(session, kind, name)["meta"]["id"])
    made = session.client.call("PATCH", path, body={"spec": _spec(kind, file, user)})
    if not structured(session, made):
        click.echo(f"{kind} {name} updated.")


@click.command("describe", cls=Command)
@_kind
@click.argument("name")
@output_options
@pass_session
def describe_asset(session: Session, kind: str, name: str) -> None:
    """Show an asset. The values of credentials are never shown."""
    found = _named(session, kind, name)
    if not structured(session, found):
        click.echo(as_yaml({"name": name, "for": _whose(session, found["meta"]), "spec": found["spec"]}))


@click.command("delete", cls=Command)
@_kind
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Accepted; workloads keep what they took from it.")
@pass_session
def delete_assets(session: Session, kind: str, names: tuple[str, ...], yes: bool) -> None:
    """Delete assets. Workloads that were submitted with them keep running."""
    for name in names:
        session.client.call("DELETE", _path(kind, _named(session, kind, name)["meta"]["id"]))
        click.echo(f"{kind} {name} deleted.")


# -- policies ---------------------------------------------------------------------------------------

_workloads = click.argument("workloads", type=click.Choice(WORKLOADS))


def _query(meta: Mapping[str, Any]) -> Query:
    return list(meta.items())


@click.command("list", cls=Command)
@output_options
@pass_session
def list_policies(session: Session) -> None:
    """List the policies that you may read."""
    found = session.client.call("GET", POLICY)["policies"]

    def rows() -> str:
        if not found:
            return "No policies are set."
        lines = [
            [one["type"], _whose(session, one["meta"]), show_age(one["meta"]["createdAt"])] for one in found
        ]
        return table(("Workloads", "For", "Age"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("describe", cls=Command)
@_workloads
@click.option("--effective", metavar="PROJECT", help="Show what all policies together say for this project.")
@_scope
@output_options
@pass_session
def describe_policy(
    session: Session, workloads: str, effective: str | None, department: str | None, in_project: str | None
) -> None:
    """Show the policy of a scope, or with --effective what applies to a project."""
    if effective is None:
        meta = _meta(session, department, in_project)
        found = session.client.call("GET", f"{POLICY}/{workloads}", query=_query(meta))
        if not structured(session, found):
            click.echo(as_yaml(found["policy"]))
        return
    query: Query = [("projectId", effective), ("workloadType", workloads)]
    found = session.client.call("GET", EFFECTIVE, query=query)
    if structured(session, found):
        return
    lines = [
        [what, one["field"], str(one["value"]), one["policy"]["scope"]]
        for what in ("defaults", "rules")
        for one in found[what]
    ]
    header = ("Part", "Field", "Value", "Set for")
    click.echo(table(header, lines, rule=True, headers=session.headers) if lines else "No policy applies.")


@click.command("set", cls=Command)
@_workloads
@click.option(
    "-f", "--file", required=True, metavar="FILE", help="File with defaults and rules, in YAML or JSON."
)
@click.option(
    "--preview", is_flag=True, help="Change nothing; list the workloads that it would have refused."
)
@_scope
@output_options
@pass_session
def set_policy(
    session: Session,
    workloads: str,
    file: str,
    preview: bool,
    department: str | None,
    in_project: str | None,
) -> None:
    """Set the policy of a scope; it replaces the one before. Running workloads are not changed."""
    body = {"meta": _meta(session, department, in_project), "policy": _mapping(file)}
    if not preview:
        made = session.client.call("PUT", f"{POLICY}/{workloads}", body=body)
        if not structured(session, made):
            click.echo(f"Policy for {workloads} set for {_whose(session, made['meta'])}.")
        return
    found = session.client.call("POST", f"{POLICY}/{workloads}/preview", body=body)
    if structured(session, found):
        return
    for one in found["workloads"]:
        issues = "; ".join(issue["details"] for issue in one["complianceIssues"])
        click.echo(f"{one['projectName']}/{one['name']}: {issues}")
    click.echo(
        f"{len(found['workloads'])} of {counted(found['checked'], 'workload')} would have been refused."
    )


@click.command("delete", cls=Command)
@_workloads
@_scope
@click.option("-y", "--yes", is_flag=True, help="Accepted; nothing is asked.")
@pass_session
def delete_policy(
    session: Session, workloads: str, department: str | None, in_project: str | None, yes: bool
) -> None:
    """Delete the policy of a scope."""
    meta = _meta(session, department, in_project)
    session.client.call("DELETE", f"{POLICY}/{workloads}", query=_query(meta))
    click.echo(f"Policy for {workloads} deleted.")
