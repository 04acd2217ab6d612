"""HTTP on the standard library: calls share one kept connection, each stream opens its own."""

import contextlib
import http.client
import json
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from weakref import WeakSet

from pliant.client.errors import BadRequest, PliantError, Unreachable, decoded, from_answer
from pliant.wire import TROUBLE

CONNECT_TIMEOUT = 5.0  # seconds
ANSWER_TIMEOUT = 30.0  # seconds
PROOF_TIMEOUT = 30.0  # seconds; a busy machine may need a while
MOST_PROOF = 16384  # most bytes read of an answer whose server has not proven itself yet
NOT_LEADING = "not-leading"
"""Reason code of a server that did nothing because another server leads or is taking the lead."""

UNTRUSTED = "Name the server's authority: `pliant login --server URL --ca FILE`, or PLIANT_CA=FILE."

TURN = 0.1  # seconds between two requests during a change of the leading server
KEPT_FOR = 3.0  # seconds; servers close idle connections after 5

_UCRED = struct.Struct("3i")  # pid, uid, gid of the other end of a Unix socket
_ROOT = 0  # trusted: root can read every file of this account anyway

Query = Iterable[tuple[str, str | int | bool | None]]


def segment(text: str) -> str:
    """A name or id, quoted as one segment of a URL path."""
    return quote(text, safe="")


class Transport:
    """Calls and streams to one server. It is not thread-safe: give each thread its own `twin()`."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout: float = ANSWER_TIMEOUT,
        socket: str | None = None,
        authority: str | None = None,
    ) -> None:
        """`socket`: path of the server's Unix socket, used instead of the URL; no token is sent to it.

        A URL `unix:PATH` is a socket too; a token is sent there once the kernel confirms whose it is.
        `authority`: file of the certificates that verify a server at https://; None: the system's.
        """
        there = url.removeprefix("unix:") if url.startswith("unix:") else None
        try:
            parts = urlsplit(url if there is None else "http://localhost")
            host = parts.hostname or ""
            self._host = host if host.isascii() else host.encode("idna").decode()
            self._port = parts.port
        except ValueError as error:
            raise BadRequest(f"{url!r} is not a server address: {error}.") from error
        if parts.scheme not in ("http", "https") or not host:
            raise BadRequest(f"{url!r} is not a server address.", "It looks like http://127.0.0.1:8080.")
        self.url = url
        self.socket = socket or there
        self.token = None if socket else token
        self.authority = authority
        self._timeout = timeout
        self._secure = parts.scheme == "https" and socket is None
        self._prefix = parts.path.rstrip("/")
        self._kept: http.client.HTTPConnection | None = None
        self._streaming: WeakSet[Any] = WeakSet()  # sockets
        self._aborted = False
        self.trouble = ""  # the problem that the server reported with its last answer
        self._used = 0.0  # monotonic seconds of the last answer on `_kept`

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """Send a request and return the decoded JSON answer (None if empty). Raises PliantError.

        A `body` of type bytes is sent as it is. A `repeatable` call (by default GET, PUT and DELETE) is sent
        once more if the connection breaks.
        """
        if repeatable is None:
            repeatable = method in ("GET", "PUT", "DELETE")
        until = time.monotonic() + self._timeout
        while True:
            try:
                return self._once(method, path, query, body, headers, repeatable)
            except Unreachable as error:  # while the lead changes, the server that was asked does nothing
                if error.reason != NOT_LEADING or time.monotonic() > until:
                    raise
                time.sleep(TURN)

    def _once(
        self,
        method: str,
        path: str,
        query: Query,
        body: Any,
        headers: Mapping[str, str] | None,
        repeatable: bool,
    ) -> Any:
        data, sent = self._encode(body, headers)
        target = self._target(path, query)
        for attempt in (1, 2):
            connection = self._connection()
            try:
                connection.request(method, target, data, sent)
                response = connection.getresponse()
                payload = response.read()
            except TimeoutError as error:
                self.close()
                raise Unreachable(
                    f"The server at {self.url} does not answer.",
                    "On its own machine `pliant up --take-over` replaces it.",
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if repeatable and attempt == 1:
                    continue
                raise Unreachable(f"The connection to {self.url} was lost: {error}.") from error
            self._used = time.monotonic()
            self.trouble = response.headers.get(TROUBLE, "")
            if response.will_close:
                self.close()
            return decoded(response.status, payload, f"{method} {path}")

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
    ) -> "Stream":
        """Send a request on a new connection; the returned Stream yields the answer as it arrives."""
        if self._aborted:
            raise Unreachable(f"The connection to {self.url} was broken off.")
        connection = self._connect(CONNECT_TIMEOUT)
        data, sent = self._encode(None, headers)
        try:
            connection.request(method, self._target(path, query), data, sent)
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout)
                self._streaming.add(connection.sock)
            response = connection.getresponse()
            if response.status >= 300:
                payload = response.read()
                connection.close()
                decoded(response.status, payload, f"{method} {path}")
                raise PliantError(f"The server answered {response.status} to {method} {path}")
            if connection.sock is not None:
                connection.sock.settimeout(None)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"The connection to {self.url} was lost: {error}.") from error
        return Stream(connection, response, self.url)

    def twin(self) -> "Transport":
        """Another transport to the same server, for another thread."""
        return Transport(
            self.url, self.token, timeout=self._timeout, socket=self.socket, authority=self.authority
        )

    def abort(self) -> None:
        """Break off all streams and open no further one. Any thread may call it."""
        self._aborted = True
        for each in [*self._streaming]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _connection(self) -> http.client.HTTPConnection:
        """The kept connection; a new one after KEPT_FOR seconds idle, when the server may be closing it."""
        if self._kept is not None and time.monotonic() - self._used > KEPT_FOR:
            self.close()
        if self._kept is None:
            self._kept = self._connect(self._timeout)
        return self._kept

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        port = self._port or (443 if self._secure else 80)
        connection = http.client.HTTPConnection(self._host, port, timeout=CONNECT_TIMEOUT)
        try:
            if self.socket is not None:
                connection.sock = _local_socket(self.socket)
            elif self._secure:
                connection.sock = self._sealed_socket(port)
            else:
                connection.sock = _plain_socket(self._host, connection.port)
        except OSError as error:
            self._tell_untrusted(error)
            why = error.strerror or str(error)
            raise Unreachable(
                f"No server answers at {self.url} ({why.lower()}).",
                "Look with `pliant status`; start it with `pliant up`.",
            ) from error
        connection.auto_open = 0  # a reconnect could reach another program, which has proven nothing
        if self.token and not self._secure and self.socket is None:
            self._demand_proof(connection)
        connection.sock.settimeout(timeout)
        return connection

    def _sealed_socket(self, port: int) -> socket.socket:
        """A TLS connection whose server has shown a trusted certificate. Raises OSError, PliantError.

        http.client has no HTTPSConnection if it was imported without TLS, which saves start-up time.
        """
        from pliant.client.trust import trusting

        checks = trusting(self.authority)
        plain = _plain_socket(self._host, port)
        try:
            plain.settimeout(PROOF_TIMEOUT)
            return checks.wrap_socket(plain, server_hostname=self._host)
        except BaseException:
            plain.close()
            raise

    def _tell_untrusted(self, error: OSError) -> None:
        """Raise Unreachable if `error` means that the server at https:// is not trusted or speaks no TLS."""
        if not self._secure:
            return
        from pliant.client.trust import untrusted

        if why := untrusted(error):
            raise Unreachable(f"{self.url} {why} No token was sent.", UNTRUSTED) from error

    def _demand_proof(self, connection: http.client.HTTPConnection) -> None:
        """Make the server prove that it knows the token, unsent so far. Raises Unauthorized, Unreachable."""
        import hmac

        from pliant.wire.proof import PATH, key_of, named, proof

        token, nonce = self.token or "", os.urandom(16).hex()
        host, port = connection.sock.getpeername()[:2]
        if host != "::1" and not host.startswith("127."):
            connection.close()
            raise Unreachable(
                f"{self.url} is another machine and the connection is not encrypted: no token was sent.",
                "Use https://, or forward a port: ssh -L PORT:127.0.0.1:PORT HOST",
            )
        host, port = _forwarded_to(host, port)
        target = f"{self._prefix}{PATH}?{urlencode({'token': named(token), 'nonce': nonce})}"
        try:
            connection.sock.settimeout(PROOF_TIMEOUT)
            connection.request("GET", target, headers={"Accept": "application/json"})
            response = connection.getresponse()
            payload = response.read(MOST_PROOF)
            given = str(_object(payload).get("proof")).encode()
            good = hmac.compare_digest(given, proof(key_of(token), nonce, host, port).encode())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(
                f"The connection to {self.url} was lost: {str(error) or 'it ended'}. No token was sent.",
                "Look with `pliant status`; start it with `pliant up`.",
            ) from error
        if response.status == 401:
            connection.close()
            raise from_answer(401, _object(payload), f"GET {PATH}")
        if not good or not response.isclosed() or connection.sock is None:
            connection.close()
            raise Unreachable(
                f"{self.url} is served by a program that has not proven to be this token's server. "
                "The token was not sent.",
                "If the address is a forwarded port, name the server's own: PLIANT_SERVER_PORT=PORT",
            )

    def _target(self, path: str, query: Query) -> str:
        pairs = [
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in query
            if value is not None
        ]
        return f"{self._prefix}{path}?{urlencode(pairs)}" if pairs else f"{self._prefix}{path}"

    def _encode(self, body: Any, headers: Mapping[str, str] | None) -> tuple[bytes | None, dict[str, str]]:
        sent = {"Accept": "application/json", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        if isinstance(body, bytes):
            sent["Content-Type"] = "application/octet-stream"
            return body, sent
        if body is None:
            return None, sent
        sent["Content-Type"] = "application/json"
        return json.dumps(body).encode(), sent


def _forwarded_to(host: str, port: int) -> tuple[str, int]:
    """The server's own (host, port) if PLIANT_SERVER_PORT says that this port is forwarded to it."""
    far = os.environ.get("PLIANT_SERVER_PORT", "")
    return ("127.0.0.1", int(far)) if far.isdecimal() else (host, port)


def _plain_socket(host: str, port: int) -> socket.socket:
    # As bytes: for a str the interpreter would load its tables of international names.
    name: Any = host.encode("ascii")
    made = socket.create_connection((name, port), CONNECT_TIMEOUT)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _local_socket(path: str) -> socket.socket:
    """A connection to a server of this account, root or the shared server's account. OSError, Unreachable."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:  # through the folder's descriptor: the kernel takes paths of at most 107 bytes
        made.settimeout(CONNECT_TIMEOUT)
        made.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        credentials = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        owner = _UCRED.unpack(credentials)[1]
        if owner not in (_ROOT, os.geteuid()) and not _of_the_server(owner):
            from pliant.client.accounts import account_name

            raise Unreachable(
                f"{path} is served by user {account_name(owner)}.", "Start a server of your own: pliant up"
            )
    except BaseException:
        made.close()
        raise
    finally:
        os.close(folder)
    return made


def _of_the_server(uid: int) -> bool:
    """True if `uid` is the account of the server that all accounts of this machine share."""
    from pliant.client.accounts import server_account

    return uid == server_account()


class Stream:
    """A streamed answer: iterating yields pieces of bytes as they arrive, `lines()` yields whole lines."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, url: str
    ) -> None:
        self._connection = connection
        self._response = response
        self._url = url

    def __iter__(self) -> Iterator[bytes]:
        return self._until_end(lambda: self._response.read1(65536))

    def lines(self) -> Iterator[str]:
        return (
            line.decode("utf-8", "replace").rstrip("\r\n")
            for line in self._until_end(self._response.readline)
        )

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def _until_end(self, read: Any) -> Iterator[bytes]:
        try:
            while piece := read():
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"The connection to {self._url} was lost: {error}.") from error
        finally:
            self.close()


def _object(payload: bytes) -> dict[str, Any]:
    """The payload as a JSON object; {} if it is anything else."""
    try:
        value = json.loads(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
