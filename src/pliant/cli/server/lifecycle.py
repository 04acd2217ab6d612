"""up, down, restart, status: the server on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from pliant.cli.exits import TIMED_OUT
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import show_bytes, show_duration, show_gpus
from pliant.cli.output.formats import output_options, structured
from pliant.cli.server import daemon
from pliant.cli.session import Session, client_for, pass_session
from pliant.client.errors import Conflict, PliantError, Unreachable
from pliant.client.locate import locate, server_record, state_folder

LOOK = 1.0  # seconds between two checks whether a stopping server is gone
STOP_LIMIT = 180.0  # seconds to wait for a server to end; a task's grace period may be longer


@click.command("up", cls=Command, short_help="Start the server.")
@click.option(
    "--simulate", multiple=True, metavar="SPEC", help="Simulated nodes: 1x2, 2x4:16G, ... (repeatable)."
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Share the GPUs of a Kubernetes cluster, that of the file's current context.",
)
@click.option(
    "--scheduler-name",
    metavar="NAME",
    help="Schedule the cluster's pods with this schedulerName (default: pliant).",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="NAME=IMAGE",
    help="What the nodes of a cluster pull for jobs that ask for the image NAME (repeatable).",
)
@click.option(
    "--share-image",
    metavar="IMAGE",
    help="Image of Pliant, from which pods with a part of a GPU get the library that holds them to it.",
)
@click.option("--port", metavar="PORT", type=click.IntRange(1, 65535), help="Port (default: a free one).")
@click.option(
    "--host", metavar="ADDRESS", help="Address to listen on (default: 127.0.0.1); others need --tls."
)
@click.option(
    "--tls/--no-tls",
    default=None,
    help="Use TLS with a certificate authority created here (default: as at the last start).",
)
@click.option(
    "--cert", metavar="FILE", help="Your own certificate with its chain, in PEM format; implies --tls."
)
@click.option("--key", metavar="FILE", help="Private key of --cert.")
@click.option(
    "--openid", metavar="FILE", help="Settings of a login provider (OpenID Connect); none: no provider."
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground, for service managers.")
@click.option("--take-over", is_flag=True, help="Replace a server that does not answer.")
@click.option("--database", metavar="URL", help="Keep the state in PostgreSQL: postgresql://USER@HOST/NAME.")
@click.option("--standby", is_flag=True, help="Stand by for a server that uses PostgreSQL.")
@click.option(
    "--lease",
    type=click.FloatRange(1, 3600),
    metavar="SECONDS",
    help="Time without an answer of the leading server after which the standby takes over (default: 1.5).",
)
@click.option(
    "--adopt", "unknown", flag_value="adopt", help="Keep running tasks that the database does not know."
)
@click.option(
    "--end", "unknown", flag_value="end", help="Stop running tasks that the database does not know."
)
@pass_session
def up(
    session: Session,
    simulate: tuple[str, ...],
    kubeconfig: str | None,
    scheduler_name: str | None,
    images: tuple[str, ...],
    share_image: str | None,
    port: int | None,
    host: str | None,
    tls: bool | None,
    cert: str | None,
    key: str | None,
    openid: str | None,
    foreground: bool,
    take_over: bool,
    database: str | None,
    standby: bool,
    lease: float | None,
    unknown: str | None,
) -> None:
    """Start the server of this machine in the background, and return when it answers.

    SPEC is NODESxGPUS[:GPU_MEMORY[:cpu=CORES,memory=BYTES,label=K=V]]. Without --simulate the GPUs of this
    machine are shared; if it has none, 1x2 is simulated. With --kubeconfig, workloads run as pods of that
    cluster, and pods with the schedulerName NAME are scheduled too. Jobs there can have parts of a GPU if
    IMAGE is given. Later starts use the same values.

    With --standby it is the second server of the same state folder: it answers requests, and takes over when
    the leading server ends or hangs. Later starts use the same database.
    """
    if simulate and kubeconfig is not None:
        raise click.UsageError("--simulate and --kubeconfig exclude each other.")
    cluster = kubeconfig or scheduler_name or images or share_image
    if standby and (cluster or simulate or take_over or database or cert or tls is not None):
        raise click.UsageError(
            "--standby takes its settings from the leading server: omit the other options."
        )
    state = state_folder(session.state)
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key must be given together.")
    if cert is not None and tls is False:
        raise click.UsageError("--cert and --no-tls exclude each other.")
    words = daemon.arguments(
        state,
        simulate=simulate,
        kubeconfig=kubeconfig,
        scheduler_name=scheduler_name,
        images=images,
        share_image=share_image,
        port=port,
        take_over=take_over,
        unknown=unknown or "",
        standby=standby,
        database=database,
        lease=lease,
        host=host,
        tls=tls,
        certificate=(os.path.abspath(cert), os.path.abspath(key)) if cert and key else None,
        openid=openid,
    )
    if foreground:
        daemon.prepare(state)
        sys.stdout.flush()
        os.execv(words[0], words)
    record = daemon.start(words, state)
    if standby and server_record(state) != record:
        click.echo(f"The standby server runs at {record['url']} (pid {record['pid']}, state folder {state})")
        return
    _announce(session, record, state)


@click.command("down", cls=Command, short_help="Stop the server and everything it runs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, even if tasks run.")
@pass_session
def down(session: Session, yes: bool) -> int:
    """Stop the server and all its tasks. `restart` keeps tasks running."""
    state = own_state(session)
    record = None if session.server else daemon.leading(state)
    if not session.server and (record is None or not daemon.alive(int(record.get("pid", 0)))):
        left = daemon.left_behind(state)
        if not left:
            click.echo(f"No server runs here (state folder {state}).")
            return 0
        runs = "runs" if left == 1 else "run"
        session.note(
            f"The server is not running, but {left} of its tasks still {runs}: starting it to stop them."
        )
        record = daemon.start(daemon.arguments(state, **_options(record), unknown="end"), state)
    client = session.client
    running = int(client.server().get("tasksRunning") or 0)
    if running and not yes:
        if not sys.stdin.isatty():
            raise Conflict(f"{_tasks(running)} still running.", "Use `down --yes` to stop them too.")
        session.confirm(f"{_tasks(running)} still running. Stop everything?")
    said = daemon.Said(state)
    client.shutdown(stop_tasks=True)
    if not _gone(session, record, said):
        click.echo(
            f"The server has not ended within {STOP_LIMIT:.0f}s; its tasks may be in their grace period. "
            "It ends by itself once they are gone.",
            err=True,
        )
        return TIMED_OUT
    tasks = "" if not running else " and 1 task" if running == 1 else f" and {running} tasks"
    click.echo(f"Stopped the server{tasks}.")
    return 0


@click.command("restart", cls=Command, short_help="Restart the server; tasks keep running.")
@pass_session
def restart(session: Session) -> None:
    """Restart the server with the same options. Tasks keep running."""
    if session.server is not None:
        raise click.UsageError("restart works on the server of this machine only: omit --server.")
    state = own_state(session)
    again = stop(session, state)
    _announce(session, again(), state)


def stop(session: Session, state: str) -> Callable[[], dict[str, Any]]:
    """Stop the server and the standby server; returns a function that starts both with the same options."""
    record = daemon.leading(state)
    standby = daemon.standing_by(state)
    if record is not None and daemon.alive(int(record.get("pid", 0))):
        session.client.shutdown(stop_tasks=False)
        for ending in (standby, record):
            if ending is not None and not daemon.wait_gone(int(ending["pid"]), STOP_LIMIT):
                raise PliantError(f"The server (pid {ending['pid']}) does not end.", "See `up --take-over`.")
    return lambda: _start_again(state, record, standby)


def _start_again(state: str, record: dict[str, Any] | None, standby: dict[str, Any] | None) -> dict[str, Any]:
    # On the same port, so that running jobs and logins find it again; on another one if that is taken.
    try:
        started = daemon.start(daemon.arguments(state, **_options(record), port=port_of(record)), state)
    except daemon.PortTaken:
        if record is None:
            raise
        started = daemon.start(daemon.arguments(state, **_options(record)), state)
    if standby is not None and os.path.exists(os.path.join(state, "database")):
        lease, host = standby.get("lease"), standby.get("host")
        daemon.start(daemon.arguments(state, standby=True, lease=lease, host=host), state)
    return started


@click.command(
    "status", cls=Command, short_help="Show whether the server runs, its address and its resources."
)
@output_options
@pass_session
def status(session: Session) -> None:
    """Show the server's address, its GPUs and the number of running tasks."""
    try:
        server: Any = session.client.server()
    except Unreachable as error:
        state = _state_in_use(session)
        record = server_record(state) if state is not None else None
        if state is not None and record is not None and not daemon.alive(int(record.get("pid", 0))):
            left = daemon.left_behind(state)
            keep = (
                f" {_tasks(left)} still running; the server continues with them when it starts."
                if left
                else ""
            )
            raise Unreachable(
                f"The server (pid {record.get('pid')}) has ended.", f"Start it with `pliant up`.{keep}"
            ) from error
        raise
    nodes = list(session.client.nodes())
    total = sum(len(node.get("gpus") or []) for node in nodes)
    used = sum(gpu["allocated"] for node in nodes for gpu in node.get("gpus") or [])
    if structured(session, {**server, "gpus": total, "gpusAllocated": used, "nodes": len(nodes)}):
        return
    if session.output == "name":
        click.echo(server["url"])
        return
    rows = [
        ("Server", f"{server['url']} (pid {server['pid']}, version {server['version']})"),
        *([("Standby", server["standby"])] if server.get("standby") else []),
        ("State folder", server["state"]),
        ("Running for", show_duration(_uptime(server))),
        ("Nodes", str(len(nodes))),
        ("GPUs", f"{show_gpus(used)} of {total} allocated{', simulated' if server.get('simulated') else ''}"),
        ("Tasks running", str(server.get("tasksRunning", 0))),
    ]
    for label, value in rows:
        click.echo(f"{label + ':':<15}{value}")


def own_state(session: Session) -> str:
    """This machine's state folder. Without --server the session uses it, not the environment or a login."""
    state = state_folder(session.state)
    if session.server is None:
        session.state = state
    return state


def _state_in_use(session: Session) -> str | None:
    try:
        return session.endpoint.state
    except Unreachable:
        return None


def _announce(session: Session, record: dict[str, Any], state: str) -> None:
    """Print the server's address and its nodes."""
    endpoint = locate(state=state)
    client = client_for(record["url"], endpoint.token, endpoint.socket, endpoint.authority)
    try:
        nodes = list(client.nodes())
    finally:
        client.close()
    click.echo(f"Pliant runs at {record['url']} (pid {record['pid']}, state folder {state})")
    click.echo(f"Web console: {record['url']}/console (`pliant console` opens it logged in)")
    if record.get("notice"):
        session.note(f"Note: {record['notice']}")
    for node in nodes:
        gpus, info = node["gpus"], node["gpuInfo"]
        kind = "simulated " if node.get("simulated") else ""
        name = info["gpuType"] if info is not None else ""
        text = f"{len(gpus)} {kind}GPUs" if len(gpus) != 1 else f"1 {kind}GPU"
        if gpus:
            text += f" of {show_bytes(gpus[0]['memoryBytes'])}{f' ({name})' if name and not kind else ''}"
        rest = f"{node.get('cpuCores', 0):g} cores, {show_bytes(node.get('memoryBytes'))}"
        click.echo(f"  {node['name']}: {text}, {rest}")


def _gone(session: Session, record: dict[str, Any] | None, said: daemon.Said) -> bool:
    """True once the server is gone; False after STOP_LIMIT. Prints the server's warnings meanwhile."""
    if record is not None:
        deadline = time.monotonic() + STOP_LIMIT
        while not daemon.wait_gone(int(record["pid"]), min(LOOK, max(0.0, deadline - time.monotonic()))):
            for line in said.news():
                session.note(line)
            if time.monotonic() > deadline:
                return False
        return True
    deadline = time.monotonic() + STOP_LIMIT
    while session.client.ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _tasks(count: int) -> str:
    return "1 task is" if count == 1 else f"{count} tasks are"


def _uptime(server: Any) -> float:
    return float(server.get("uptime") or 0.0)


def port_of(record: dict[str, Any] | None) -> int | None:
    from urllib.parse import urlsplit

    return urlsplit(record["url"]).port if record else None


def _options(record: dict[str, Any] | None) -> dict[str, Any]:
    """The options that the server was started with, from its record."""
    known = record or {}
    return {
        "simulate": [str(spec) for spec in known.get("simulate") or ()],
        "lease": known.get("lease"),
        "host": known.get("host"),
    }
