"""Connections of clients: finds the account at the other end of the Unix socket, and closes slow ones."""

import asyncio
import json
import logging
import os
import socket
import struct
from asyncio import Transport
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PEER = "peer_uid"
"""Key in the state of a request that came over the Unix socket: user id of the process that sent it."""

ARRIVES = 30
"""Seconds within which a whole request must arrive, from the connection or its first byte."""

MOST_HEAD = 2**16
"""Largest head of a request, in bytes."""

FAREWELL = 1.0
"""Seconds for which a refused connection stays, so that its client reads why."""

log = logging.getLogger(__name__)

_UCRED = struct.Struct("3i")  # pid, uid, gid


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """A socket bound to that path; replaces one that a dead server left. Raises OSError.

    It is bound through the descriptor of its folder: the kernel takes paths of at most 107 bytes.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(mode)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


class PeerProtocol(HttpToolsProtocol):
    """Tells the application the account at the Unix socket's other end; closes slow or endless requests."""

    app_state: dict[str, Any]  # what requests find in their state
    most: ClassVar[int] = 0  # connections of one account at a time; 0: no limit
    counted: ClassVar[Counter[int]] = Counter()  # by uid; root is not counted
    _counts_for: int = 0  # the uid for which this one counts
    _refused: bool = False
    _begun: bool = False  # part of a request has arrived, not all of it
    _head: int | None = None  # bytes of its head that have arrived; None: it is complete, or not begun

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        peer: Any = transport.get_extra_info("socket")
        if peer.family == socket.AF_UNIX:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            uid = _UCRED.unpack(credentials)[1]
            self.app_state = {**self.app_state, PEER: uid}
            if self.most and uid:
                if self.counted[uid] >= self.most:
                    self._too_many(transport, uid)
                    return
                self.counted[uid] += 1
                self._counts_for = uid
        super().connection_made(transport)
        self._arriving: asyncio.TimerHandle | None = self.loop.call_later(ARRIVES, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MOST_HEAD and not self.transport.is_closing():
                self.send_400_response(f"The head of a request may have {MOST_HEAD} bytes.")
        if not self._begun or self.transport.get_protocol() is not self:  # it may be a web socket now
            self._arrived()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(ARRIVES, self._too_slow)

    # callbacks of the parser
    def on_message_begin(self) -> None:
        self._begun, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._begun = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refused:
            return
        if self._counts_for:
            self.counted[self._counts_for] -= 1
            if not self.counted[self._counts_for]:
                del self.counted[self._counts_for]
            self._counts_for = 0
        self._arrived()
        super().connection_lost(exc)

    def _too_many(self, transport: Transport, uid: int) -> None:
        """Answer before anything is read, read nothing, and close soon."""
        self._refused = True
        log.warning("user %d has %d connections: one more is refused", uid, self.most)
        body = json.dumps(
            {
                "code": 429,
                "message": f"You have {self.most} connections to the server; the maximum for one user.",
                "details": "Close one first, such as a command that follows a log.",
                "reason": "user-limit",
            }
        ).encode()
        head = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n"
        kind = "Content-Type: application/problem+json\r\n"
        transport.write(f"{head}{kind}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        transport.write_eof()
        self.loop.call_later(FAREWELL, transport.close)  # else the client could not finish its request

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        """Close the connection: its request did not arrive in time."""
        log.warning("a request was not sent within %d s: its connection is closed", ARRIVES)
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
        self.transport.close()


def limited(most: int) -> type[PeerProtocol]:
    """A PeerProtocol that allows that many connections of one account at a time; 0: no limit."""
    return type("LimitedProtocol", (PeerProtocol,), {"most": most, "counted": Counter()})
