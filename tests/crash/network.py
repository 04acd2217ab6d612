"""The connection of servers to their database, which a test cuts for single processes."""

import contextlib
import errno
import os
import select
import socket
import struct
import threading
import time
from pathlib import Path

NAME = ".s.PGSQL.5432"
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)


class Network:
    """Passes bytes between clients and the database's socket; clients that are cut off hear nothing."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.folder, self._database = folder, database / NAME
        self._cut: set[int] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / NAME))
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, pid: int) -> None:
        """Silently drops the process's traffic from now on."""
        self._cut.add(pid)

    def heal(self) -> None:
        """Lets new connections pass; closes those that were cut."""
        self._cut.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if error.errno in SHORT:  # short of descriptors or memory: try again in a moment
                    time.sleep(0.05)
                    continue
                return
            pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            try:
                threading.Thread(target=self._serve, args=(client, pid), daemon=True).start()
            except RuntimeError:  # no thread could start: the client may connect again
                client.close()

    def _serve(self, client: socket.socket, pid: int) -> None:
        with client, socket.socket(socket.AF_UNIX) as database, contextlib.suppress(OSError):
            if not self._dark(pid):
                database.connect(str(self._database))
                self._pass(client, database, pid)
            while self._dark(pid) and os.path.exists(f"/proc/{pid}"):
                time.sleep(0.05)

    def _pass(self, client: socket.socket, database: socket.socket, pid: int) -> None:
        other = {client: database, database: client}
        while not self._dark(pid):
            for ready in select.select([client, database], [], [], 0.05)[0]:
                data = ready.recv(65536)
                if not data:
                    return
                if not self._dark(pid):
                    other[ready].sendall(data)

    def _dark(self, pid: int) -> bool:
        return pid in self._cut
