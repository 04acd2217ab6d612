"""serve: runs the server that the accounts of this machine share. box: sets up the machine for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import PliantError

if TYPE_CHECKING:
    from pliant.site.install import Installation
    from pliant.site.machine import Finding

box = LazyGroup(
    {
        "Commands": {
            "install": "pliant.cli.server.box:install",
            "doctor": "pliant.cli.server.box:doctor",
        }
    },
    name="box",
    help="Set up this machine for several Unix accounts.",
)


@click.command("serve", cls=Command, short_help="Run the server that all accounts of this machine share.")
@click.option("--box", is_flag=True, help="Serve all accounts; each task runs as its submitter.")
@click.option(
    "--config",
    "told",
    metavar="FILE",
    default="/etc/pliant/config.yaml",
    show_default=True,
    help="Settings file; the options below override it.",
)
@click.option("--socket", "place", metavar="PATH", help="Unix socket on which it listens.")
@click.option("--warden", "conf", metavar="FILE", help="Configuration of the warden, which starts the tasks.")
@click.option(
    "--simulate", multiple=True, metavar="SPEC", help="Simulated nodes: 1x2, 2x4:16G, ... (repeatable)."
)
@click.option(
    "--adopt", "unknown", flag_value="adopt", help="Keep running tasks that the database does not know."
)
@click.option(
    "--end", "unknown", flag_value="end", help="Stop running tasks that the database does not know."
)
@pass_session
def serve(
    session: Session,
    box: bool,
    told: str,
    place: str | None,
    conf: str | None,
    simulate: tuple[str, ...],
    unknown: str | None,
) -> None:
    """Run the shared server in the foreground, for service managers. It runs as its own unprivileged account
    and keeps its state in /var/lib/pliant unless /etc/pliant/config.yaml sets another folder. The socket
    identifies callers by their account, so no token is needed.
    """
    if not box:
        raise click.UsageError("`serve` is for a shared machine: add --box. For yourself: pliant up")
    from pliant.site.config import read
    from pliant.site.trusted import Wrong

    try:
        said = read(Path(os.path.abspath(told)))
    except Wrong as error:
        raise PliantError(str(error), "See docs/reference/config.md") from error
    state = os.path.abspath(session.state or os.environ.get("PLIANT_STATE") or said.state)
    words = [sys.executable, "-m", "pliant.app", "serve", "--box", "--state", state]
    words += ["--socket", os.path.abspath(place or said.socket)]
    words += ["--warden", os.path.abspath(conf or said.warden), "--console", str(said.console)]
    for name in ("connections", "submissions", "commands", "streams", "tasks", "pending", "strays"):
        words += [f"--{name}", str(getattr(said, name))]
    words += ["--openid", str(said.openid or "none")]
    for spec in simulate or said.simulate:
        words += ["--simulate", spec]
    if unknown:
        words += ["--unknown", unknown]
    sys.stdout.flush()
    os.execv(words[0], words)


@click.command("install", cls=Command)
@click.option("--check", is_flag=True, help="Change nothing; show what is installed and what would be done.")
@click.option("--root", metavar="DIR", help="Write the files below DIR, for packaging; create no account.")
@click.option("--no-start", is_flag=True, help="Do not start the server.")
@output_options
@pass_session
def install(session: Session, check: bool, root: str | None, no_start: bool) -> int:
    """Create the account, folders, programs, configuration and units of a shared server.

    Existing files in /etc/pliant are not changed. Run it again after an upgrade to update the rest.
    """
    from pliant.site.install import Installation, starts
    from pliant.site.install import start as start_units
    from pliant.site.machine import findings
    from pliant.site.trusted import Wrong
    from pliant.site.units import STARTED

    native, command = _native(), Path(sys.executable).with_name("pliant")
    made = Installation(native, command, Path(os.path.abspath(root)) if root else Path("/"))
    if made.whole and os.geteuid() and not check:
        raise PliantError("`pliant box install` needs root.", "Type: sudo pliant box install")
    found = findings(native) if made.whole else []
    if check:
        return _told(session, made, found)
    bad = [one for one in found if one.status == "fail" and one.what in NEEDED]
    if bad:
        raise PliantError(f"{bad[0].what}: {bad[0].text}", "See everything with: pliant box install --check")
    try:
        done = 0
        for step in made.steps():
            step.do()
            click.echo(f"Done: {step.what}")
            done += 1
        if not done:
            click.echo("Nothing to do: everything is installed.")
        if made.whole and starts() and not no_start:
            start_units(STARTED)
            click.echo(f"Started: {', '.join(STARTED)}")
        elif made.whole and starts():
            click.echo(f"Start it: systemctl daemon-reload && systemctl enable --now {' '.join(STARTED)}")
        elif made.whole:
            click.echo("systemd does not run this machine. Start the warden and the server:")
            click.echo(made.by_hand(), nl=False)
    except Wrong as error:
        raise PliantError(str(error)) from error
    except OSError as error:
        raise PliantError(f"{error.filename or 'A file'}: {error.strerror}.") from error
    return 0


NEEDED = ("installation", "programs", "account", "control groups", "warden.conf", "config.yaml")
"""Findings that must not fail for an installation to work."""


@click.command("doctor", cls=Command)
@output_options
@pass_session
def doctor(session: Session) -> int:
    """Check the requirements of a shared machine, and which limits are enforced on this one. Returns 1 if a
    check fails."""
    from pliant.site.machine import findings

    return _told(session, None, findings(_native()))


def _native() -> Path:
    import pliant.site

    return Path(pliant.site.__file__).parents[1] / "engines" / "local" / "bin"


def _told(session: Session, made: Installation | None, found: list[Finding]) -> int:
    from pliant.site.trusted import Wrong

    try:
        planned = [step.what for step in made.steps()] if made is not None else []
    except Wrong as error:
        raise PliantError(str(error)) from error

    def rows() -> str:
        lines = [[one.what, one.status, one.text] for one in found]
        text = table(("CHECK", "STATUS", "DETAILS"), lines, headers=session.headers) if lines else ""
        return "\n".join([text, *(f"Would be done: {what}" for what in planned)]).strip()

    told = [{"what": one.what, "status": one.status, "text": one.text} for one in found]
    show(session, [*told, *({"what": "step", "status": "todo", "text": it} for it in planned)], rows)
    return int(any(one.status == "fail" for one in found))
