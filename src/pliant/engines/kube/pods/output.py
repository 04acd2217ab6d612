"""Reads the log of a pod, while it runs and after."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from httpx2 import HTTPError
from lightkube import ApiError, Client

from pliant.control.errors import Unavailable
from pliant.engines.kube.apiserver.seen import Seen

PAUSE = 0.25  # seconds between two looks
QUIET = 4
"""Looks without a new line after which the log of an ended attempt ends, if the node does not end it."""


def log_of(
    client: Client,
    pod_of: Callable[[], Seen | None],
    over: Callable[[], bool],
    *,
    follow: bool,
    tail: int | None,
    age: int | None,
    timestamps: bool,
) -> Iterator[bytes]:
    """Yields the lines of the last `age` ms; with `follow`, b'' while there is none."""
    since = None if age is None else max(1, -(-age // 1000))
    wanted: dict[str, Any] = {"tail_lines": tail, "since": since, "timestamps": timestamps}
    while True:
        ended, pod = over(), pod_of()
        if pod is not None and pod.node:
            try:
                lines = client.log(
                    pod.name, namespace=pod.namespace, container=pod.main, follow=follow, **wanted
                )
                break
            except ApiError as error:
                if error.status.code not in (400, 404):  # not started yet, or gone
                    said = f"The cluster does not tell what {pod.name} prints: {error}."
                    raise Unavailable(said, "Try again, or ask who runs the server.") from error
        if ended or not follow:
            return
        yield b""
        time.sleep(PAUSE)
    if follow:
        yield from _followed(lines, over)
    else:
        yield from (line.encode() for line in lines)


def _followed(lines: Iterator[str], over: Callable[[], bool]) -> Iterator[bytes]:
    told: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read() -> None:
        try:
            for line in lines:
                told.put(line.encode())
        except HTTPError as error:
            told.put(f"(the cluster cut the log off: {error})\n".encode())
        finally:
            told.put(None)

    threading.Thread(target=read, name="pliant-kube-log", daemon=True).start()
    quiet = 0
    while quiet < QUIET:
        try:
            line = told.get(timeout=PAUSE)
        except queue.Empty:
            quiet += over()
            yield b""
            continue
        if line is None:
            return
        quiet = 0
        yield line
