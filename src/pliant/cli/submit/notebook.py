"""--jupyter, --vscode, --tensorboard: runs a program of this shell as a job and prints its address."""

from __future__ import annotations

import errno
import random
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from pliant.cli.output.amounts import counted_gpus
from pliant.cli.session import Session
from pliant.cli.submit import submission
from pliant.cli.submit.served import TUNNEL, Served, answers, command, url
from pliant.cli.workloads.outcomes import POLL, summary
from pliant.client.errors import Conflict, NotFound, PliantError

PORTS = range(20_000, 32_768)
PATIENCE = 180.0
"""Seconds to wait until a submitted notebook answers."""

TRIES = 5
"""Most ports to try, if other programs take the chosen ones meanwhile."""


def options(function: Any) -> Any:
    for decorate in (
        click.option("--no-wait", is_flag=True, help="With one of these: do not wait until it answers."),
        click.option(
            "--tensorboard", metavar="LOGDIR", help="Run the TensorBoard of this shell and print its URL."
        ),
        click.option(
            "--vscode", is_flag=True, help="Run the VS Code server of this shell and print its URL."
        ),
        click.option("--jupyter", is_flag=True, help="Run the Jupyter of this shell and print its URL."),
    ):
        function = decorate(function)
    return function


def submit(session: Session, what: Served, body: Any, given: Mapping[str, Any], asked: Sequence[str]) -> int:
    """Submit a session with that program and print its URL once it answers; `asked`: the values of --port."""
    spec = body["spec"]
    if spec.get("argsArgv") or spec.get("commandArgv"):
        raise click.UsageError(f"--{what.flag} runs {what.title}: leave out the command.")
    program = next((name for name in what.programs if shutil.which(name)), None)
    if program is None:
        raise click.UsageError(what.cure)
    if program == TUNNEL:
        return _tunnel(session, body, given, asked)
    fixed = _fixed(session, what, asked)
    token = secrets.token_hex(16)
    if what.secret:
        spec.setdefault("environmentVariables", []).append({"name": what.secret, "value": token})
    spec.setdefault("backoffLimit", 0)
    for left in reversed(range(1 if fixed else TRIES)):
        port = fixed or free_port()
        argv = command(program, port, given)
        spec |= submission.argv(command=argv)
        spec["exposedUrls"] = [{"container": port}]
        answer = submission.send(session, "Workspace", body, dry_run=given["dry_run"])
        if answer is None:
            return 0
        opens = partial(answers, program, port, token, argv)
        code = _wait(
            session, answer, port, opens, partial(told, session, program, port, token), now=given["no_wait"]
        )
        if code is not None:
            return code
        if left:
            session.note(f"Port {port} was taken by another program. Choosing another port.")
            session.client.delete(answer["workloadId"], purge=True)
    raise Conflict(
        f"Port {port} was taken by another program before {what.title} used it.",
        "Omit --port to get a free one.",
    )


def _tunnel(session: Session, body: Any, given: Mapping[str, Any], asked: Sequence[str]) -> int:
    """Submit `code tunnel` and print the lines of its log with a login or tunnel address."""
    if asked:
        raise click.UsageError("--port is not for `code tunnel`, which listens on no port.")
    body["spec"].setdefault("backoffLimit", 0)
    body["spec"] |= submission.argv(command=command(TUNNEL, 0, given))
    answer = submission.send(session, "Workspace", body, dry_run=given["dry_run"])
    if answer is None:
        return 0
    name, identity = answer["name"], answer["workloadId"]
    later = f"`{session.program} url {name}` prints how to reach it once it runs."
    if given["no_wait"]:
        session.note(later)
        return 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        item: Any = session.client.workload(identity)
        if found := addresses(session, identity):
            click.echo("\n".join(found))
            return 0
        if item["phase"] in ("Completed", "Failed"):
            outcome = session.client.outcome(identity)
            session.note(f"{summary(name, outcome)} See: {session.program} logs {name}")
            return outcome["exitCode"] or 1
        time.sleep(POLL)
    session.note(f"{name} has printed no address yet: its status is {item['status']}. {later}")
    return 0


def addresses(session: Session, identity: str) -> list[str]:
    """The lines of the workload's log that contain an https address."""
    try:
        text = b"".join(session.client.logs(identity)).decode(errors="replace")
    except (Conflict, NotFound):  # the workload has not started
        return []
    return [line.strip() for line in text.splitlines() if "https://" in line]


def told(session: Session, program: str, port: int, token: str) -> None:
    """Print the URL, and the password if the URL does not contain it."""
    click.echo(url(program, port, token))
    if program == "code-server":
        session.note(f"Its password: {token}")


def _fixed(session: Session, what: Served, asked: Sequence[str]) -> int | None:
    """The requested port; None for any. Raises UsageError, or Conflict if it is in use."""
    if not asked:
        return None
    if len(asked) > 1 or not asked[0].isdecimal() or not 0 < int(asked[0]) < 65_536:
        said = f"--port {' '.join(asked)}: with --{what.flag} it is one port, for example 8888."
        raise click.UsageError(said)
    port = int(asked[0])
    if not is_free(port):
        items = session.client.workloads(None)
        holder = next((it["name"] for it in items if any(u.endswith(f":{port}") for u in it["urls"])), None)
        by = f" by {holder}" if holder else ""
        raise Conflict(f"Port {port} is in use{by}.", "Omit --port to get a free one.")
    return port


def is_free(port: int) -> bool:
    """True if a program could listen on 127.0.0.1:port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def free_port() -> int:
    """A free port of PORTS. Raises PliantError."""
    for port in random.sample(PORTS, 1000):
        if is_free(port):
            return port
    raise PliantError("No free port was found between 20000 and 32767.", "Use --port PORT.")


def _wait(
    session: Session,
    answer: Mapping[str, Any],
    port: int,
    opens: Callable[[], bool],
    tell: Callable[[], None],
    *,
    now: bool,
) -> int | None:
    """Wait until the program answers; the exit code, or None if it ended because its port is taken."""
    name, identity = answer["name"], answer["workloadId"]
    later = f"`{session.program} url {name}` prints its URL once it runs."
    if now:
        session.note(later)
        return 0
    deadline, said = time.monotonic() + PATIENCE, ""
    while time.monotonic() < deadline:
        item: Any = session.client.workload(identity)
        if item["runningPods"] and opens():
            tell()
            gpus = item["allocatedResources"]["gpu"]
            what = f" ({counted_gpus(gpus)})" if gpus else ""
            session.note(
                f"{name} is running on {item['node']}{what}. From another machine: "
                f"ssh -L {port}:127.0.0.1:{port} USER@HOST"
            )
            return 0
        if item["phase"] in ("Completed", "Failed"):
            if not is_free(port):
                return None
            outcome = session.client.outcome(identity)
            session.note(f"{summary(name, outcome)} See: {session.program} logs {name}")
            return outcome["exitCode"] or 1
        reason = (item.get("reason") or {}).get("message") or ""
        if reason and not item["runningPods"] and reason != said:
            said = reason
            session.note(f"{name} is {item['status'].lower()}: {reason}")
        time.sleep(POLL)
    session.note(f"{name} does not answer yet: its status is {item['status']}. {later}")
    return 0
