"""The server's Unix socket, and who is at the other end of each of its connections: the kernel says so."""

import os
import socket
import struct
from asyncio import Transport
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

PEER = "peer_uid"
"""Key in the state of a request that came over the Unix socket: user id of the process that sent it."""

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


class PeerProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen when uvicorn is imported
    """Tells the application whose process a connection over the Unix socket is."""

    app_state: dict[str, Any]  # what requests find in their state

    def connection_made(self, transport: Transport) -> None:
        peer: Any = transport.get_extra_info("socket")
        if peer.family == socket.AF_UNIX:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            self.app_state = {**self.app_state, PEER: _UCRED.unpack(credentials)[1]}
        super().connection_made(transport)
