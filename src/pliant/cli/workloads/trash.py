"""restore-files: lists and restores the kept folders of deleted jobs."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.output.amounts import show_age, show_bytes
from pliant.cli.output.formats import output_options, project_option, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound


@click.command("restore-files", cls=Command, short_help="Restore the files of a deleted job.")
@click.argument("name", required=False)
@project_option
@output_options
@pass_session
def restore_files(session: Session, name: str | None) -> None:
    """Restore the job folder and logs of a deleted job; without NAME, list the deleted jobs.

    If several deleted jobs have this name, the newest is restored; use the id or its first 8 digits for
    another.
    """
    found = [kept for kept in session.client.kept_files() if kept["projectName"] == session.current_project]
    if name is None:
        _list(session, found)
        return
    named = [kept for kept in found if name in (kept["name"], kept["workloadId"], kept["workloadId"][:8])]
    if not named:
        raise NotFound(
            f"No deleted job {name} with kept files exists in project {session.current_project}.",
            f"List the deleted jobs: {session.program} restore-files",
        )
    done = session.client.restore_files(named[-1]["workloadId"])
    if not structured(session, done):
        click.echo(f"Restored {show_bytes(done['bytes'])} of {done['name']} to {done['path']}")


def _list(session: Session, found: list[Any]) -> None:
    def rows() -> str:
        lines = [
            [
                kept["name"],
                kept["workloadId"][:8],
                show_age(kept["deletedAt"]),
                show_bytes(kept["bytes"]),
                kept["keptUntil"][:10],
                kept["path"],
            ]
            for kept in found
        ]
        return table(("NAME", "ID", "DELETED", "SIZE", "KEPT UNTIL", "PATH"), lines, headers=session.headers)

    show(session, found, rows)
