"""department list, create, update, delete."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.organization import quotas
from pliant.cli.output.amounts import show_gpus
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session

department = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.organization.department:list_departments",
            "describe": "pliant.cli.organization.describe:department",
            "create": "pliant.cli.organization.department:create",
            "update": "pliant.cli.organization.department:update",
            "delete": "pliant.cli.organization.department:delete",
        }
    },
    name="department",
    help="List, show, create and delete departments, the parents of projects.",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_departments(session: Session) -> None:
    """List departments with quota, limit and allocated GPUs."""
    units: list[Any] = sorted(session.client.departments(), key=lambda unit: unit["name"])

    def rows() -> str:
        header = ("Department", "GPU Quota", "Allocated GPUs", "Over Quota")
        lines = [
            [
                unit["name"],
                quotas.shown(unit),
                show_gpus(quotas.allocated(unit)),
                show_gpus(unit.get("overQuotaGpus")),
            ]
            for unit in units
        ]
        text = table(header, lines, rule=True, headers=session.headers)
        return text + (quotas.footnote(units) if session.headers else "")

    show(session, units, rows)


def _parent_option(function: Any) -> Any:
    return click.option("--parent", metavar="NAME", help="Parent department; none: top level.")(function)


def _body(given: dict[str, Any]) -> dict[str, Any]:
    body = quotas.body(given)
    if given["parent"] is not None:
        body["departmentName"] = "" if given["parent"] == "none" else given["parent"]
    return body


@click.command("create", cls=Command)
@click.argument("name")
@quotas.quota_options
@_parent_option
@output_options
@pass_session
def create(session: Session, name: str, **given: Any) -> None:
    """Create a department."""
    quotas.create(session, "department", {"name": name, **_body(given)})


@click.command("update", cls=Command)
@click.argument("name")
@quotas.quota_options
@_parent_option
@output_options
@pass_session
def update(session: Session, name: str, **given: Any) -> None:
    """Change the settings given as options."""
    quotas.update(session, "department", name, _body(given))


@click.command("delete", cls=Command)
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Accepted; a department with projects is never deleted.")
@pass_session
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete departments that have no projects."""
    quotas.delete(session, "department", names)
