"""node label, node taint: set labels and taints in kubectl's syntax."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.output.formats import output_options, structured
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@click.command("label", cls=Command)
@click.argument("name")
@click.argument("labels", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...")
@output_options
@pass_session
def label(session: Session, name: str, labels: tuple[str, ...]) -> None:
    """Set labels of a node: gpu=h100. A trailing minus removes a label: gpu-."""
    change = dict(_label(text) for text in labels)
    if not structured(session, session.client.update_node(name, {"labels": change})):
        click.echo(f"Node {name} labeled.")


def _label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if key and equals:
        return key, value
    if len(text) > 1 and text.endswith("-"):
        return text[:-1], None
    raise click.UsageError(f"{text!r}: expected KEY=VALUE, or KEY- to remove the label.")


@click.command("taint", cls=Command)
@click.argument("name")
@click.argument("taints", nargs=-1, required=True, metavar="KEY[=VALUE]:EFFECT|KEY[:EFFECT]-...")
@output_options
@pass_session
def taint(session: Session, name: str, taints: tuple[str, ...]) -> None:
    """Taint a node against jobs that do not tolerate it: maintenance=soon:NoSchedule.

    EFFECT is NoSchedule (no new jobs), PreferNoSchedule (only if no other node is free) or NoExecute (evicts
    running jobs too). A trailing minus removes a taint: maintenance:NoSchedule-, or maintenance- for every
    effect.
    """
    entries = [entry for text in taints for entry in _taint(session, name, text)]
    if not structured(session, session.client.update_node(name, {"taints": entries})):
        click.echo(f"Node {name} tainted." if any("exclude" not in e for e in entries) else _untainted(name))


def _untainted(name: str) -> str:
    return f"Node {name} untainted."


def _taint(session: Session, name: str, text: str) -> list[dict[str, Any]]:
    gone = text.endswith("-")
    mark, colon, effect = text.removesuffix("-").partition(":")
    key, equals, value = mark.partition("=")
    if not key or (colon and effect not in EFFECTS) or not (colon or gone) or (gone and equals):
        raise click.UsageError(
            f"{text!r}: expected KEY[=VALUE]:EFFECT, or KEY[:EFFECT]- to remove the taint; EFFECT is "
            f"{', '.join(EFFECTS)}."
        )
    if not gone:
        return [{"key": key, "value": value, "effect": effect}]
    if colon:
        return [{"key": key, "effect": effect, "exclude": True}]
    there = [taint["effect"] for taint in session.client.node(name)["taints"] if taint["key"] == key]
    if not there:
        raise NotFound(f"Node {name} has no taint {key}.", f"See them with: pliant describe node {name}")
    return [{"key": key, "effect": one, "exclude": True} for one in there]
