"""A proxy between servers and the API server, in which a test injects faults."""

import contextlib
import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from typing import Any

REASONS = {404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class Gate:
    """Forwards requests to the API server whose certificate and key are in that folder."""

    def __init__(self, url: str, certificates: Path, dice: random.Random) -> None:
        self.upstream = url.removeprefix("https://")
        self.trust = ssl.create_default_context(cafile=certificates / "apiserver.crt")
        self.own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.own.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        self._dice, self._lock = dice, threading.Lock()
        self._share, self._expired = 0.0, 0
        self._next = {True: cycle((429, 500)), False: cycle((409, 429, 500))}  # for reads, for writes
        self.clients: set[socket.socket] = set()
        self.watches: set[socket.socket] = set()  # their sockets to the API server
        self.injected: dict[int, int] = {}  # status -> number of injected answers
        self.asked: Counter[tuple[str, str]] = Counter()  # (method, path without query)
        self.claims: dict[str, str] = {}  # version fields that it claims, e.g. minor
        self.delay = 0.0  # seconds before it forwards a request
        self.answers = 0  # the status of all answers; 0: the true ones
        self.hushed: set[socket.socket] = set()  # watches that stay open and are silent
        self.lacks = ""  # suffix of unknown paths, as in an older version
        self._server = _Server(self)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    # -- faults

    def trouble(self, share: float) -> None:
        """Makes this share of all requests fail: 409, 429, 500. Half of those with 500 are carried out."""
        self._share = share

    def cut(self) -> None:
        """Ends all connections, even in the middle of an answer."""
        _end(self.clients)

    def expire(self) -> None:
        """Ends all watches; the next ones get 410, as if their version were compacted."""
        with self._lock:
            self._expired = len(self.watches)
        _end(self.watches)

    def hush(self) -> None:
        """Silences all open watches, as if the network to the API server were lost."""
        self.hushed |= self.watches

    def fate(self, method: str, path: str, watch: bool) -> tuple[int, bool]:
        """(The status of the answer to a request, 0 for the true one; True if it is carried out)."""
        with self._lock:
            self.asked[method, path] += 1
            status = 404 if self.lacks and path.endswith(self.lacks) else self.answers
            if watch and self._expired:
                self._expired -= 1
                status = 410
            elif not status and not watch and self._dice.random() < self._share:
                status = next(self._next[method == "GET"])
            if status:
                self.injected[status] = self.injected.get(status, 0) + 1
            return status, status == 500 and self._dice.random() < 0.5


def _end(sockets: set[socket.socket]) -> None:
    for each in list(sockets):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(each, socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores broken connections: tests break them on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        self.gate = self.server.gate
        self.request = self.gate.own.wrap_socket(self.request, server_side=True)
        self.gate.clients.add(self.request)
        self._way = http.client.HTTPSConnection(self.gate.upstream, context=self.gate.trust, timeout=60)
        super().setup()

    def finish(self) -> None:
        self.gate.clients.discard(self.request)
        self._way.close()
        with contextlib.suppress(OSError):
            super().finish()
        self.request.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        watch = "watch=" in self.path
        time.sleep(self.gate.delay)
        status, carried_out = self.gate.fate(self.command, self.path.partition("?")[0], watch)
        if status and not carried_out:
            self._tell(status)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        try:
            self._way.request(self.command, self.path, body or None, headers)
            response = self._way.getresponse()
            if status:
                response.read()
                self._tell(status)
            elif watch and response.status == 200:
                self._stream(response)
            else:
                self._whole(response)
        except (OSError, http.client.HTTPException):  # the API server is down: so is the gate
            self._way.close()
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def _tell(self, status: int) -> None:
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
        said |= {"reason": REASONS[status], "message": "the gate says so", "metadata": {}, "details": {}}
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _whole(self, response: http.client.HTTPResponse) -> None:
        data = response.read()
        if self.path == "/version" and self.gate.claims:
            data = json.dumps(json.loads(data) | self.gate.claims).encode()
        self._head(response)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, response: http.client.HTTPResponse) -> None:
        upstream = self._way.sock
        self.gate.watches.add(upstream)
        try:
            self._head(response)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(http.client.HTTPException, ConnectionError, ssl.SSLError):
                while data := response.read1(65536):
                    if upstream in self.gate.hushed:
                        self.rfile.read(1)  # until the client gives up
                        self.close_connection = True
                        return
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            self.gate.watches.discard(upstream)
            self.gate.hushed.discard(upstream)
            self._way.close()

    def _head(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP | {"date", "server"}:
                self.send_header(name, value)
