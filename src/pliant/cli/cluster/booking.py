"""booking create, list, delete: reservations of GPUs for a project, and maintenance of nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import counted, duration, moment, show_moment
from pliant.cli.output.formats import output_options, project_option, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.cli.submit.sequence import begin
from pliant.client.transport import segment

PATH = "/api/v1/bookings"

booking = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.cluster.booking:list_bookings",
            "create": "pliant.cli.cluster.booking:create",
            "delete": "pliant.cli.cluster.booking:delete",
        }
    },
    name="booking",
    help="Reserve GPUs for a project, or plan maintenance of nodes, for a time.",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_bookings(session: Session) -> None:
    """List reservations and maintenance."""
    found: Any = session.client.call("GET", PATH)
    if structured(session, found):
        return
    rows = [
        [
            row["name"] or "-",
            row["status"],
            "maintenance" if row["kind"] == "maintenance" else row["projectName"] or "another project",
            show_moment(moment(row["start"])),
            show_moment(moment(row["end"])),
            "all" if row["kind"] == "maintenance" else str(row["gpus"]),
            ", ".join(_place(row, place) for place in row["places"]),
        ]
        for row in found["bookings"]
    ]
    header = ("BOOKING", "STATUS", "FOR", "START", "END", "GPUS", "NODES")
    click.echo(table(header, rows, headers=session.headers) if rows else "No bookings.")
    for row in found["bookings"]:
        if row["lackingGpus"] and row["kind"] == "reservation":
            gone = ", ".join(place["node"] for place in row["places"] if not place["there"])
            session.note(
                f"Booking {row['name'] or row['id']} lacks {counted(row['lackingGpus'], 'GPU')}: "
                f"{gone} is not ready. Delete it and create it again on other nodes."
            )


def _place(row: Any, place: Any) -> str:
    count = "" if row["kind"] == "maintenance" else f"*{place['gpus']}"
    return f"{place['node']}{count}{'' if place['there'] else ' (not ready)'}"


@click.command("create", cls=Command)
@click.argument("name")
@project_option
@click.option("-g", "--gpu", "gpus", type=click.IntRange(min=1), metavar="N", help="Whole GPUs to reserve.")
@click.option("--maintenance", is_flag=True, help="Keep everybody off the nodes (administrators).")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only on this node (repeatable).")
@click.option("--node-pool", "pool", metavar="NAME", help="Node pool of the GPUs (default: default).")
@click.option("--start", default="now", metavar="TIME", help="22:00, now+2h or 2026-12-01T08:00.")
@click.option("--end", metavar="TIME", help="When it ends, written like --start.")
@click.option("--for", "lasting", metavar="TIME", help="How long it lasts instead, e.g. 2h.")
@click.option("--comment", default="", metavar="TEXT", help="Shown with it.")
@output_options
@pass_session
def create(
    session: Session,
    name: str,
    gpus: int | None,
    maintenance: bool,
    nodes: tuple[str, ...],
    pool: str | None,
    start: str,
    end: str | None,
    lasting: str | None,
    comment: str,
) -> None:
    """Reserve GPUs for the project (-p), or with --maintenance keep all jobs off whole nodes."""  # fmt: skip
    if (end is None) is (lasting is None):
        raise click.UsageError("Specify --end or --for.")
    if maintenance and (gpus or not nodes):
        raise click.UsageError("--maintenance is of whole nodes: specify --node, without -g.")
    if not maintenance and not gpus:
        raise click.UsageError("Specify -g, how many GPUs to reserve, or --maintenance.")
    begins = begin(start, "--start")
    if lasting is not None:
        last = moment(begins) + duration(lasting, "--for")
        try:
            ends = datetime.fromtimestamp(last, UTC).isoformat()
        except (ValueError, OverflowError):
            raise click.UsageError(f"--for {lasting}: it would end after the year 9999.") from None
    else:
        ends = begin(end or "", "--end")
    body: dict[str, Any] = {"name": name, "end": ends, "nodes": list(nodes), "comment": comment}
    if start != "now":
        body["start"] = begins
    if maintenance:
        body["maintenance"] = True
    else:
        body |= {"projectName": session.current_project, "gpus": gpus}
    if pool is not None:
        body["nodePool"] = pool
    made: Any = session.client.call("POST", PATH, body=body)
    if structured(session, made):
        return
    where = ", ".join(_place(made, place) for place in made["places"])
    what = "maintenance" if maintenance else f"{counted(made['gpus'], 'GPU')} for {made['projectName']}"
    times = f"{show_moment(moment(made['start']))} to {show_moment(moment(made['end']))}"
    click.echo(f"Booking {name} created: {what} on {where}, {times}.")


@click.command("delete", cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Delete bookings. What they kept is free at once."""
    for name in names:
        session.client.call("DELETE", f"{PATH}/{segment(name)}")
        click.echo(f"Booking {name} deleted.")
