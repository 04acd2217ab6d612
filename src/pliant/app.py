"""Composition root: builds the server from its parts, runs it and shuts it down. See options.py."""

import gc

gc.disable()  # imports create many objects and no garbage: collecting would take a tenth of the start
import pliant.api.pydantic_defaults  # before FastAPI

# isort: split
import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import pliant.compiled  # noqa: F401 - before all that imports the core
from pliant import __version__

# isort: split
from pliant.api.admission import Admission
from pliant.api.app import ServerInfo, create_app
from pliant.api.connections.certificates import Certificates
from pliant.api.connections.forward import Doubt
from pliant.api.connections.front import Front
from pliant.api.connections.listeners import BACKLOG, Offer, PortTaken, open_port
from pliant.api.connections.peer import PEER, listen
from pliant.api.identity.following import Following
from pliant.backend import Surroundings, make_backend, take_in_pods
from pliant.console.mount import Alone, Console
from pliant.control.clock import SteadyClock
from pliant.control.decider.child import ChildDecider
from pliant.control.halts import Halts
from pliant.control.housekeeping import keep_house
from pliant.control.lease import Renewal
from pliant.control.loop import Loop
from pliant.control.ports import StaleEpoch, Store
from pliant.control.service import Service
from pliant.control.state.draft import Draft
from pliant.devices.discovery import Found
from pliant.devices.strays import Strays
from pliant.engines.kube.make import kube_service
from pliant.engines.local.folder.layout import Layout, LayoutError
from pliant.engines.local.launch.launcher import LOG_KEEP, LOG_MAX, BoxLauncher, OwnLauncher
from pliant.engines.local.launch.supervisor import command
from pliant.engines.local.launch.warden import Away
from pliant.engines.local.observe.processes import started
from pliant.engines.local.strangers import end as end_strangers
from pliant.engines.local.strangers import strangers
from pliant.examination import examined, findings
from pliant.model.event import EventKind
from pliant.model.machine import Cluster
from pliant.model.workload import AttemptId
from pliant.notices.sender import Sender
from pliant.options import Options, parsed
from pliant.shared import ready
from pliant.site.openid import provider_of
from pliant.standby import Replica, Standby, Won, opened, reap_inherited, reopened
from pliant.store import UNSEALED, Database, StoreBusy, StoreError, open_store
from pliant.store.bundle import bundle
from pliant.store.ended import brought_along
from pliant.store.folder import FolderInUse, StateFolder
from pliant.store.recovery import Unknown, compare, newest, reconcile, restore_backup, seal_old
from pliant.store.ring import Ring
from pliant.store.server_log import ServerLog

gc.freeze()  # objects made by the imports stay; the collector never scans them
gc.enable()

log = logging.getLogger("pliant")

OK, FAILED, USAGE, CONFLICT, TAKEN_OVER, PORT_TAKEN = 0, 1, 2, 5, 9, 10
"""Exit codes; the first four mean the same in the CLI. TAKEN_OVER: another server has taken the lead."""

STEPPED_BACK = "PLIANT_STEPPED_BACK"
"""Environment variable: set if this process was the leader and has become a standby server."""

TURN = 0.001
"""Switch interval of the interpreter in seconds. With Python's default, 0.005, the event loop would wait
several times per answer while a cycle decides."""


class Server:
    """One server over one state folder."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = StateFolder(options.state)
        self.certificates = Certificates(options.state, options.host)
        self.began = time.time_ns() // 1_000_000
        self._lock = -1
        self._stop_tasks = False

    def run(self) -> int:
        """Runs until it is told to stop; returns the exit code."""
        sys.setswitchinterval(TURN)
        self.folder.prepare()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each live attempt needs a descriptor
        if self.options.standby:
            return self._stand_by()
        if box := self.options.box:
            sockets = box.listeners(self.options.console)
        else:
            sockets = [open_port(self.options.host, self.options.port, self.folder.port)]
        replaced = int(self.folder.record().get("pid", 0)) if self.options.take_over else 0
        self._lock = self.folder.lock(take_over=self.options.take_over)
        self.certificates.choose(self.options.tls, self.options.given)
        store = open_store(address := self.folder.adopt(self.options.database))
        self.folder.choose(address if isinstance(address, str) else None)
        try:
            self._end_writer(store, replaced)
            return self._serve(sockets if box else [*sockets, listen(self.folder.socket)], store)
        finally:
            store.close()
            self.folder.drop_record(os.getpid())

    def _stand_by(self) -> int:
        """Stands by until it leads, then serves until it is told to stop; returns the exit code."""
        if self.options.replica:
            self.certificates.choose(self.options.tls, self.options.given)
            address = self.folder.adopt(self.options.database)
            self.folder.choose(address if isinstance(address, str) else None)
        if isinstance(self.folder.address, Path):
            raise StoreError(
                f"{self.folder.path} keeps its state in a file, which one server uses: "
                "take it to PostgreSQL with `pliant store move postgresql://USER@HOST/DATABASE`."
            )
        reap_inherited()
        store = opened(self.folder.address, patient=STEPPED_BACK in os.environ)
        try:
            port, lease = self.options.port, self.options.lease
            kind = Replica if self.options.replica else Standby
            won = kind(self.folder, store, self.certificates, port, lease).wait()
            if won is None:
                return OK
            self._lock = won.lock
            sockets = won.sockets or reopened(self.folder, self.options.host)
            return self._serve([*sockets, won.own], store, won)
        except (StoreError, StaleEpoch) as error:
            if self._lock < 0:
                raise
            log.error("the lead was taken and could not be kept: %s", error)
            self._step_back()
        finally:
            store.close()
            self.folder.drop_record(os.getpid())

    def _end_writer(self, store: Store, replaced: int) -> None:
        """Kills the server that is replaced if it hangs inside a transaction and so blocks all others."""
        if not replaced:
            return
        try:
            store.lead()
        except StoreBusy:
            log.warning("the server that is replaced (pid %d) hangs: it is killed", replaced)
            os.kill(replaced, signal.SIGKILL)

    def _serve(self, sockets: Sequence[socket.socket], store: Database, won: Won | None = None) -> int:
        """Leads until it is told to stop. The URL names the first of the sockets."""
        options = self.options
        box, layout = options.box, Layout(options.state)
        pages = f"http://127.0.0.1:{sockets[1].getsockname()[1]}" if box and len(sockets) > 1 else ""
        tls = None if box else self.certificates.context()
        self.url = box.url if box else self.certificates.url(sockets[0].getsockname()[1])
        secret = self.folder.secret("secret").encode()
        token = None if box else self.folder.word("token")
        launcher = box.launcher(layout) if box else OwnLauncher(layout, command()[0], LOG_MAX, LOG_KEEP)
        above = max(layout.epoch(), launcher.highest() if isinstance(launcher, BoxLauncher) else 0)
        look = partial(strangers, layout, launcher)
        end = partial(end_strangers, layout, launcher)
        # From now on: else two servers that open slowly on a busy machine would replace each other for ever.
        renewal = self._renewal(store, won.epoch) if won is not None else None
        saved = reconcile(store, look, end, options.unknown, above=above, now=self.began)
        saved = take_in_pods(store, saved, options, self.began)
        cluster = saved.cluster or Cluster(str(uuid.uuid4()), created=self.began, version=__version__)
        halts = Halts(os.environ.get("PLIANT_HALT", ""))
        clock = SteadyClock(newest(saved))
        backend = make_backend(
            options,
            saved,
            cluster,
            launcher,
            clock,
            halts,
            Surroundings(
                url=lambda: self.url,
                authority=str(self.certificates.trusted) if tls is not None else "",
                secret=secret,
                world=lambda: self.loop.world,
                project_name=self._project_name,
                report=self._tell,
            ),
        )
        engine, found = backend.engine, backend.found
        if backend.above:
            store.outrank(backend.above)
        engines = {engine.name: engine}
        ring = Ring(options.state / "replay")
        seal_old(engine, saved)
        ender = partial(box.end_stray, layout) if box and options.end_strays else None
        self._strays = Strays(found.processes, backend.owner, started, ender)
        decider = (won.decider if won else None) or ChildDecider()
        self.loop = Loop(store, engines, clock, decider=decider, recorder=ring, halt=halts, fatal=self._fatal)
        self.loop.open(won.epoch if won else None, won.asked if won else 0)
        if self._shared and renewal is None:
            renewal = self._renewal(store, self.loop.state.epoch)
        if renewal is not None:
            self.loop.troubles.append(lambda: renewal.trouble)
        self.loop.troubles.append(backend.trouble)
        self.loop.start()
        service = Service(self.loop, engines)
        openid = options.openid or (not box and saved.settings.get("openid")) or "none"
        kept = {**backend.kept, "openid": openid, UNSEALED: ""}
        service.bootstrap(options.pending, cluster, kept)
        if found.notice:
            log.warning(found.notice)
        app = create_app(
            service,
            token=token or partial(secrets.token_urlsafe, 32),  # a box accepts no token
            renew=None if token is None else token.renew,
            secret=secret,
            server=self._info(found),
            shutdown=self._shutdown,
            hosts=self.certificates.hosts,
            backup=store.backup,
            bundle=lambda: bundle(self.loop, store, self.folder.log),
            scarce=self.folder.scarce,
            closing=lambda: self._front.should_exit,
            box=box is not None,
            least=box.least if box else 0,
            bounds=options.bounds,
            provider=provider_of(openid, rooted=box is not None, demanded=options.openid is not None),
            halt=halts,
            beside=lambda below: Console(
                below,
                app,
                secret=secret,
                peer=PEER,
                ended=brought_along(self.folder, service.logouts),
                news=app.state.context.pulse.listen,
                home=pages,
            ),
        )
        asked = Doubt(app, lambda: renewal.doubtful) if renewal else Alone(app, PEER) if box else app
        way = Admission(asked, backend.admit) if backend.admit is not None else asked
        self._front = Front(way, tls, patience=3, connections=options.connections)
        for listener in sockets:
            listener.listen(BACKLOG)
        offer = Offer(self.folder.listeners, sockets[:2]) if self._shared else None
        self._write_record(found)
        keep_house(service, store)
        Sender(service.notices, service.now).start()
        if app.state.context.logins is not None:
            Following(app.state.context).start()
        self._strays.start()
        end_resources = kube_service(backend.kubeconfig, cluster.uuid, service, engine)
        gc.collect()
        ready()
        gc.freeze()  # a collection over the objects that exist now would stop everything for 50 ms
        self._front.run(sockets=[*sockets])
        end_resources()
        if self._stop_tasks:
            self._drain()
        if renewal is not None and offer is not None:
            renewal.close()
            offer.close()
        self.loop.close()
        engine.close()
        return OK

    def _renewal(self, store: Database, epoch: int) -> Renewal:
        made = Renewal(store, epoch, self.options.lease, self._fatal, Layout(self.options.state).epoch)
        made.start()
        return made

    @property
    def _shared(self) -> bool:
        """True if a second server may use the same store."""
        return not isinstance(self.folder.address, Path)

    def _tell(self, attempt: AttemptId, text: str) -> None:
        """Adds a warning of the node about an attempt to the workload's history."""
        message = f"{attempt.task}: {text}."

        def run(draft: Draft) -> None:
            draft.event(attempt.workload, EventKind.WARNING, message, who="engine", attempt=str(attempt))

        log.warning("%s: %s", attempt, text)
        self.loop.submit(run)

    def _info(self, found: Found) -> ServerInfo:
        return ServerInfo(
            url=self.url,
            version=__version__,
            pid=os.getpid(),
            started=self.began,
            state=str(self.options.state),
            epoch=self.loop.state.epoch,
            simulated=found.devices.simulated,
            standby=lambda: self.folder.standby().get("url"),
            notice=found.notice,
            strays=lambda: self._strays.found,
            findings=lambda: findings(self.options.state, found.devices, self.options.box is not None),
        )

    def _write_record(self, found: Found) -> None:
        if not (box := self.options.box):
            self.folder.write("port", f"{self.url.rpartition(':')[2]}\n", mode=0o600)
        self.folder.write_record(
            {
                "url": self.url,
                "socket": str(box.place) if box else self.folder.socket.name,
                "pid": os.getpid(),
                "version": __version__,
                "started": self.began,
                "epoch": self.loop.state.epoch,
                "simulated": found.devices.simulated,
                "notice": found.notice,
                "simulate": list(self.options.simulate),
                "port": self.options.port,
                **self.certificates.record(),
                "lease": self.options.lease,
            }
        )

    def _project_name(self, identity: str) -> str:
        project = self.loop.state.world.projects.get(identity)
        return project.name if project is not None else identity

    def _shutdown(self, stop_tasks: bool) -> None:
        """Called for a client's request. Ends the standby server at once, and this one after its answer."""
        if pid := int(self.folder.standby().get("pid", 0)):
            os.kill(pid, signal.SIGTERM)
        self._stop_tasks = stop_tasks
        self._front.should_exit = True

    def _drain(self) -> None:
        """Stops all tasks and waits until no attempt is live."""
        self.loop.stop_all()
        while self.loop.state.attempts and self.loop.failure is None:
            time.sleep(0.02)

    def _fatal(self, error: BaseException) -> None:
        """The loop failed: steps back if another leads the shared store, else exits. Jobs keep running."""
        if self._shared and isinstance(error, StaleEpoch):
            log.error("%s: this server steps back", error)
            self._step_back()
        sys.stderr.write(f"pliant: {error!r}: this server ends; its jobs keep running\n")
        sys.stderr.flush()
        os._exit(TAKEN_OVER if isinstance(error, StaleEpoch) else FAILED)

    def _step_back(self) -> NoReturn:
        """Replaces this process, in place, by a standby server; all that it holds in memory is lost."""
        environment = {key: value for key, value in os.environ.items() if key != "PLIANT_HALT"}
        words = [sys.executable, "-m", "pliant.app"]
        if self.options.replica:
            words += sys.argv[1:]
        else:
            words += ["serve", "--standby", "--lease", str(self.options.lease)]
            words += ["--state", str(self.options.state), "--host", self.options.host]
        os.execve(words[0], words, environment | {STEPPED_BACK: "1"})


def main(argv: Sequence[str] | None = None) -> int:
    given = parsed(argv)
    if given.verb == "doctor":
        return examined(given.state.absolute(), given.kube, given.kubeconfig, given.openid)
    folder = StateFolder(given.state.absolute())
    stands_by = given.verb == "serve" and given.standby and STEPPED_BACK not in os.environ
    logging.basicConfig(
        handlers=[ServerLog(folder.standby_log if stands_by else folder.log)],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        if given.verb == "restore" and given.check:
            layout = Layout(given.state)
            own = OwnLauncher(layout, (), LOG_MAX, LOG_KEEP)
            print(json.dumps(compare(given.file, partial(strangers, layout, own))))
            return OK
        if given.verb == "restore":
            restore_backup(folder, given.file)
            return OK
        return Server(Options.of(given)).run()
    except (FolderInUse, StoreError, LayoutError, Away, ValueError) as error:
        sys.stderr.write(f"pliant: {error}\n")
        known: dict[type, int] = {FolderInUse: CONFLICT, Unknown: CONFLICT, PortTaken: PORT_TAKEN}
        return known.get(type(error), FAILED)


if __name__ == "__main__":
    sys.exit(main())
