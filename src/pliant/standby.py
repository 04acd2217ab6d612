"""The standby server: it follows the store, answers reads and forwards writes until it must lead."""

import contextlib
import gc
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pliant import __version__
from pliant.api.app import ServerInfo, create_app
from pliant.api.connections.certificates import Certificates
from pliant.api.connections.forward import Forward, probed
from pliant.api.connections.front import Front
from pliant.api.connections.listeners import BACKLOG, PortTaken, open_port, taken
from pliant.api.connections.peer import listen
from pliant.control.clock import SteadyClock
from pliant.control.decider.child import ChildDecider
from pliant.control.follower import Follower
from pliant.control.lease import LOOKS, Vigil
from pliant.control.ports import StoreLost
from pliant.control.service import Service
from pliant.devices.simulated import SimulatedDevices
from pliant.engines.local.engine import LocalEngine
from pliant.store import Database, open_store
from pliant.store.folder import STANDBY, FolderInUse, StateFolder

log = logging.getLogger(__name__)

RETRY = 0.2
"""Seconds between two tries to get what another process holds."""

CLAIM = 10.0
"""Seconds that a server which stepped back waits for the new leader to release the standby server's lock."""


@dataclass(slots=True)
class Won:
    """The lead, as taken by a standby server."""

    epoch: int
    lock: int  # descriptor that holds the leader's lock
    sockets: list[socket.socket]  # the previous leader's listeners; [] if it never handed them over
    own: socket.socket  # the socket of this server while it stood by
    decider: ChildDecider | None = None  # a decider that runs already
    asked: int = 0  # number of the last request to the decider


@dataclass(slots=True)
class _Watch:
    """What a standby server keeps from one look to the next."""

    vigil: Vigil
    epoch: int = -1  # of the leader that handed over `sockets`
    sockets: list[socket.socket] = field(default_factory=list)


class Standby:
    """A server over a store in which another server leads."""

    def __init__(
        self,
        folder: StateFolder,
        store: Database,
        certificates: Certificates,
        port: int,
        lease: float,
    ) -> None:
        self._folder, self._store, self._certificates = folder, store, certificates
        self._host, self._port = certificates.host, port
        self._lease, self._pause = lease, lease / LOOKS
        self._watch = _Watch(Vigil(lease))
        self._won: Won | None = None

    def wait(self) -> Won | None:
        """The lead once it is taken; None if told to end. Raises FolderInUse, PortTaken, StoreError."""
        own = open_port(self._host, self._port)
        lock = self._lock()
        try:
            return self._stand_by(own)
        finally:
            self._folder.drop_record(os.getpid(), STANDBY)
            os.close(lock)

    def _lock(self) -> int:
        until = time.monotonic() + CLAIM
        while True:
            try:
                return self._folder.lock(take_over=False, role=STANDBY)
            except FolderInUse:
                stands, leads = self._folder.record(STANDBY), self._folder.record()
                if time.monotonic() > until or (stands and stands["pid"] != leads.get("pid")):
                    raise
                time.sleep(RETRY)  # that server leads by now, or another process only probed the lock

    def _stand_by(self, own: socket.socket) -> Won | None:
        url = self._certificates.url(own.getsockname()[1])
        began = time.time_ns() // 1_000_000
        clock = SteadyClock()
        devices = SimulatedDevices([], "")  # it runs no tasks
        engine = LocalEngine(self._folder.path, devices, clock=clock.now)
        decider = ChildDecider()
        follower = Follower(self._store, self._store, engine, clock, decider)
        try:
            follower.open()
            follower.start()
            info = ServerInfo(
                url=url,
                version=__version__,
                pid=os.getpid(),
                started=began,
                state=str(self._folder.path),
                epoch=follower.state.epoch,
                simulated=any(view.node.simulated for view in follower.board.nodes),
                role=STANDBY,
                standby=lambda: url,
            )
            app = create_app(
                Service(follower, {engine.name: engine}),
                token=self._folder.word("token"),
                secret=self._folder.secret("secret").encode(),
                server=info,
                shutdown=_elsewhere,
                backup=_elsewhere,
                bundle=bytes,
                closing=lambda: server.should_exit,
            )
            front = Forward(
                app,
                lambda: str(self._folder.record().get("url", "")),
                follower.catch_up,
                self._certificates.checking,
            )
            server = Front(front, self._certificates.context(), patience=1)
            own.listen(BACKLOG)
            self._folder.write_record(
                {
                    "url": url,
                    "pid": os.getpid(),
                    "version": __version__,
                    "lease": self._lease,
                    **self._certificates.record(),
                },
                STANDBY,
            )
            threading.Thread(
                target=self._look_out, args=(server, own), name="pliant-standby", daemon=True
            ).start()
            log.info("standby server at %s", url)
            gc.collect()
            gc.freeze()  # so that collections take no time once it leads
            server.run(sockets=[own.dup()])
            front.close()
            if self._won is not None:
                asked = follower.release()
                if asked is not None:
                    self._won.decider, self._won.asked = decider, asked
        finally:
            if self._won is None:
                follower.close()
            engine.close()
        return self._won

    def _look_out(self, server: Front, own: socket.socket) -> None:
        while not server.should_exit:
            try:
                self._won = self._look(own)
            except StoreLost as error:
                log.warning("the store does not answer: %s", error)
                self._watch.vigil.blind()
            except Exception as error:  # noqa: BLE001 - if this thread ended, nobody would ever lead
                log.error("it cannot be seen who leads: %r", error)
                self._watch.vigil.blind()
            if self._won is not None:
                server.should_exit = True
                return
            time.sleep(self._pause)

    def _look(self, own: socket.socket) -> Won | None:
        """The lead, if this server can take it; else None. Raises StoreError, OSError."""
        watch = self._watch
        lock: int | None = None
        with contextlib.suppress(FolderInUse):
            lock = self._folder.lock(take_over=False)  # the process that led is gone
        try:
            seen = self._store.seen()
            silent = watch.vigil.look(seen, time.monotonic())
            if lock is None and not silent:
                if watch.epoch != seen.epoch and (sockets := taken(self._folder.listeners)):
                    for old in watch.sockets:
                        old.close()
                    watch.epoch, watch.sockets = seen.epoch, sockets
                return None
            epoch = self._store.claim(seen)
            if epoch is None:
                return None
            log.warning("takes the lead with epoch %d: the server that led %s", epoch, _how(lock))
            held = self._folder.lock(take_over=True) if lock is None else lock
            lock = None
            return Won(epoch, held, watch.sockets, own)
        finally:
            if lock is not None:
                os.close(lock)


class Replica:
    """One of several servers over one database, each on its own machine: it answers probes until it leads.

    Only the lease shows whether another server leads.
    """

    def __init__(
        self, folder: StateFolder, store: Database, certificates: Certificates, port: int, lease: float
    ) -> None:
        self._folder, self._store, self._certificates = folder, store, certificates
        self._port, self._pause, self._vigil = port, lease / LOOKS, Vigil(lease)
        self._won: Won | None = None

    def wait(self) -> Won | None:
        """The lead once it is taken; None if told to end. Raises FolderInUse, PortTaken, StoreError."""
        lock = self._folder.lock(take_over=False)
        own = open_port(self._certificates.host, self._port)
        own.listen(BACKLOG)
        server = Front(probed, self._certificates.context(), patience=1)

        def look_out() -> None:
            while not server.should_exit:
                try:
                    seen = self._store.seen()
                    epoch = self._store.claim(seen) if self._vigil.look(seen, time.monotonic()) else None
                except StoreLost as error:
                    log.warning("the store does not answer: %s", error)
                    self._vigil.blind()
                except Exception as error:  # noqa: BLE001 - if this thread ended, nobody would ever lead
                    log.error("it cannot be seen who leads: %r", error)
                    self._vigil.blind()
                else:
                    if epoch is not None:
                        log.warning("takes the lead with epoch %d", epoch)
                        self._won = Won(epoch, lock, [own], listen(self._folder.socket))
                        server.should_exit = True
                        return
                time.sleep(self._pause)

        threading.Thread(target=look_out, name="pliant-replica", daemon=True).start()
        server.run(sockets=[own.dup()])
        return self._won


def _how(lock: int | None) -> str:
    return "does not renew its lease" if lock is None else "has ended"


def _elsewhere(_: object) -> None:
    raise AssertionError("such requests are handed on")  # see pliant.api.connections.forward.HANDED_ON


def opened(address: str | Path, *, patient: bool) -> Database:
    """The store; with `patient`, waits until the database answers. Raises what `open_store` raises."""
    while True:
        try:
            return open_store(address)
        except StoreLost as error:
            if not patient:
                raise
            log.warning("%s", error)
            time.sleep(RETRY)


def reopened(folder: StateFolder, host: str) -> list[socket.socket]:
    """New sockets in place of those that an ended server never handed over."""
    port = urlsplit(str(folder.record().get("url", ""))).port or 0
    try:
        listener = open_port(host, port)
    except PortTaken as error:
        log.warning("%s", error)
        listener = open_port(host, 0)
    return [listener, listen(folder.socket)]


def reap_inherited() -> None:
    """Reaps the children that this process had before it stepped back, as they end."""
    try:
        words = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except FileNotFoundError:  # a kernel without that file
        words = []
    children = [int(word) for word in words]

    def run() -> None:
        while children:
            for child in [*children]:
                try:
                    ended, _ = os.waitpid(child, os.WNOHANG)
                except ChildProcessError:
                    ended = child
                if ended:
                    children.remove(child)
            time.sleep(1)

    if children:
        threading.Thread(target=run, name="pliant-reap", daemon=True).start()
