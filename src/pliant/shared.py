"""The server that accounts of one machine share: its socket, the warden, the accounts that tasks run as."""

import logging
import os
import pwd
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.api.connections.listeners import open_port
from pliant.api.connections.peer import listen
from pliant.control.fractions import HandedOut, Unheld
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.launch.launcher import BoxLauncher
from pliant.engines.local.launch.warden import Owner, Warden
from pliant.model.machine import Node
from pliant.model.order import Start
from pliant.model.quantity import GPU
from pliant.model.workload import Workload
from pliant.site.trusted import Wrong
from pliant.site.warden import read
from pliant.store.errors import StoreError

log = logging.getLogger(__name__)

FIRST = 3
"""The first descriptor that a service manager passes (sd_listen_fds)."""


@dataclass(frozen=True, slots=True)
class SharedBox:
    place: Path  # socket at which all accounts reach the server
    conf: Path  # the warden's configuration file
    least: int  # lowest uid of a person
    work: Path  # parent of the users' folders
    runtime: Path  # the warden's runtime folder

    @classmethod
    def read(cls, place: Path, conf: Path) -> "SharedBox":
        """Reads the warden's configuration, which also holds for the server. Raises StoreError."""
        if os.geteuid() == 0:
            raise StoreError(
                "A shared server does not run as root: the warden has root, and starts what needs it. "
                "Start it as an account of its own: runuser -u pliant -- pliant serve --box"
            )
        try:
            said = read(conf)
        except Wrong as error:
            raise StoreError(f"{error} (--warden FILE names another configuration of the warden)") from error
        own = pwd.getpwuid(os.geteuid()).pw_name
        if said.server != own:
            raise StoreError(
                f"The warden takes orders of user {said.server} only ({conf}: server-user), and this is "
                f"{own}. Start it as {said.server}: runuser -u {said.server} -- pliant serve --box"
            )
        return cls(place.absolute(), conf.absolute(), said.least, said.work, said.runtime)

    @property
    def url(self) -> str:
        return f"unix:{self.place}"

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of the server's environment that tasks get; none identifies the server's account."""
        return {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}

    def launcher(self, layout: Layout) -> BoxLauncher:
        return BoxLauncher(
            layout,
            Warden(self.runtime / "sock"),
            self.work,
            owner,
            told={"PLIANT_ETC": str(self.conf.parent)},
        )

    def end_stray(self, layout: Layout, pid: int, start: int, number: int) -> None:
        """Ends a process that uses a GPU without a job; the warden checks it first. Raises OSError."""
        Warden(self.runtime / "sock").end_stray(layout.epoch(), pid, start, number)

    def listeners(self, console: int) -> list[socket.socket]:
        """Returns the Unix socket and, if there is one, the socket of the web console at 127.0.0.1.

        A service manager passes them; else they are made here, the second at port `console` unless that is 0.
        Raises StoreError.
        """
        if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") in ("1", "2"):
            return self._handed(int(os.environ["LISTEN_FDS"]))
        return [self._made(), *([open_port("127.0.0.1", console)] if console else [])]

    def _handed(self, count: int) -> list[socket.socket]:
        """The passed sockets, in the order of the unit."""
        handed = [socket.socket(fileno=FIRST + number) for number in range(count)]
        for number, (it, family) in enumerate(zip(handed, (socket.AF_UNIX, socket.AF_INET), strict=False)):
            if it.family != family or it.type != socket.SOCK_STREAM:
                raise StoreError(
                    f"Descriptor {FIRST + number} of the service manager is no {family.name} stream socket. "
                    "Write the units again: pliant box install"
                )
            os.set_inheritable(FIRST + number, False)
        for it in handed[1:]:
            if not it.getsockname()[0].startswith("127."):
                raise StoreError(f"The web console would be reached at {it.getsockname()[0]}, not only here.")
        return handed

    def _made(self) -> socket.socket:
        folder = self.place.parent
        try:
            seen = os.lstat(folder)
            if not stat.S_ISDIR(seen.st_mode):
                raise StoreError(f"{folder} is not a folder: the socket cannot be made in it.")
            if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o022:
                raise StoreError(
                    f"Others could put a socket of their own into {folder} (uid {seen.st_uid}, mode "
                    f"{stat.S_IMODE(seen.st_mode):04o}). Close it: chmod go-w {folder}"
                )
            return listen(self.place, 0o666)
        except OSError as error:
            raise StoreError(f"The socket {self.place} cannot be made: {error.strerror}.") from error


class WallsAlone(Unheld):
    """The device walls enforce whole GPUs; nothing enforces fractions on a shared machine yet."""

    def __init__(self) -> None:
        super().__init__("on a shared machine nothing enforces parts of a GPU")

    def hand_out(self, order: Start, node: Node, folder: Path, writable: str) -> HandedOut:
        if all(share.portion == GPU for share in order.placement.shares):
            return HandedOut()
        return super().hand_out(order, node, folder, writable)


def owner(workload: Workload) -> Owner | None:
    """The account that the workload runs as, as recorded at its submission."""
    return Owner(workload.owner.uid, workload.owner.name) if workload.owner is not None else None


def ready() -> None:
    """Tells a waiting service manager that the server answers (sd_notify)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
            teller.sendto(b"READY=1", "\0" + place[1:] if place.startswith("@") else place)
    except OSError as error:
        log.warning("the service manager at %s was not told that the server is ready: %s", place, error)
