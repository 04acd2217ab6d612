"""port-forward and `submit --service-type portforward`: forward local ports to a program in a workload."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import click

from pliant.cli.completion import workload_names
from pliant.cli.exits import OWN_FAILURE, TIMED_OUT
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.client.errors import Conflict, NotFound, PliantError

if TYPE_CHECKING:
    from pliant.client.session import Exec

_FINAL = ("Completed", "Failed", "Stopped", "Deleting")
LOOK_SECONDS = 1.0  # between two checks whether the workload still runs


class Mapping(NamedTuple):
    """One value of --port."""

    local: int  # local port to listen on; 0: any free one
    target: int  # port on which the program listens


def mapping(text: str, flag: str = "--port") -> Mapping:
    """'8080:80' -> (8080, 80); '80' is '80:80'; ':80' takes any free local port. Raises UsageError."""
    match = re.fullmatch(r"(?:(\d{0,5}):)?(\d{1,5})", text)
    ports = [int(part or 0) for part in match.groups(match[2])] if match else [0, 0]
    if not all(port < 65_536 for port in ports) or not ports[1]:
        raise click.UsageError(f"{flag} {text}: not a port, or two such as 8080:80.")
    return Mapping(*ports)


@click.command("port-forward", cls=Command, short_help="Forward ports of this machine to a workload.")
@click.argument("name", shell_complete=workload_names)
@click.argument("pairs", nargs=-1, metavar="[LOCAL:PORT...]")
@click.option(
    "--port",
    "ports",
    multiple=True,
    metavar="LOCAL:PORT",
    help="Local port and port of the job, e.g. 8080:80 (repeatable).",
)
@click.option(
    "--address", default="127.0.0.1", metavar="IP", help="Address to listen on (default: 127.0.0.1)."
)
@click.option("--pod", metavar="POD", help="Task (default: the first).")
@click.option(
    "--pod-running-timeout",
    default=600,
    metavar="SECONDS",
    type=click.IntRange(1),
    help="Seconds to wait for the start (default: 600).",
)
@project_option
@pass_session
def port_forward(
    session: Session,
    name: str,
    pairs: tuple[str, ...],
    ports: tuple[str, ...],
    address: str,
    pod: str | None,
    pod_running_timeout: int,
) -> int:
    """Forward connections to a port of this machine to a workload, until Ctrl-C."""
    wanted = [mapping(text) for text in (*ports, *pairs)]
    if not wanted:
        raise click.UsageError("Specify a port, for example --port 8080:80.")
    item, pod = session.find_task(name, pod)
    return forward(session, item["id"], name, wanted, address=address, pod=pod, limit=pod_running_timeout)


def forward(
    session: Session,
    workload_id: str,
    name: str,
    wanted: Sequence[Mapping],
    *,
    address: str = "127.0.0.1",
    pod: str | None = None,
    limit: int = 600,
) -> int:
    """Forward until Ctrl-C or the workload ends; TIMED_OUT if it does not start in `limit` seconds."""
    if not _runs(session, workload_id, name, limit):
        return TIMED_OUT
    host = urlsplit(session.endpoint.url).hostname or "127.0.0.1"
    index = int(match[1]) if pod and (match := re.search(r"-(\d+)$", pod)) else 0
    tunnelled = session.client.tunnelled(workload_id, pod)
    task = f"pod {pod or name}"
    servers, points = [], []
    try:
        for local, target in wanted:
            target += 0 if tunnelled else index
            if not tunnelled and local == target and host in ("127.0.0.1", "localhost"):
                click.echo(f"{name} runs on this machine: open http://localhost:{local}")
                points.append(f"localhost:{local}")
                continue
            server = _listen(session, address, local)
            servers.append(server)
            lead = (
                partial(
                    _tunnel, partial(session.client.open_port, workload_id, target, pod=pod), task, target
                )
                if tunnelled
                else partial(_connect, (host, target))
            )
            threading.Thread(target=_serve, args=(server, lead), daemon=True).start()
            local = server.getsockname()[1]
            points.append(f"localhost:{local}")
            click.echo(f"Forwarding from {address}:{local} -> {target}")
        click.echo(f"Open access point(s) to service from {', '.join(points)}")
        with suppress(KeyboardInterrupt):
            while _still(session, workload_id):
                time.sleep(LOOK_SECONDS)
            session.note(f"{name} has ended.")
    finally:
        for server in servers:
            server.close()
    return 0


def _runs(session: Session, workload_id: str, name: str, limit: int) -> bool:
    deadline = time.monotonic() + limit
    item = session.client.workload(workload_id)
    if not item.get("runningPods"):
        session.note("Waiting for pod to start running...")
    while not item.get("runningPods"):
        if item["phase"] in _FINAL:
            raise Conflict(f"{name} has ended: its status is {item['status']}.", "Nothing can be forwarded.")
        if time.monotonic() > deadline:
            reason = item.get("reason")
            click.echo(
                f"{name} is not running yet: {reason['message'] if reason else item['status']}", err=True
            )
            return False
        time.sleep(0.2)
        item = session.client.workload(workload_id)
    return True


def _still(session: Session, workload_id: str) -> bool:
    try:
        item = session.client.workload(workload_id)
    except NotFound:
        return False
    return item["phase"] not in _FINAL and item.get("desiredPhase") != "Deleted"


def _listen(session: Session, address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port))
    except OSError as error:
        session.failure_code = OWN_FAILURE
        raise PliantError(
            f"Cannot listen on {address}:{port}: {error.strerror or error}.",
            "Choose another local port: --port LOCAL:PORT.",
        ) from error


def _serve(server: socket.socket, lead: Callable[[socket.socket], None]) -> None:
    """Accept connections until the socket is closed; `lead` serves each in its own thread."""
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=lead, args=(peer,), daemon=True).start()


def _tunnel(connect: Callable[[], Exec], task: str, port: int, peer: socket.socket) -> None:
    """Forward one connection through the server, for a task with its own network address."""
    try:
        with peer:
            way = connect()
            threading.Thread(target=_send, args=(peer, way), daemon=True).start()
            try:
                with suppress(OSError):  # the local program may close the connection
                    for data in way.output():
                        peer.sendall(data)
                if way.exit_code():
                    click.echo(f"No program answers on port {port} of {task}.", err=True)
            finally:
                with suppress(OSError):  # ends the read in `_send`, which would keep it open
                    peer.shutdown(socket.SHUT_RDWR)
                with closing(way):
                    way.kill()
    except PliantError as error:
        click.echo(f"Port {port} of {task}: {error}", err=True)


def _send(peer: socket.socket, way: Exec) -> None:
    """Send all bytes to the task, then end of file."""
    with suppress(OSError, PliantError):  # either side may close the connection
        while data := peer.recv(65_536):
            way.send(data)
    with suppress(PliantError):
        way.close_input()


def _connect(target: tuple[str, int], peer: socket.socket) -> None:
    try:
        program = socket.create_connection(target)
    except OSError as error:
        click.echo(f"No program answers on port {target[1]}: {error.strerror or error}", err=True)
        peer.close()
        return
    back = threading.Thread(target=_copy, args=(program, peer), daemon=True)
    back.start()
    _copy(peer, program)
    back.join()
    peer.close()
    program.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy all bytes from `source` to `sink`, then end of file."""
    with suppress(OSError):  # either side may close the connection
        while data := source.recv(65_536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
