"""project list, set, create, update, delete; and `list projects` of the first edition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.organization import quotas
from pliant.cli.output.amounts import show_duration, show_gpus
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound

project = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.organization.project:list_projects",
            "describe": "pliant.cli.organization.describe:project",
            "set": "pliant.cli.organization.project:set_project",
            "create": "pliant.cli.organization.project:create",
            "update": "pliant.cli.organization.project:update",
            "delete": "pliant.cli.organization.project:delete",
        }
    },
    name="project",
    help="List, show, create and delete projects.",
)


def _units(session: Session) -> list[Any]:
    return sorted(session.client.projects(), key=lambda unit: unit["name"])


def list_classic(session: Session, names: Sequence[str]) -> None:
    """Print the table of `list projects`."""
    units = [unit for unit in _units(session) if not names or unit["name"] in names]
    current = session.current_project

    def rows() -> str:
        header = ("PROJECT", "DEPARTMENT", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY")
        return table(header, [_classic(unit, current) for unit in units], headers=session.headers)

    show(session, units, rows)


def _classic(unit: Any, current: str) -> list[str]:
    limit = (unit.get("schedulingRules") or {}).get("interactiveJobTimeLimitSeconds")
    types = unit.get("nodeTypes") or {}
    quota = quotas.quota(unit)
    return [
        unit["name"] + (" (default)" if unit["name"] == current else ""),
        unit.get("departmentName") or "-",
        show_gpus(quota) if quota else "-",
        show_duration(limit) if limit else "-",
        ";".join(types.get("workspace") or []) or "-",
        ";".join(types.get("training") or []) or "-",
    ]


@click.command("list", cls=Command)
@output_options
@pass_session
def list_projects(session: Session) -> None:
    """List projects with quota, allocated and over-quota GPUs."""
    units = _units(session)
    current = session.current_project

    def rows() -> str:
        header = ["Project", "Department", "GPU Quota", "Allocated GPUs", "Over Quota", "Past Use"]
        wide = session.output == "wide"
        lines = []
        for unit in units:
            row = [
                unit["name"] + (" (current)" if unit["name"] == current else ""),
                unit.get("departmentName") or "",
                quotas.shown(unit),
                show_gpus(quotas.allocated(unit)),
                show_gpus(unit.get("overQuotaGpus")),
                quotas.past_hours(unit),
            ]
            lines.append(row + _wide(unit) if wide else row)
        text = table(header + _WIDE if wide else header, lines, rule=True, headers=session.headers)
        return text + (quotas.footnote(units) if session.headers else "")

    show(session, units, rows)


_WIDE = ["Fair Share", "GPU Limit", "Weight", "Rank", "Status"]


def _wide(unit: Any) -> list[str]:
    pools = {pool["nodePool"].get("name"): pool for pool in unit.get("resources") or []}
    pool = pools.get(quotas.DEFAULT_POOL) or {}
    gpu = pool.get("gpu") or {}
    return [
        show_gpus(unit.get("fairShareGpus")),
        "-" if gpu.get("limit") is None else show_gpus(gpu["limit"]),
        "-" if gpu.get("overQuotaWeight") is None else f"{gpu['overQuotaWeight']:g}",
        pool.get("priority") or "-",
        (unit.get("status") or {}).get("phase") or "",
    ]


@click.command("set", cls=Command)
@click.argument("name")
@pass_session
def set_project(session: Session, name: str) -> None:
    """Set the default project for later commands."""
    choose(session, name)


def choose(session: Session, name: str) -> None:
    try:
        unit = session.client.project(name)
    except NotFound:
        raise NotFound(
            f"Project {name} does not exist.", f"`{session.program} list project` shows the projects."
        ) from None
    session.config.set_project(session.endpoint.key, unit["name"])
    click.echo(f"Project {unit['name']} has been set as default project")


def _own_options(function: Any) -> Any:
    for decorate in (
        click.option("--department", metavar="NAME", help="Parent department."),
        click.option(
            "--default-node-pools",
            metavar="A,B",
            help="Default node pools of its workloads, in the order to try.",
        ),
        click.option("--interactive-node-types", metavar="A,B", help="Node types that workspaces may use."),
        click.option("--training-node-types", metavar="A,B", help="Node types that trainings may use."),
    ):
        function = decorate(function)
    return function


def _body(given: dict[str, Any]) -> dict[str, Any]:
    body = quotas.body(given)
    if given["department"] is not None:
        body["departmentName"] = given["department"]
    if given["default_node_pools"] is not None:
        body["defaultNodePools"] = _names(given["default_node_pools"])
    types = {
        field: _names(given[key])
        for field, key in (("workspace", "interactive_node_types"), ("training", "training_node_types"))
        if given[key] is not None
    }
    if types:
        body["nodeTypes"] = types
    return body


def _names(text: str) -> list[str]:
    return [name for name in text.replace(",", " ").split() if name]


@click.command("create", cls=Command)
@click.argument("name")
@quotas.quota_options
@_own_options
@output_options
@pass_session
def create(session: Session, name: str, **given: Any) -> None:
    """Create a project."""
    body = {"name": name, **_body(given)}
    body.setdefault("resources", [{"nodePool": {"name": quotas.DEFAULT_POOL}, "gpu": {"deserved": 0}}])
    quotas.create(session, "project", body)


@click.command("update", cls=Command)
@click.argument("name")
@quotas.quota_options
@_own_options
@output_options
@pass_session
def update(session: Session, name: str, **given: Any) -> None:
    """Change the settings given as options."""
    quotas.update(session, "project", name, _body(given))


@click.command("delete", cls=Command)
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Accepted; a project with workloads is never deleted.")
@pass_session
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete projects that have no workloads."""
    quotas.delete(session, "project", names)
