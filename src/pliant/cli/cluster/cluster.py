"""cluster list, set, crds; and `list clusters` of the first edition."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound

cluster = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.cluster.cluster:list_clusters",
            "set": "pliant.cli.cluster.cluster:set_cluster",
            "settings": "pliant.cli.cluster.settings:settings",
            "events": "pliant.cli.cluster.settings:events",
            "crds": "pliant.cli.cluster.cluster:crds",
            "webhook": "pliant.cli.cluster.webhook:webhook",
        }
    },
    name="cluster",
    help="List the clusters of this server; show and change scheduling settings.",
)


def _clusters(session: Session) -> tuple[list[Any], str]:
    """All clusters, and the id of the chosen one (the first by default; "" if there is none)."""
    found: list[Any] = list(session.client.clusters())
    chosen = session.config.cluster(session.endpoint.key)
    if chosen not in [entry["uuid"] for entry in found]:
        chosen = found[0]["uuid"] if found else ""
    return found, str(chosen)


def list_classic(session: Session, names: Sequence[str]) -> None:
    """Print the table of `list clusters`."""
    found, chosen = _clusters(session)
    found = [entry for entry in found if not names or entry["name"] in names]

    def rows() -> str:
        lines = [
            [
                entry["name"] + (" (current)" if entry["uuid"] == chosen else ""),
                session.current_project if entry["uuid"] == chosen else "",
            ]
            for entry in found
        ]
        text = table(("CLUSTER", "CURRENT PROJECT"), lines, headers=session.headers)
        return f"Configured clusters on this computer are:\n{text}" if session.headers else text

    show(session, found, rows)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_clusters(session: Session) -> None:
    """List clusters with their UUIDs."""
    found, chosen = _clusters(session)

    def rows() -> str:
        lines = [
            [
                entry["name"] + (" (current)" if entry["uuid"] == chosen else ""),
                entry["uuid"],
                (entry.get("status") or {}).get("state") or "",
                entry.get("version") or "",
            ]
            for entry in found
        ]
        return table(("Cluster", "UUID", "Status", "Version"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("set", cls=Command)
@click.argument("name", required=False)
@click.option(
    "--keep-deleted", metavar="TIME", help="Time to keep the files of deleted jobs: 12h, 30d (default: 7d)."
)
@pass_session
def set_cluster(session: Session, name: str | None, keep_deleted: str | None) -> None:
    """Choose a cluster by name or UUID, or change a setting of the cluster."""
    if name is None and keep_deleted is None:
        raise click.UsageError("Specify the name of a cluster or --keep-deleted TIME.")
    if name is not None:
        choose(session, name)
    if keep_deleted is not None:
        session.client.set_settings({"keep-deleted": keep_deleted})
        click.echo(f"Files of deleted jobs are kept for {keep_deleted}.")


def choose(session: Session, name: str) -> None:
    for entry in session.client.clusters():
        if name in (entry["name"], entry["uuid"]):
            session.config.set_cluster(session.endpoint.key, entry["uuid"])
            click.echo(f"Set current cluster to {entry['name']}")
            return
    raise NotFound(f"Cluster {name} does not exist", f"`{session.program} cluster list` shows the clusters.")


@click.command("crds", cls=Command)
def crds() -> None:
    """Print the definitions of Pliant's custom resources, for `kubectl apply -f -`.

    They belong to this version of Pliant: apply them again after an upgrade.
    """
    texts = [
        each.read_text("utf-8")
        for each in sorted(
            files("pliant").joinpath("engines", "kube", "crds").iterdir(), key=lambda each: each.name
        )
    ]
    click.echo("---\n".join(texts), nl=False)
