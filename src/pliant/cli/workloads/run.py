"""run: submits a job, prints its output and returns its exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import click

from pliant.cli.exits import INTERRUPTED
from pliant.cli.lazy import tail
from pliant.cli.output.amounts import show_duration
from pliant.cli.session import Session, pass_session
from pliant.cli.streams.follow import Follower
from pliant.cli.streams.signals import heard
from pliant.cli.submit import submission
from pliant.cli.submit.v1 import RunCommand, options, request
from pliant.cli.workloads.outcomes import summary
from pliant.client.errors import BadRequest, PliantError

TWICE_WITHIN = 2.0
"""A second Ctrl-C within this many seconds cancels the job."""

TELLING = 20.0
"""Most seconds that a third Ctrl-C waits until the server has answered the cancellation."""


NOT_STARTABLE = {"command-not-found": 127, "not-executable": 126}
"""Exit codes, like a shell's, by the server's reason for refusing a command."""


@click.command("run", cls=RunCommand, short_help="Run a job and wait for it; return its exit code.")
@options
@click.pass_context
@pass_session
def run(session: Session, ctx: click.Context, **given: Any) -> int:
    """Submit a job, print its output and return its exit code.

    Ctrl-C shows the status, twice within 2 seconds cancels the job; Ctrl-\\ leaves it running.
    The job reads nothing; with --stdin it reads what is typed or piped here. With --stdin -t it has a
    terminal and gets every key; `~.` at the start of a line leaves it running.
    """
    words = tail(ctx)
    if given["attach"] or given["wait"]:
        raise click.UsageError("`run` always waits and prints the job's output: omit --attach and --wait.")
    if given["job_name_prefix"] is None:
        given["job_name_prefix"] = "run"
    if given["backoffLimit"] is None:
        given["backoffLimit"] = 0
    body, kind = request(session, given, words)
    try:
        answer = submission.accepted(session, kind, body, dry_run=given["dry_run"])
    except BadRequest as error:
        if error.reason not in NOT_STARTABLE:
            raise
        click.echo(f"Error: {error.message}", err=True)
        return NOT_STARTABLE[error.reason]
    if answer is None:
        return 0
    return wait_for(session, answer["workloadId"], answer["name"], stdin=given["stdin"], tty=given["tty"])


def wait_for(session: Session, workload_id: str, name: str, *, stdin: bool = False, tty: bool = False) -> int:
    """Follow a job to its end and return its exit code; keys and signals of this terminal act on the job."""
    if sys.stdin.isatty():
        how = f"Ctrl-C twice within {TWICE_WITHIN:g}s cancels {name}"
        if tty:
            how = f"{name} gets every key; `~.` at the start of a line detaches"
        session.note(f"{how}. If this terminal goes away, it keeps running.")
    typed = None
    if stdin:
        from pliant.cli.streams.execute import typed_here

        typed = typed_here(session, workload_id, name, stdin=True, tty=tty)
    follower = Follower(session, workload_id, name, typed=typed)
    with Keys(session, workload_id, name) as keys, typed.keys() if typed else nullcontext():
        keys.restore = typed.restore if typed else keys.restore
        outcome = follower.run()
    assert outcome["exitCode"] is not None
    session.note(summary(name, outcome))
    return outcome["exitCode"]


class Keys:
    """Handles Ctrl-C, Ctrl-\\ and the end of the terminal while a job is followed.

    Each prints a line, requests a cancellation in a separate thread, or ends this process.
    """

    def __init__(self, session: Session, workload_id: str, name: str) -> None:
        self._session = session
        self._id = workload_id
        self._name = name
        self._left = f"{name} keeps running. Follow it with: {session.program} logs -f {name}"
        self._began = time.monotonic()
        self._pressed = -TWICE_WITHIN  # monotonic seconds of the last Ctrl-C
        self._cancelling = False
        self._told = threading.Event()  # set once the server has answered the cancellation
        self._heard = heard(
            {
                signal.SIGINT: self._interrupted,
                signal.SIGTERM: self._terminated,
                signal.SIGQUIT: self._detached,
                signal.SIGHUP: self._detached,
            }
        )
        self.restore: Callable[[], None] = lambda: None  # restores the terminal before this process ends

    def __enter__(self) -> Keys:
        self._heard.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._heard.__exit__(None, None, None)

    def _interrupted(self) -> None:
        now = time.monotonic()
        if self._cancelling:
            self._told.wait(TELLING)  # the request may still be on its way
            self._leave(f"{self._name} is still being cancelled.")
        elif now - self._pressed <= TWICE_WITHIN:
            self._cancel()
        else:
            ran = show_duration(now - self._began)
            _say(
                f"{self._name} was submitted {ran} ago. Ctrl-C again within {TWICE_WITHIN:g}s cancels it; "
                "Ctrl-\\ leaves it running."
            )
        self._pressed = now

    def _terminated(self) -> None:
        if not self._cancelling:
            self._cancel()

    def _detached(self) -> None:
        self._leave(self._left)

    def _cancel(self) -> None:
        self._cancelling = True
        self._told.clear()
        _say(f"Cancelling {self._name}. Ctrl-C again returns without waiting for its end.")
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        try:
            with self._session.client.twin() as client:
                client.cancel(self._id)
        except PliantError as error:
            _say(f"Error: {self._name} could not be cancelled: {error.message}")
            self._cancelling = False
        self._told.set()

    def _leave(self, said: str) -> None:
        self.restore()
        _say(said)
        os._exit(INTERRUPTED)  # the job's output is flushed after every piece


def _say(text: str) -> None:
    """Write to standard error without the buffers, which the main thread may be using."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        return  # the terminal is gone; the job keeps running
