"""Runs a command in a pod, or connects to a program that listens there: each over a web socket."""

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
"""Exit code of a command that the cluster did not start, as in shells."""

PIECE = 32 * 1024  # bytes of one message
BEGINS = "pliant: begins"
HERALD = ["sh", "-c", f'echo "{BEGINS}" && exec "$0" "$@"']
"""Prefix of a command that gets input: its line shows that the command is ready to read. containerd loses
input that ends before (5 of 60 tries on a real kubelet)."""

SETTLE = 1.0
"""Seconds from the start of a command to the end of its input if the container has no `sh`."""

SHORT, MOST = 30.0, 64 * 1024
"""Most seconds, and bytes of output, of a command that `output` runs: a job could go on for ever."""

LATE = 5.0
"""Seconds without output after which a command that has ended is over, if the cluster does not close."""

NORMAL = 1000  # close code of a web socket

CLOSING, PLAIN = "v5.channel.k8s.io", "v4.channel.k8s.io"
"""Subprotocols: each message begins with its channel. Only CLOSING has a message for the end of input."""

IN, OUT, ERR, END, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Channels of a command."""

DATA, ERROR = 0, 1
"""Channels of a port forward; the first message of each names the port."""

LINGER = 30.0
"""Seconds of silence after which a port forward ends once its client has no more to send. The protocol has no
message for that, and a program that waits for more input would keep it open for ever."""


class _Stream:
    """A web socket to a pod, for one reader and one writer."""

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
    """See control.ports.Session. Without a terminal too, output and errors come in one stream."""

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
        """`size`: rows and columns of the terminal. `settle`: seconds before its input may end.

        Raises OSError.
        """
        asked = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        params = {name: str(wanted).lower() for name, wanted in asked.items()}
        super().__init__(
            client, pod, "exec", {**params, "command": [*argv], "container": pod.main}, (CLOSING, PLAIN)
        )
        self._tty, self._typed = tty, stdin
        self._settled = time.monotonic() + settle
        self._early = b""  # output that came right after the herald's line
        self._status: int | None = None  # exit code of the command once it has ended
        self._heard = 0.0  # monotonic s of the last message
        if tty:
            self.resize(*size)

    def begins(self) -> bool:
        """True once HERALD's line has come; False if HERALD could not run. Raises OSError if unknown."""
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
        self._status, why = _ended(data)  # the command's last output may come after it
        return f"{why}\n".encode() if why else None

    def _end(self, code: int) -> None:
        super()._end(code if self._status is None else self._status)

    def write(self, data: bytes) -> None:
        """Drops input for a command that has ended: that is no error of the client."""
        if self._typed and self._code is None:
            with suppress(OSError):
                self._send(IN, data)

    def close_stdin(self) -> None:
        """Ends the input. An API server before 1.30 has no message for that: the input stays open."""
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
        """Ends the connection only: Kubernetes cannot end a command in a container before its pod ends."""
        self._end(CANNOT_RUN)


def _ended(status: bytes) -> tuple[int, str]:
    """(exit code, why the command did not run) from the final status message."""
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
    """Raises ValueError if the attempt does not run, or if the command cannot be run in it."""
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
    """The output of a short command. Raises ValueError, with the start of its output if the command fails."""
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
    """Signals pid 1 of the container, then all its other processes. Raises ValueError."""
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
    """See control.ports.Session: its output is what the program sends."""

    def __init__(self, client: Client, pod: Seen, port: int) -> None:
        """Raises OSError."""
        super().__init__(client, pod, "portforward", {"ports": port}, (PLAIN,))
        self._last = float("inf")  # monotonic s of the last data after the client's end; inf before
        self._named: set[int] = set()  # channels that have named the port

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
        """Does nothing: it has no terminal."""

    def kill(self) -> None:
        self._end(0)
