"""The logs of several tasks in one stream: whole lines, each behind the name of its task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pliant.cli.output.plain import LogScreen
from pliant.cli.session import Session
from pliant.cli.workloads.follow import Follower
from pliant.cli.workloads.outcomes import POLL, patiently, summary

if TYPE_CHECKING:
    from pliant.wire.workload import Outcome, PodItem

_turn = threading.Lock()


class Lines:
    """Writes whole lines; of one that a program overwrites (a progress bar) the last state."""

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._rest = b""

    def write(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines:
            self._out(lines)

    def close(self) -> None:
        if self._rest:
            self._out([self._rest])
            self._rest = b""

    def _out(self, lines: Iterable[bytes]) -> None:
        text = b"".join(self._label + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n" for line in lines)
        with _turn:
            LogScreen().show(text)


def label_of(pod: PodItem, prefix: bool) -> str:
    return f"[{task_of(pod)}] " if prefix else ""


def task_of(pod: PodItem) -> str:
    """Name of the task: `worker-2`."""
    containers = pod.get("containers")
    return str(containers[0]["name"]) if containers else pod["name"]


def shown(
    session: Session,
    identity: str,
    pods: Sequence[PodItem],
    *,
    tail: int | None,
    since: int | None,
    prefix: bool,
) -> None:
    """What they have printed, task after task."""
    for pod in pods:
        lines = Lines(label_of(pod, prefix))
        for piece in session.client.logs(identity, tail=tail, since=since, pod=pod["name"]):
            lines.write(piece)
        lines.close()


def followed(session: Session, identity: str, name: str, *, tail: int | None, prefix: bool) -> int:
    """What all tasks print, also those that start later, until the job ends; its exit code."""
    threads: dict[str, threading.Thread] = {}
    failures: list[BaseException] = []
    while True:
        outcome: Outcome = patiently(lambda: session.client.outcome(identity))
        for pod in patiently(lambda: session.client.pods(identity)) if not outcome["gone"] else ():
            if pod["attempt"] and pod["name"] not in threads:
                one = _one(session, identity, name, pod, tail, prefix, failures)
                threads[pod["name"]] = threading.Thread(target=one, daemon=True)
                threads[pod["name"]].start()
        if failures:
            raise failures[0]
        if outcome["exitCode"] is not None:
            break
        time.sleep(POLL)
    for thread in threads.values():
        thread.join()
    if failures:
        raise failures[0]
    if outcome["exitCode"]:
        session.note(summary(name, outcome))
    return outcome["exitCode"]


def _one(
    session: Session,
    identity: str,
    name: str,
    pod: PodItem,
    tail: int | None,
    prefix: bool,
    failures: list[BaseException],
) -> Callable[[], None]:
    """Follows one task to the end of the job, on a connection of its own."""

    def run() -> None:
        lines = Lines(label_of(pod, prefix))
        try:
            with session.client.twin() as client:
                Follower(
                    session,
                    identity,
                    name,
                    pod=pod["name"],
                    tail=tail,
                    quiet=True,
                    client=client,
                    write=lines.write,
                ).run()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failures.append(error)
        finally:
            lines.close()

    return run
