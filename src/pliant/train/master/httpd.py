"""HTTP/1.1 with JSON for a few callers; a long call notices at once when its caller is gone."""

import contextlib
import hmac
import json
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from pliant.train.errors import Refused

BODY_MAX = 64 << 20
Answer = dict[str, Any] | None  # None: no answer yet, wait
Route = Callable[["Call"], Answer]


class Bell:
    """Wakes every long call when something has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ears: set[socket.socket] = set()

    def ring(self) -> None:
        with self._lock:
            for ear in self._ears:
                with contextlib.suppress(BlockingIOError):  # full of unread rings
                    ear.send(b"!")

    def add(self, ear: socket.socket) -> None:
        with self._lock:
            self._ears.add(ear)

    def remove(self, ear: socket.socket) -> None:
        with self._lock:
            self._ears.discard(ear)


class Call:
    """One request: its body, and the connection that it came over."""

    def __init__(self, body: dict[str, Any], handler: "Handler") -> None:
        self.body = body
        self._handler = handler

    def get(self, name: str, kind: type, default: Any = ...) -> Any:
        """A field of the body. Raises Refused if it is missing or of another type."""
        value = self.body.get(name, default)
        if value is ... or (
            value is not default
            and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool))
        ):
            raise Refused(
                f"{name!r} should be {kind.__name__}, it is {self.body.get(name)!r}", "malformed", 400
            )
        return value

    def hold_line(self, worker: str) -> None:
        """From now on the end of this connection counts as a break of the worker's line."""
        self._handler.hold_line(worker)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.line: str | None = None
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)
        self.server.bell.add(self._mouth)
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        self.server.bell.remove(self._mouth)
        self._ear.close()
        self._mouth.close()
        if self.line is not None:
            self.server.line(self.line, False)
        with contextlib.suppress(OSError):
            super().finish()

    def hold_line(self, worker: str) -> None:
        if self.line != worker:
            if self.line is not None:
                self.server.line(self.line, False)
            self.line = worker
            self.server.line(worker, True)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the ledger records what happened."""

    def do_POST(self) -> None:
        try:
            status, answer = 200, self._answer()
        except Refused as error:
            status, answer = error.status or 400, {"error": str(error), "code": error.code}
        except ConnectionError:
            self.close_connection = True
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it; the master lives
            status, answer = 500, {"error": f"{type(error).__name__}: {error}", "code": "internal"}
        data = json.dumps(answer).encode()
        phrase = HTTPStatus(status).phrase
        head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        try:  # one write: Nagle's algorithm would delay a second one
            self.wfile.write(f"{head}\r\n\r\n".encode() + data)
        except OSError:
            self.close_connection = True

    def _answer(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > BODY_MAX:
            self.close_connection = True
            raise Refused("A call needs a Content-Length, of at most 64 MiB", "malformed", 400)
        payload = self.rfile.read(int(length))
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            raise Refused(
                "The token is missing or belongs to another job: a worker needs the token of its own attempt",
                "token",
                401,
            )
        try:
            body = json.loads(payload or b"{}")
        except ValueError as error:
            raise Refused(f"The body is not JSON: {error}", "malformed", 400) from error
        if not isinstance(body, dict):
            raise Refused("The body should be a JSON object", "malformed", 400)
        route = self.server.routes.get(self.path.removeprefix("/v1/"))
        if route is None:
            raise Refused(f"There is no {self.path}", "unknown", 404)
        return self._wait(route, Call(body, self))

    def _wait(self, route: Route, call: Call) -> dict[str, Any]:
        until = time.monotonic() + call.get("wait_ms", int, 0) / 1000
        while True:
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(4096)
            found = route(call)
            left = until - time.monotonic()
            if found is not None:
                return found
            if left <= 0:
                return {"what": "wait"}
            readable, _, _ = select.select([self.connection, self._ear], [], [], left)
            if self.connection in readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("the caller is gone")


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves `routes` on `listener`, a listening socket."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, listener: socket.socket, token: str, routes: dict[str, Route], line: Callable[[str, bool], None]
    ) -> None:
        super().__init__(listener.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.token = token
        self.routes = routes
        self.line = line
        self.bell = Bell()
        self.connections: set[socket.socket] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores broken connections: `finish` has reported the break of their line."""

    def close(self) -> None:
        """Stop serving and shut down all connections."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Refused if the port cannot be bound."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Refused(
            f"The master cannot listen on {host}:{port}: {error.strerror}. Choose another port with --port, "
            "or 0 for any free one.",
            "port",
        ) from error
    listener.listen(128)
    return listener
