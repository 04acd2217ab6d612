"""nodepool list, create, update, delete."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import duration, pair, show_duration, whole
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound

nodepool = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.cluster.nodepool:list_pools",
            "create": "pliant.cli.cluster.nodepool:create",
            "update": "pliant.cli.cluster.nodepool:update",
            "delete": "pliant.cli.cluster.nodepool:delete",
        }
    },
    name="nodepool",
    help="List, show, create and delete node pools: labelled nodes with their own quotas and placement.",
)


def _min_runtime(pool: Any) -> str:
    seconds = pool.get("minRuntimeSeconds")
    if seconds is not None:
        return show_duration(seconds) if seconds else "-"
    said = (pool.get("schedulingConfiguration") or {}).get("minGuaranteedRuntime")
    return str(said) if said else "-"


@click.command("list", cls=Command)
@output_options
@pass_session
def list_pools(session: Session) -> None:
    """List node pools."""
    pools: list[Any] = sorted(session.client.node_pools(), key=lambda pool: pool["name"])

    def rows() -> str:
        lines = [
            [
                pool["name"],
                f"{pool['labelKey']}={pool.get('labelValue') or ''}" if pool.get("labelKey") else "-",
                (pool.get("placementStrategy") or {}).get("gpu") or "binpack",
                pool.get("networkTopologyName") or "-",
                _min_runtime(pool),
                pool.get("phase") or "",
            ]
            for pool in pools
        ]
        header = ("Node Pool", "Label", "GPU Placement", "Topology", "Min Runtime", "Status")
        return table(header, lines, rule=True, headers=session.headers)

    show(session, pools, rows)


_STRATEGY = click.Choice(["binpack", "spread"])


def _options(function: Any) -> Any:
    for decorate in (
        click.option("--label", metavar="K=V", help="Label of its nodes."),
        click.option(
            "--min-runtime",
            metavar="TIME",
            help="Minimum runtime before a job may be evicted, e.g. 2m (0: none).",
        ),
        click.option("--placement", type=_STRATEGY, help="Bin packing or spread, over nodes and GPUs."),
        click.option("--gpu-placement", type=_STRATEGY, help="Bin packing or spread of GPU jobs over nodes."),
        click.option(
            "--device-placement", type=_STRATEGY, help="Bin packing or spread of fractions over GPUs."
        ),
        click.option(
            "--topology", metavar="NAME", help="Default topology of its workloads; none: no topology."
        ),
        click.option("--cpu-placement", type=_STRATEGY, help="Bin packing or spread of jobs without GPUs."),
    ):
        function = decorate(function)
    return function


def _body(given: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if given["label"] is not None:
        body["labelKey"], body["labelValue"] = pair(given["label"], "--label")
    if given["min_runtime"] is not None:
        body["minRuntimeSeconds"] = whole(duration(given["min_runtime"], "--min-runtime"))
    placement = {part: given[f"{part}_placement"] or given["placement"] for part in ("cpu", "gpu")}
    placement["device"] = given["device_placement"]
    if given["topology"] is not None:
        body["networkTopologyName"] = "" if given["topology"] == "none" else given["topology"]
    if said := {part: way for part, way in placement.items() if way is not None}:
        body["placementStrategy"] = said
    return body


@click.command("create", cls=Command)
@click.argument("name")
@_options
@output_options
@pass_session
def create(session: Session, name: str, **given: Any) -> None:
    """Create a node pool."""
    if not given["label"]:
        raise click.UsageError("Specify --label K=V, the label of the pool's nodes.")
    pool = session.client.create_node_pool({"name": name, **_body(given)})
    if not structured(session, pool):
        click.echo(f"Node pool {pool['name']} created.")


@click.command("update", cls=Command)
@click.argument("name")
@_options
@output_options
@pass_session
def update(session: Session, name: str, **given: Any) -> None:
    """Change the settings given as options."""
    body = _body(given)
    if not body:
        raise click.UsageError("Specify what to change, for example --min-runtime 2m.")
    pool = session.client.update_node_pool(_id(session, name), body)
    if not structured(session, pool):
        click.echo(f"Node pool {name} updated.")


@click.command("delete", cls=Command)
@click.argument("name")
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a node pool; its nodes go to the pool `default`."""
    session.client.delete_node_pool(_id(session, name))
    click.echo(f"Node pool {name} deleted.")


def _id(session: Session, name: str) -> str:
    pools = list(session.client.node_pools())
    for pool in pools:
        if pool["name"] == name:
            return pool["id"]
    names = ", ".join(pool["name"] for pool in pools)
    raise NotFound(f"Node pool {name} does not exist.", f"There are: {names}.")
