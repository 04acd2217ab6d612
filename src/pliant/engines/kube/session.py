"""A command inside a pod that reads nothing."""

import queue
import threading
from collections.abc import Sequence
from typing import BinaryIO, cast

from httpx2 import HTTPError
from lightkube import Client

from pliant.engines.kube.pods import Seen
from pliant.model.workload import AttemptId

CANNOT_RUN = 126
"""Exit code of what the cluster did not start, as shells have it."""


class KubeSession:
    """See control.ports.Session. Output and errors come in one stream."""

    def __init__(self, client: Client, pod: Seen, argv: Sequence[str]) -> None:
        self._told: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._code: int | None = None
        self._over = False
        self._client, self._pod, self._argv = client, pod, list(argv)
        threading.Thread(target=self._run, name="pliant-kube-exec", daemon=True).start()

    def _run(self) -> None:
        stream = cast(BinaryIO, _Stream(self._told))  # only `write` is asked of it
        try:
            done = self._client.exec(
                self._pod.name,
                namespace=self._pod.namespace,
                container=self._pod.main,
                command=self._argv,
                stdout=stream,
                stderr=stream,
            )
            self._code = done.exit_code
        except HTTPError as error:
            self._told.put(f"{error}\n".encode())
            self._code = CANNOT_RUN
        finally:
            self._told.put(b"")

    def read(self, timeout: float) -> bytes | None:
        if self._over:
            return b""
        try:
            data = self._told.get(timeout=timeout)
        except queue.Empty:
            return None
        self._over = data == b""
        return data

    def write(self, data: bytes) -> None:
        """Nothing reads it."""

    def close_stdin(self) -> None:
        """It has none."""

    def resize(self, rows: int, columns: int) -> None:
        """It has no terminal."""

    def exit_code(self) -> int | None:
        return self._code

    def kill(self) -> None:
        """The cluster knows no way to end a command inside a container; it ends with its pod."""
        self._over = True


def begin(
    client: Client, pod: Seen | None, attempt: AttemptId, argv: Sequence[str], *, typed: bool
) -> KubeSession:
    """Raises ValueError if the attempt does not run, or if something would be typed into the command."""
    if pod is None or not pod.lives or pod.since is None:
        raise ValueError(f"{attempt} is not running: commands run only inside a running task")
    if typed:
        there = f"kubectl exec -it --namespace {pod.namespace} {pod.name} -- {' '.join(argv)}"
        raise ValueError(f"a command that reads what is typed needs kubectl: {there}")
    return KubeSession(client, pod, argv)


def signal_all(client: Client, pod: Seen | None, attempt: AttemptId, number: int) -> None:
    """To every process of the container; -1 leaves the first one out. Raises ValueError."""
    script = f"kill -{number} 1 && {{ kill -{number} -1 2>/dev/null; true; }}"
    session = begin(client, pod, attempt, ["sh", "-c", script], typed=False)
    said = b""
    while (data := session.read(1.0)) != b"":
        said += data or b""
    if session.exit_code():
        raise ValueError(said.decode(errors="replace").strip() or "the container has no `sh`")


class _Stream:
    def __init__(self, told: "queue.SimpleQueue[bytes]") -> None:
        self._told = told

    def write(self, data: bytes) -> int:
        if data:
            self._told.put(data)
        return len(data)
