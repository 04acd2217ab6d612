"""exec, bash, ssh: run a command inside a running task. attach: follows its output."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from pliant.cli.completion import workload_names
from pliant.cli.exits import WAIT_TIMED_OUT
from pliant.cli.lazy import Command, JobCommand
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.streams.follow import WHOLE, Excerpt, Follower
from pliant.cli.submit.grouped import NoEffect
from pliant.cli.workloads.outcomes import POLL, summary
from pliant.client.errors import PliantError

if TYPE_CHECKING:
    from pliant.cli.streams.typed_input import TypedInput

NO_CONNECTION = 255
"""Exit code of OpenSSH's `ssh` when it cannot run the command."""

_FINAL = ("Completed", "Failed", "Stopped", "Deleting")


class ExecCommand(Command):
    """Takes NAME and Pliant's options, then the command; it begins at the second plain word or after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags: set[str] = set()
        valued: set[str] = set()
        for param in self.get_params(ctx):
            if isinstance(param, click.Option):
                (flags if param.is_flag else valued).update(param.opts)
        ours: list[str] = []
        rest = list(args)
        name: str | None = None
        while rest:
            word = rest[0]
            if word == "--":
                rest.pop(0)
                break
            if not word.startswith("-"):
                if name is not None:
                    break
                name = rest.pop(0)
                continue
            ours.append(rest.pop(0))
            if word in valued and rest:
                ours.append(rest.pop(0))
        return super().parse_args(ctx, [*ours, "--", *([] if name is None else [name]), *rest])


_pod = click.option("--pod", metavar="POD", help="Task (default: the first that runs).")
_name = click.argument("name", shell_complete=workload_names)


@click.command("exec", cls=ExecCommand, short_help="Run a command inside a running workload.")
@_name
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-i", "--stdin", is_flag=True, help="Send standard input to the command.")
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal.")
@click.option("-c", "--container", metavar="NAME", cls=NoEffect, expose_value=False)
@_pod
@project_option
@pass_session
def exec_command(
    session: Session, name: str, command: tuple[str, ...], stdin: bool, tty: bool, pod: str | None
) -> int:
    """Run a command inside a running workload; `--` may come before it. Returns its exit code."""
    return run_inside(session, name, command, stdin=stdin, tty=tty, pod=pod)


@click.command("bash", cls=Command, short_help="Open a shell inside a running workload.")
@_name
@_pod
@project_option
@pass_session
def bash(session: Session, name: str, pod: str | None) -> int:
    """Open /bin/bash inside a running workload."""
    # No terminal for piped input: `echo ls | pliant bash NAME`.
    return run_inside(session, name, ["/bin/bash"], stdin=True, tty=sys.stdin.isatty(), pod=pod)


@click.command("ssh", cls=ExecCommand, short_help="Open a login shell inside a running workload.")
@_name
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_pod
@project_option
@pass_session
def ssh(session: Session, name: str, command: tuple[str, ...], pod: str | None) -> int:
    """Open a login shell inside a running workload, or run a command in one, as `ssh HOST` does.

    Returns the exit code of the command, 255 if it could not be run.
    """
    session.failure_code = NO_CONNECTION
    shell = ["/bin/bash", "-l", *(("-c", " ".join(command)) if command else ())]
    return run_inside(session, name, shell, stdin=True, tty=not command and sys.stdin.isatty(), pod=pod)


@click.command("attach", cls=JobCommand, short_help="Follow a job's output; return its exit code.")
@_name
@_pod
@click.option("-i", "--stdin", is_flag=True, help="Send standard input to a job submitted with --stdin.")
@click.option("-t", "--tty", is_flag=True, help="With --stdin: send every key; `~.` on a new line detaches.")
@click.option("--no-stdin", is_flag=True, help="Accepted; attach sends no input without --stdin.")
@click.option("--no-tty", is_flag=True, help="Accepted; attach uses no terminal without --tty.")
@click.option(
    "--pod-running-timeout",
    default=600,
    metavar="SECONDS",
    type=click.IntRange(1),
    help="Seconds to wait for the start (default: 600).",
)
@project_option
@pass_session
def attach(
    session: Session,
    name: str,
    pod: str | None,
    stdin: bool,
    tty: bool,
    no_stdin: bool,
    no_tty: bool,
    pod_running_timeout: int,
) -> int:
    """Wait until a workload runs and follow its output; Ctrl-C detaches."""
    item, pod = session.find_task(name, pod)
    if tty and not stdin:
        raise click.UsageError("-t, --tty needs --stdin.")
    if no_tty and not tty:
        session.note("Note: --no-tty has no effect: attach uses no terminal without --tty.")
    if sys.stdin.isatty() and not (stdin or no_stdin):
        session.note(f"Note: input is not sent; for a shell in the job: `{session.program} bash {name}`.")
    typed = typed_here(session, item["id"], name, stdin=True, tty=tty) if stdin else None
    return attach_to(session, item["id"], name, pod=pod, limit=pod_running_timeout, typed=typed)


def typed_here(session: Session, workload_id: str, name: str, *, stdin: bool, tty: bool) -> TypedInput:
    """This command's standard input, to be sent to the job; without `stdin` the job gets end of file."""
    from pliant.cli.streams.typed_input import TypedInput

    source = sys.stdin.fileno() if stdin else None
    return TypedInput(session, workload_id, name, tty=tty, source=source)


def attach_to(
    session: Session,
    workload_id: str,
    name: str,
    *,
    pod: str | None = None,
    limit: int = 600,
    typed: TypedInput | None = None,
) -> int:
    """Follow a workload's output and return its exit code; 124 if it does not start in `limit` seconds."""
    if not _started(session, workload_id, limit):
        click.echo(f"Error: {name} did not start within {limit}s; it remains in the queue.", err=True)
        return WAIT_TIMED_OUT
    if pod is None and (pods := session.client.pods(workload_id)):
        session.note(f"Connecting to pod {pods[-1]['name']}")
    return followed(session, workload_id, name, pod=pod, typed=typed)


def followed(
    session: Session,
    workload_id: str,
    name: str,
    *,
    pod: str | None = None,
    excerpt: Excerpt = WHOLE,
    typed: TypedInput | None = None,
) -> int:
    """Print a workload's output until it ends; returns its exit code."""
    follower = Follower(session, workload_id, name, pod=pod, excerpt=excerpt, quiet=True, typed=typed)
    with typed.keys() if typed else nullcontext():
        outcome = follower.run()
    assert outcome["exitCode"] is not None
    if outcome["exitCode"]:
        session.note(summary(name, outcome))
    return outcome["exitCode"]


def _started(session: Session, workload_id: str, limit: int) -> bool:
    """Wait until a task runs or waits for a retry, or the workload has ended; False after `limit` seconds."""
    deadline, waiting = time.monotonic() + limit, False
    while True:
        item: Any = session.client.workload(workload_id)
        if item["runningPods"] or item["phase"] in _FINAL:
            return True
        if any(pod["retryAt"] is not None for pod in session.client.pods(workload_id)):
            return True  # the follower prints why the attempt failed
        if not waiting:
            session.note("Waiting for pod to start running...")
            waiting = True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)


def run_inside(session: Session, name: str, command: Any, *, stdin: bool, tty: bool, pod: str | None) -> int:
    from pliant.cli.streams import terminal

    item, pod = session.find_task(name, pod)
    if not item.get("runningPods"):
        from pliant.client.errors import Conflict

        raise Conflict(f"{name} is not running: its status is {item['status']}.", _why(item))
    if tty and not sys.stdin.isatty():
        session.note("Note: standard input is not a terminal; the command gets one anyway.")
    rows, columns = terminal.size()
    running = session.client.exec(
        item["id"], command, tty=tty, stdin=stdin, rows=rows, columns=columns, pod=pod
    )
    try:
        return terminal.shuttle(running, tty=tty, stdin=stdin)
    except PliantError as error:
        raise PliantError(f"{name}: {error.message}", error.details) from error
    finally:
        running.close()


def _why(item: Any) -> str:
    reason = item.get("reason")
    return str(reason["message"]) if reason else ""
