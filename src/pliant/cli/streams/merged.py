"""Merges the logs of several tasks: whole lines, each prefixed with the name of its task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pliant.cli.output.plain import LogScreen
from pliant.cli.session import Session
from pliant.cli.streams.follow import Excerpt, Follower
from pliant.cli.workloads.outcomes import POLL, patiently, summary

if TYPE_CHECKING:
    from pliant.wire.workload import Outcome, PodItem

_turn = threading.Lock()


class Lines:
    """Writes whole lines; of a line that a program overwrites (a progress bar), its last state."""

    def __init__(self, label: str, timestamps: bool = False) -> None:
        self._label = label.encode()
        self._timestamps = timestamps  # each line begins with its time
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
        text = b"".join(self._label + self._last_state(line) + b"\n" for line in lines)
        with _turn:
            LogScreen().show(text)

    def _last_state(self, line: bytes) -> bytes:
        time, space, said = line.partition(b" ") if self._timestamps else (b"", b"", line)
        return time + space + said.rstrip(b"\r").rpartition(b"\r")[2]


def label_of(pod: PodItem, prefix: bool) -> str:
    return f"[{task_of(pod)}] " if prefix else ""


def task_of(pod: PodItem) -> str:
    """Name of the pod's task: `worker-2`."""
    containers = pod.get("containers")
    return str(containers[0]["name"]) if containers else pod["name"]


def shown(
    session: Session,
    identity: str,
    pods: Sequence[PodItem],
    *,
    excerpt: Excerpt,
    prefix: bool,
) -> None:
    """Print the logs of these pods, one after another."""
    for pod in pods:
        lines = Lines(label_of(pod, prefix), excerpt.timestamps)
        for piece in session.client.logs(
            identity,
            tail=excerpt.tail,
            since=excerpt.since,
            pod=pod["name"],
            timestamps=excerpt.timestamps,
        ):
            lines.write(piece)
        lines.close()


def followed(session: Session, identity: str, name: str, *, excerpt: Excerpt, prefix: bool) -> int:
    """Print the output of all tasks, also of later ones, until the job ends; returns its exit code."""
    threads: dict[str, threading.Thread] = {}
    failures: list[BaseException] = []
    while True:
        outcome: Outcome = patiently(lambda: session.client.outcome(identity))
        for pod in patiently(lambda: session.client.pods(identity)) if not outcome["gone"] else ():
            if pod["attempt"] and pod["name"] not in threads:
                one = _one(session, identity, name, pod, excerpt, prefix, failures)
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
    excerpt: Excerpt,
    prefix: bool,
    failures: list[BaseException],
) -> Callable[[], None]:
    """A function that follows one task to the job's end on its own connection; errors go to `failures`."""

    def run() -> None:
        lines = Lines(label_of(pod, prefix), excerpt.timestamps)
        try:
            with session.client.twin() as client:
                Follower(
                    session,
                    identity,
                    name,
                    pod=pod["name"],
                    excerpt=excerpt,
                    quiet=True,
                    client=client,
                    write=lines.write,
                ).run()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failures.append(error)
        finally:
            lines.close()

    return run
