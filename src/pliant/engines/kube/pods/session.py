"""A command inside a pod, and a connection to a program that listens in one: each is a web socket."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from httpx2 import HTTPError
from httpx2.websockets import HTTPXWSException, WebSocketDisconnect, WebSocketUpgradeError
from lightkube import Client

from pliant.control.ports import Session
from pliant.engines.kube.apiserver.seen import Seen
from pliant.model.workload import AttemptId

CANNOT_RUN = 126
"""Exit code of what the cluster did not start, as shells have it."""

PIECE = 32 * 1024  # bytes of one message
BEGINS = "pliant: begins"
HERALD = ["sh", "-c", f'echo "{BEGINS}" && exec "$0" "$@"']
"""Before a command that gets input: what it says shows that the command is there to read. containerd loses
input that ends before that (5 of 60 tries on a real kubelet)."""

SETTLE = 1.0
"""Seconds from the start of a command to the end of its input where the container has no `sh`."""

SHORT, MOST = 30.0, 64 * 1024
"""Seconds for a command of which we want the output, and bytes of it: a job may go on for ever."""

LATE = 5.0
"""Seconds in which the last of a command's output comes after its end, from a cluster that does not close."""

NORMAL = 1000  # of a web socket that was closed

CLOSING, PLAIN = "v5.channel.k8s.io", "v4.channel.k8s.io"
"""How messages are written: each begins with its channel. Only the first has a word for the end of input."""

IN, OUT, ERR, END, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Channels of a command."""

DATA, ERROR = 0, 1
"""Channels of a connection; the first message of each tells the port."""

LINGER = 30.0
"""Seconds of silence after which a connection is over whose client has nothing more to send: the protocol has
no word for that, and a program that waits for more would keep it open for ever."""


class _Stream:
    """What is said to a pod and by it. For one reader and one writer."""

    def __init__(
        self, client: Client, pod: Seen, part: str, params: Mapping[str, Any], protocols: Sequence[str]
    ) -> None:
        """Raises OSError."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/{part}"
        self._way = client._client._client.websocket(path, params=dict(params), subprotocols=[*protocols])
        self._lock = threading.Lock()
        self._code: int | None = None
        try:
            self._socket = self._way.__enter__()
        except WebSocketUpgradeError as error:
            status = error.response.status_code
            why = f"the cluster answered {status}: it refused the way to {pod.name}"
            if status == 403:
                why += f"; the server lacks the right pods/{part}, see `pliant doctor --kube`"
            raise OSError(why) from error
        except (HTTPError, HTTPXWSException) as error:
            raise OSError(f"the cluster does not lead to {pod.name}: {error}") from error

    def exit_code(self) -> int | None:
        return self._code

    def _receive(self, timeout: float) -> tuple[int, bytes] | None:
        """(channel, data); None if nothing came, or if it is over: then there is an exit code."""
        try:
            message = self._socket.receive_bytes(timeout)
        except TimeoutError:
            return None
        except WebSocketDisconnect as left:
            self._end(0 if left.code == NORMAL else CANNOT_RUN)
            return None
        except HTTPXWSException:
            self._end(CANNOT_RUN)
            return None
        return message[0], message[1:]

    def _send(self, channel: int, data: bytes) -> None:
        """Raises OSError if it is over."""
        try:
            for at in range(0, len(data), PIECE):
                self._socket.send_bytes(bytes((channel,)) + data[at : at + PIECE])
        except (HTTPXWSException, HTTPError, RuntimeError) as error:
            raise OSError("the connection is over") from error

    def _end(self, code: int) -> None:
        with self._lock:
            if self._code is not None:
                return
            self._code = code
        self._way.__exit__(None, None, None)


class KubeSession(_Stream):
    """See control.ports.Session. Without a terminal output and errors come in one stream all the same."""

    def __init__(
        self,
        client: Client,
        pod: Seen,
        argv: Sequence[str],
        *,
        tty: bool = False,
        stdin: bool = False,
        size: tuple[int, int] = (24, 80),
        settle: float = 0.0,
    ) -> None:
        """`size`: rows and columns of the terminal; `settle`: seconds before its input may end.

        Raises OSError.
        """
        asked = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        params = {name: str(wanted).lower() for name, wanted in asked.items()}
        super().__init__(
            client, pod, "exec", {**params, "command": [*argv], "container": pod.main}, (CLOSING, PLAIN)
        )
        self._tty, self._typed = tty, stdin
        self._settled = time.monotonic() + settle
        self._early = b""  # what it said right behind the herald
        self._status: int | None = None  # of the command, which has ended
        self._heard = 0.0  # monotonic s: when that, or what it had said before, was heard last
        if tty:
            self.resize(*size)

    def begins(self) -> bool:
        """Whether HERALD has said so; False if that could not be run. Raises OSError if nobody can tell."""
        said, deadline = b"", time.monotonic() + SHORT
        while self._code is None and time.monotonic() < deadline and len(said) <= MOST:
            said += self.read(1.0) or b""
            before, line, self._early = said.partition(f"{BEGINS}\n".encode())
            if line:
                self._early = before + self._early
                return True
        self._end(CANNOT_RUN)
        if self._status is None:
            raise OSError("the cluster does not say whether the command has begun")
        return False

    def read(self, timeout: float) -> bytes | None:
        if self._early:
            early, self._early = self._early, b""
            return early
        found = self._receive(timeout) if self._code is None else None
        if found is None:
            if self._status is not None and time.monotonic() - self._heard > LATE:
                self._end(self._status)
            return None if self._code is None else b""
        channel, data = found
        self._heard = time.monotonic()
        if channel != END:
            return data or None
        self._status, why = _ended(data)  # what the command said last may come after that
        return f"{why}\n".encode() if why else None

    def _end(self, code: int) -> None:
        super()._end(code if self._status is None else self._status)

    def write(self, data: bytes) -> None:
        """A command that has ended takes no more, and that is no error of who typed."""
        if self._typed and self._code is None:
            with suppress(OSError):
                self._send(IN, data)

    def close_stdin(self) -> None:
        """An API server older than 1.30 cannot be told so: the command is left alone with what it has."""
        if self._tty:
            self.write(b"\x04")
        elif self._typed and self._code is None and self._socket.subprotocol == CLOSING:
            time.sleep(max(0.0, self._settled - time.monotonic()))
            with suppress(OSError):
                self._send(CLOSE, bytes((IN,)))

    def resize(self, rows: int, columns: int) -> None:
        if self._tty and self._code is None:
            with suppress(OSError):
                self._send(SIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    def kill(self) -> None:
        """The cluster knows no way to end a command inside a container; it ends with its pod."""
        self._end(CANNOT_RUN)


def _ended(status: bytes) -> tuple[int, str]:
    """(exit code, why there is none of the command) of what is said at its end."""
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0, ""
    for cause in (told.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"]), ""
    return CANNOT_RUN, told.get("message") or "it could not be run"


def begin(
    client: Client,
    pod: Seen | None,
    attempt: AttemptId,
    argv: Sequence[str],
    *,
    tty: bool = False,
    stdin: bool = False,
    size: tuple[int, int] = (24, 80),
) -> KubeSession:
    """Raises ValueError if the attempt does not run, or if nothing can be run in it."""
    if pod is None or not pod.lives or pod.since is None:
        raise ValueError(f"{attempt} is not running: commands run only inside a running task")
    try:
        if not stdin or tty:
            return KubeSession(client, pod, argv, tty=tty, stdin=stdin, size=size)
        session = KubeSession(client, pod, [*HERALD, *argv], stdin=True)
        return session if session.begins() else KubeSession(client, pod, argv, stdin=True, settle=SETTLE)
    except OSError as error:
        raise ValueError(str(error)) from error


def output(session: Session) -> str:
    """What a command says that takes no time. Raises ValueError with its beginning if the command fails."""
    said, deadline = b"", time.monotonic() + SHORT
    while (data := session.read(1.0)) != b"":
        said += data or b""
        if len(said) > MOST or time.monotonic() > deadline:
            session.kill()
            raise ValueError(f"its output is longer than {SHORT:.0f} s or {MOST >> 10} KiB")
    text = said.decode(errors="replace")
    if session.exit_code():
        raise ValueError(text.strip()[:200] or f"it ended with {session.exit_code()}")
    return text


def signal_all(client: Client, pod: Seen | None, attempt: AttemptId, number: int) -> None:
    """To every process of the container; -1 leaves the first one out. Raises ValueError."""
    script = f"kill -{number} 1 && {{ kill -{number} -1 2>/dev/null; true; }}"
    output(begin(client, pod, attempt, ["sh", "-c", script]))


class PodTunnels:
    """See control.ports.Tunnels."""

    def __init__(self, client: Client, pod_of: Callable[[AttemptId], Seen | None]) -> None:
        self._client, self._pod_of = client, pod_of

    def connect(self, attempt: AttemptId, port: int) -> "Tunnel":
        pod = self._pod_of(attempt)
        if pod is None or not pod.lives or pod.since is None:
            raise ValueError(f"{attempt} is not running: nothing listens in it")
        return Tunnel(self._client, pod, port)


class Tunnel(_Stream):
    """See control.ports.Session: bytes of the program are its output."""

    def __init__(self, client: Client, pod: Seen, port: int) -> None:
        """Raises OSError."""
        super().__init__(client, pod, "portforward", {"ports": port}, (PLAIN,))
        self._last = float("inf")  # when something was read after the last was written
        self._named: set[int] = set()  # channels that have told the port

    def read(self, timeout: float) -> bytes | None:
        found = self._receive(timeout) if self._code is None else None
        if found is None:
            if self._code is None and time.monotonic() - self._last > LINGER:
                self._end(0)
            return None if self._code is None else b""
        channel, data = found
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
        self._send(DATA, data)

    def close_stdin(self) -> None:
        self._last = time.monotonic()

    def resize(self, rows: int, columns: int) -> None:
        """It has no terminal."""

    def kill(self) -> None:
        self._end(0)
