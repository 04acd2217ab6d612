"""The sockets on which the server listens, and how a standby gets copies of them.

Both processes then hold the same open sockets, and only the leader accepts. When it ends or hangs, clients
wait a moment, and the other one answers them at the same address.
"""

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

from pliant.api.connections.peer import listen
from pliant.store.errors import StoreError

log = logging.getLogger(__name__)

BACKLOG = 2048
PATIENCE = 2.0
"""Seconds that each side waits for the other while sockets are handed over."""

_UCRED = struct.Struct("3i")  # pid, uid, gid
_MOST = 8  # sockets that are handed over at once


class PortTaken(StoreError):
    """The port that was asked for is in use, or may not be used."""


def open_port(host: str, port: int, before: int = 0) -> socket.socket:
    """A socket bound to that address; port 0: the port `before`, or a free one. Raises PortTaken."""
    if not port and before:
        try:
            return open_port(host, before)
        except PortTaken:
            return open_port(host, 0)
    # asyncio disables delays only on sockets with the protocol TCP; else kept connections wait 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"Port {port} on {host} cannot be used: {error.strerror}. "
            "Choose another with --port, or leave it out to get a free one."
        ) from error
    return listener


class Offer:
    """Gives copies of sockets to processes of this account that connect to a path, on a thread of its own."""

    def __init__(self, path: Path, sockets: Sequence[socket.socket]) -> None:
        """Raises OSError."""
        self._sockets = sockets
        self._listener = listen(path)
        self._listener.listen()
        threading.Thread(target=self._give, name="pliant-listeners", daemon=True).start()

    def _give(self) -> None:
        while True:
            try:
                asker, _ = self._listener.accept()
            except OSError:  # closed
                return
            with asker, contextlib.suppress(OSError):  # a process that gets none asks again
                asker.settimeout(PATIENCE)
                credentials = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
                if _UCRED.unpack(credentials)[1] == os.geteuid():
                    socket.send_fds(asker, [b"."], [listener.fileno() for listener in self._sockets])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()


def taken(path: Path) -> list[socket.socket]:
    """Copies of the leader's sockets; [] if it does not give them now."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
            asker.settimeout(PATIENCE)
            asker.connect(f"/proc/self/fd/{folder}/{path.name}")
            _, handles, _, _ = socket.recv_fds(asker, 1, _MOST)
    except OSError as error:
        log.debug("no sockets were handed over: %s", error)
        return []
    finally:
        os.close(folder)
    return [socket.socket(fileno=handle) for handle in handles]
