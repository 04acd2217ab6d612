"""Follows the output of a job through all of its attempts, until it ends.

The job's output goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pliant.cli.output.amounts import counted_gpus, moment, show_duration
from pliant.cli.output.plain import LogScreen
from pliant.cli.workloads.outcomes import POLL, patiently
from pliant.client.errors import Conflict, NotFound, Unreachable

if TYPE_CHECKING:
    from pliant.cli.session import Session
    from pliant.cli.streams.typed_input import TypedInput
    from pliant.client.client import Client
    from pliant.wire.workload import Outcome, PodItem, WorkloadItem

T = TypeVar("T")


_STATUS = {"ContainerCreating": "starting", "Terminating": "stopping", "Error": "waiting for a retry"}
"""Status words of containers, and the words that `run` prints instead."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Which lines of a log are shown, and how. Later attempts are shown completely."""

    tail: int | None = None  # number of last lines
    since: int | None = None  # seconds before now
    timestamps: bool = False

    @property
    def whole(self) -> bool:
        return self.tail is None and self.since is None


WHOLE = Excerpt()


class Follower:
    """Follows the output of one task of a workload, by default of the first one that has started."""

    def __init__(
        self,
        session: Session,
        workload_id: str,
        name: str,
        *,
        pod: str | None = None,
        excerpt: Excerpt = WHOLE,
        quiet: bool = False,
        client: Client | None = None,
        write: Callable[[bytes], None] | None = None,
        typed: TypedInput | None = None,
    ) -> None:
        self.name = name
        self._session = session
        self._client = client or session.client
        self._write = write or (typed.write if typed is not None else None) or LogScreen().show
        self._typed = typed
        self._id = workload_id
        self._pod = pod
        self._excerpt = excerpt  # applies to the first attempt that is shown
        self._quiet = quiet  # print nothing about its status
        self._shown = 0  # the newest attempt whose output was shown
        self._failed = False  # whether the last attempt that was shown failed
        self._told = ""  # the last printed sentence about its status

    def run(self) -> Outcome:
        """Follow the workload to its end and return its outcome."""
        while True:
            self._tell()
            pod = self._task()
            newest = pod["attempt"] if pod is not None else 0
            if pod is not None and newest > self._shown:
                for attempt in range(self._shown + 1 if self._shown else newest, newest + 1):
                    if self._shown and not self._failed:
                        self._resumed(attempt)
                    if self._typed is not None and attempt == newest:
                        self._typed.begin(pod["name"], attempt)
                    self._stream(pod["name"], attempt)
                    self._failed = self._announce(attempt)
                self._shown = newest
            outcome: Outcome = self._ask(lambda: self._client.outcome(self._id))
            if outcome["exitCode"] is not None:
                return outcome
            time.sleep(POLL)

    def _task(self) -> PodItem | None:
        """The followed task; None before it starts and after the workload is deleted. Raises NotFound."""
        try:
            pods: list[PodItem] = self._ask(lambda: self._client.pods(self._id))
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
        """Print one attempt to its end; continues where a stream ended early."""
        shown, excerpt = 0, self._excerpt
        self._excerpt = Excerpt(timestamps=excerpt.timestamps)
        while True:
            open_log = partial(
                self._client.logs,
                self._id,
                follow=True,
                tail=excerpt.tail,
                since=excerpt.since,
                pod=pod,
                timestamps=excerpt.timestamps,
                attempt=attempt,
            )
            skip = shown if excerpt.whole else 0
            try:
                for piece in self._ask(open_log):
                    self._write(piece[skip:])
                    shown += len(piece[skip:])
                    skip = max(0, skip - len(piece))
                if not self._goes_on(pod, attempt):
                    return
                time.sleep(POLL)
            except Unreachable:
                pass
            except (Conflict, NotFound):
                return  # its log is gone, or the attempt never began
            if not excerpt.whole:  # reopen: only new output
                excerpt = replace(excerpt, tail=0, since=None)

    def _goes_on(self, pod: str, attempt: int) -> bool:
        """True while the attempt runs; a restarting server ends its streams earlier."""
        if self._ask(lambda: self._client.outcome(self._id))["exitCode"] is not None:
            return False
        pods: list[PodItem] = self._ask(lambda: self._client.pods(self._id))
        return any(
            it["name"] == pod and it["attempt"] == attempt and it["status"] in ("Running", "Terminating")
            for it in pods
        )

    def _resumed(self, attempt: int) -> None:
        """Print why another attempt starts although the last one did not fail."""
        try:
            item: WorkloadItem = self._ask(lambda: self._client.workload(self._id))
        except NotFound:
            return
        reason = item["reason"]
        said = f"-- {self.name}: attempt {attempt} starts. {reason['message'] if reason else ''}".rstrip()
        if item["resize"] == "restart" and reason and reason["code"] in ("grown", "shrunk"):
            said += " Use pliant.train to resize without a restart."
        self._session.note(said)

    def _announce(self, attempt: int) -> bool:
        """If the next attempt starts after a pause: print how this one ended, and return True."""
        pod = self._task()
        if pod is None or pod["attempt"] > attempt or pod["retryAt"] is None:
            return False
        pause = max(0, round(moment(pod["retryAt"]) - time.time()))
        how, what = "ended", "The next attempt"
        if pod["failures"]:
            how, what = "failed", f"Retry {pod['failures']} of {pod['retryLimit']}"
        self._session.note(
            f"-- {self.name}: attempt {attempt} {how} ({pod['message'].rstrip('.')}). "
            f"{what} starts in {show_duration(pause)}."
        )
        return True

    def _tell(self) -> None:
        """Print the status of the workload if it has changed."""
        if self._quiet:
            return
        try:
            item: Any = self._ask(lambda: self._client.workload(self._id))
        except NotFound:
            return
        if item["phase"] in ("Completed", "Failed"):
            return
        reason = (item.get("reason") or {}).get("message") or ""
        status = _STATUS.get(item["status"], item["status"].lower())
        said = f"{self.name} is {status}{f': {reason}' if reason else '.'}"
        if item["runningPods"]:
            gpus = item["allocatedResources"]["gpu"]
            said = f"{self.name} started on {item['node']}{f' ({counted_gpus(gpus)})' if gpus else ''}."
        elif place := item.get("queuePosition"):
            said += f" Position {place} in the queue."
        if said != self._told:
            self._told = said
            self._session.note(said)

    def _ask(self, ask: Callable[[], T]) -> T:
        return patiently(ask, lost=self._lost)

    def _lost(self) -> None:
        self._session.note(f"Lost connection to the server; {self.name} keeps running.")
