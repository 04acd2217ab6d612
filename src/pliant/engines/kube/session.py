"""A command inside a pod that reads nothing; a connection to a program that listens in one."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast

from httpx2 import HTTPError
from httpx2.websockets import HTTPXWSException, WebSocketDisconnect, WebSocketUpgradeError
from lightkube import ApiError, Client

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
        except (HTTPError, HTTPXWSException, ApiError) as error:
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


FORWARD = "v4.channel.k8s.io"
"""Each message begins with its channel: 0 data, 1 an error. The first one of each channel tells the port."""

DATA, ERROR = 0, 1
LINGER = 30.0
"""Seconds of silence after which a connection is over whose client has nothing more to send: the protocol has
no word for that, and a program that waits for more would keep it open for ever."""

PIECE = 32 * 1024  # bytes of one message
NORMAL = 1000  # of a web socket that was closed


class PodTunnels:
    """See control.ports.Tunnels."""

    def __init__(self, client: Client, pod_of: Callable[[AttemptId], Seen | None]) -> None:
        self._client, self._pod_of = client, pod_of

    def connect(self, attempt: AttemptId, port: int) -> "Tunnel":
        pod = self._pod_of(attempt)
        if pod is None or not pod.lives or pod.since is None:
            raise ValueError(f"{attempt} is not running: nothing listens in it")
        return Tunnel(self._client, pod, port)


class Tunnel:
    """See control.ports.Session: bytes of the program are its output. For one reader and one writer."""

    def __init__(self, client: Client, pod: Seen, port: int) -> None:
        """Raises OSError."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/portforward"
        http = client._client._client
        self._way = http.websocket(path, params={"ports": port}, subprotocols=[FORWARD])
        self._lock = threading.Lock()
        self._code: int | None = None
        self._last = float("inf")  # when something was read after the last was written
        self._named: set[int] = set()  # channels that have told the port
        try:
            self._socket = self._way.__enter__()
        except WebSocketUpgradeError as error:
            status = error.response.status_code
            raise OSError(f"the cluster answered {status}: it refused the way to {pod.name}") from error
        except (HTTPError, HTTPXWSException) as error:
            raise OSError(f"the cluster does not lead to {pod.name}: {error}") from error

    def read(self, timeout: float) -> bytes | None:
        if self._code is not None:
            return b""
        try:
            message = self._socket.receive_bytes(timeout)
        except TimeoutError:
            if time.monotonic() - self._last > LINGER:
                self._end(0)
            return None
        except WebSocketDisconnect as left:
            self._end(0 if left.code == NORMAL else CANNOT_RUN)
            return b""
        except HTTPXWSException:
            self._end(CANNOT_RUN)
            return b""
        channel, data = message[0], message[1:]
        if channel not in self._named:
            self._named.add(channel)
            return None
        if channel == ERROR:
            self._end(CANNOT_RUN)
            return b""
        self._last = time.monotonic() if self._last != float("inf") else self._last
        return data or None

    def write(self, data: bytes) -> None:
        """Raises OSError if it is over."""
        try:
            for at in range(0, len(data), PIECE):
                self._socket.send_bytes(bytes((DATA,)) + data[at : at + PIECE])
        except (HTTPXWSException, HTTPError, RuntimeError) as error:
            raise OSError("the connection is over") from error

    def close_stdin(self) -> None:
        self._last = time.monotonic()

    def resize(self, rows: int, columns: int) -> None:
        """It has no terminal."""

    def exit_code(self) -> int | None:
        return self._code

    def kill(self) -> None:
        self._end(0)

    def _end(self, code: int) -> None:
        with self._lock:
            if self._code is not None:
                return
            self._code = code
        self._way.__exit__(None, None, None)


class _Stream:
    def __init__(self, told: "queue.SimpleQueue[bytes]") -> None:
        self._told = told

    def write(self, data: bytes) -> int:
        if data:
            self._told.put(data)
        return len(data)
