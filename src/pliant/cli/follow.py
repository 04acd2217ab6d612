"""Follow what a job prints through all of its attempts, until it ends.

What the job prints goes to standard output, all else to standard error.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from pliant.cli.amounts import clock, count
from pliant.cli.outcomes import POLL, patiently
from pliant.cli.session import Session
from pliant.client.errors import Conflict, NotFound, Unreachable
from pliant.client.wire import Outcome, PodItem


class Follower:
    """The output of one task of one workload, by default of its leader."""

    def __init__(
        self,
        session: Session,
        workload_id: str,
        name: str,
        *,
        pod: str | None = None,
        tail: int | None = None,
    ) -> None:
        self.name = name
        self.outcome: Outcome | None = None  # once it has ended
        self._session = session
        self._client = session.client
        self._id = workload_id
        self._pod = pod
        self._tail = tail
        self._attempt = 0  # the newest attempt whose output was shown
        self._told = ""  # the last sentence about its status

    def run(self, *, limit: float | None = None) -> Outcome | None:
        """Follow it to its end; None if no task has started within `limit` seconds."""
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            pod = self._task()
            number = pod["attempt"] if pod is not None else 0
            if pod is not None and number > self._attempt:
                for attempt in range(self._attempt + 1 if self._attempt else number, number + 1):
                    self._stream(pod["name"], attempt)
                self._attempt, deadline = number, None
            self.outcome = self._ask(lambda: self._client.outcome(self._id))
            if self.outcome["exitCode"] is not None:
                return self.outcome
            if deadline is not None and time.monotonic() > deadline:
                return None
            self._tell()
            time.sleep(POLL)

    def _task(self) -> PodItem | None:
        try:
            pods = self._ask(lambda: self._client.pods(self._id))
        except NotFound:
            return None
        if self._pod is None:
            return next((pod for pod in pods if pod["attempt"]), None)
        found = next((pod for pod in pods if pod["name"] == self._pod), None)
        if found is None and pods:
            names = ", ".join(pod["name"] for pod in pods)
            raise NotFound(f"{self.name} has no pod {self._pod}.", f"It has {names}.")
        return found

    def _stream(self, pod: str, attempt: int) -> None:
        """Print one attempt to its end; a connection that breaks is taken up where it broke."""
        shown, tail = 0, self._tail
        while True:
            try:
                stream = self._ask(
                    lambda: self._client.logs(self._id, follow=True, tail=tail, pod=pod, attempt=attempt)
                )
                skip = shown if tail is None else 0
                for piece in stream:
                    fresh = piece[skip:]
                    skip = max(0, skip - len(piece))
                    sys.stdout.buffer.write(fresh)
                    sys.stdout.buffer.flush()
                    shown += len(fresh)
            except Unreachable:
                tail = tail if tail is None else 0
                continue
            except (Conflict, NotFound):
                return  # its log is gone, or it never began
            break
        self._tail = None  # of later attempts everything is shown
        self._announce(attempt)

    def _announce(self, attempt: int) -> None:
        """Say how an attempt ended, if another one follows."""
        outcome = self._ask(lambda: self._client.outcome(self._id))
        pod = self._task()
        if outcome["exitCode"] is not None or pod is None or pod["attempt"] > attempt:
            return
        after = pod.get("retryInSeconds")
        if after is not None:
            tries = f"Retry {pod['failures']} of {pod['retryLimit']} starts in {clock(after)}."
            self._session.note(f"-- {self.name}: attempt {attempt} failed. {pod['message']} {tries}")

    def _tell(self) -> None:
        """Where it stands, when that has changed."""
        try:
            item: Any = self._ask(lambda: self._client.workload(self._id))
        except NotFound:
            return
        if item.get("runningPods"):
            gpus = (item.get("allocatedResources") or {}).get("gpu") or 0
            said = f"{self.name} started on {item['node']}{f' ({count(gpus, 'GPU')})' if gpus else ''}."
        else:
            reason = (item.get("reason") or {}).get("message") or ""
            place = item.get("queuePosition")
            said = f"{self.name} is {item['status'].lower()}{f': {reason}' if reason else '.'}"
            said += f" Position {place} in the queue." if place else ""
        if said != self._told:
            self._told = said
            self._session.note(said)

    def _ask(self, ask: Any) -> Any:
        return patiently(
            ask,
            lost=lambda: click.echo(f"Lost connection to the server; {self.name} keeps running.", err=True),
        )
