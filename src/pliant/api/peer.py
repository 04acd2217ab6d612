"""Connections of clients: who is at the other end of the Unix socket, by the kernel, and who is too slow."""

import asyncio
import logging
import os
import socket
import struct
from asyncio import Transport
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

PEER = "peer_uid"
"""Key in the state of a request that came over the Unix socket: user id of the process that sent it."""

ARRIVES = 30
"""Seconds within which a request has to come, from the connection or its first byte to its last."""

log = logging.getLogger(__name__)

_UCRED = struct.Struct("3i")  # pid, uid, gid


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """A socket at that path, in the place of one that a dead server left. Raises OSError.

    It is bound by way of its folder's descriptor: the kernel takes paths of 107 bytes only.
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


class PeerProtocol(H11Protocol):
    """Tells the application whose process a connection over the Unix socket is; waits for no slow request."""

    app_state: dict[str, Any]  # what requests find in their state

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        peer: Any = transport.get_extra_info("socket")
        if peer.family == socket.AF_UNIX:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            self.app_state = {**self.app_state, PEER: _UCRED.unpack(credentials)[1]}
        super().connection_made(transport)
        self._arriving: asyncio.TimerHandle | None = self.loop.call_later(ARRIVES, self._too_slow)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: Any = self.cycle  # None before the first request
        answering = cycle is not None and not cycle.response_complete
        begun = cycle.more_body if answering else bool(self.conn.trailing_data[0])
        if not begun or self.transport.get_protocol() is not self:  # it may be a web socket now
            self._arrived()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(ARRIVES, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        """What its sender began must have come by now."""
        log.warning("a request was not sent within %d s: its connection is closed", ARRIVES)
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
        self.transport.close()
