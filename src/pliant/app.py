"""Composition root: builds the server out of its parts, runs it, and takes it down again.

`python -m pliant.app serve --state DIR [--simulate SPEC]... [--port N] [--take-over]`
"""

import argparse
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from pliant import __version__
from pliant.compiled import COMPILED, CORE  # before all that imports the core

# isort: split
from pliant.api.app import ServerInfo, create_app
from pliant.api.auth import attempt_token
from pliant.api.peer import PeerProtocol, listen
from pliant.control.clock import SteadyClock
from pliant.control.decider.child import ChildDecider
from pliant.control.errors import Refused
from pliant.control.fractions import Finding
from pliant.control.loop import Loop
from pliant.control.ports import Devices, Saved, StaleEpoch, Store
from pliant.control.service import Service
from pliant.control.state.draft import Draft
from pliant.control.submit.variables import Variables
from pliant.devices.discovery import Found, find_devices
from pliant.devices.doctor import examine, table
from pliant.devices.handout import Handout
from pliant.devices.place import Place
from pliant.engines.local.confinement import writable
from pliant.engines.local.engine import LocalEngine
from pliant.engines.local.layout import Layout, LayoutError
from pliant.engines.local.processes import owner_of
from pliant.engines.local.supervisor import command
from pliant.model.event import EventKind
from pliant.model.machine import Cluster
from pliant.model.workload import Attempt, AttemptId, Workload
from pliant.store import UNSEALED, StoreBusy, StoreError, open_store, restore
from pliant.store.archive import check
from pliant.store.bundle import bundle
from pliant.store.folder import Held, StateFolder
from pliant.store.ring import Ring
from pliant.store.server_log import ServerLog

log = logging.getLogger("pliant")

OK, FAILED, USAGE, CONFLICT, TAKEN_OVER, PORT_TAKEN = 0, 1, 2, 5, 9, 10
"""Exit codes; the first four mean the same in the CLI. TAKEN_OVER: it found another server leading."""

TURN = 0.001
"""Seconds for which a thread that computes keeps the others waiting, where Python's own 0.005 would make the
event loop wait several times per answer while a cycle decides."""

TIDY_SECONDS = 60
"""Between two looks at the trash and at how full its disk is."""

KEEP_HISTORY = 30 * 24 * 3600 * 1000
"""Ms for which history, ended attempts and deleted workloads are kept."""


class PortTaken(StoreError):
    """The port that was asked for is in use, or may not be used."""


@dataclass(frozen=True, slots=True)
class Options:
    state: Path
    simulate: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    take_over: bool = False


class Halts:
    """Kills or stops this process at a named point: `PLIANT_HALT=recorded:start#2` (the second time there),
    `...=stop` after a comma for SIGSTOP. For crash tests; does nothing when unset."""

    def __init__(self, text: str) -> None:
        point, _, how = text.partition(",")
        self._point, _, count = point.partition("#")
        self._left = int(count or 1)
        self._signal = signal.SIGSTOP if how == "stop" else signal.SIGKILL

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)
                time.sleep(0.5)  # a thread that stops its own process may run on for a moment


def newest(saved: Saved) -> int:
    """The latest time that any row names: the clock may not start before it."""
    times = [0]
    for workload in saved.of(Workload):
        times += [workload.created, workload.phase_since]
    for attempt in saved.of(Attempt):
        times += [attempt.ordered, attempt.started or 0]
    return max(times)


class Server:
    """One server over one state folder."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = StateFolder(options.state)
        self.began = time.time_ns() // 1_000_000
        self._lock = -1
        self._stop_tasks = False

    def run(self) -> int:
        """Until told to stop; the exit code."""
        sys.setswitchinterval(TURN)
        self.folder.prepare()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each live attempt costs a descriptor
        listener = self._listen()
        replaced = int(self.folder.record().get("pid", 0)) if self.options.take_over else 0
        self._lock = self.folder.lock(take_over=self.options.take_over)
        store = open_store(self.folder.database)
        try:
            self._end_writer(store, replaced)
            return self._serve(listener, store)
        finally:
            store.close()
            self.folder.drop_record(os.getpid())

    def _listen(self) -> socket.socket:
        # asyncio sends without delay only on sockets that are TCP by name; else kept connections wait 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.options.host, self.options.port))
        except OSError as error:
            raise PortTaken(
                f"Port {self.options.port} on {self.options.host} cannot be used: {error.strerror}. "
                "Choose another with --port, or leave it out to get a free one."
            ) from error
        return listener

    def _end_writer(self, store: Store, replaced: int) -> None:
        """A server that hangs inside a transaction keeps everybody out: when it is replaced, it is ended."""
        if not replaced:
            return
        try:
            store.lead()
        except StoreBusy:
            log.warning(
                "the server that is replaced (pid %d) hangs inside a transaction: it is killed", replaced
            )
            os.kill(replaced, signal.SIGKILL)

    def _serve(self, listener: socket.socket, store: Store) -> int:
        options = self.options
        self.url = f"http://{options.host}:{listener.getsockname()[1]}"
        token = self.folder.secret("token")
        secret = self.folder.secret("secret").encode()
        saved = store.load()
        cluster = saved.cluster or Cluster(str(uuid.uuid4()), created=self.began, version=__version__)
        specs = options.simulate or tuple(json.loads(saved.settings.get("simulate", "[]")))
        layout = Layout(options.state)
        found = find_devices(specs, cluster.uuid, lambda pid: owner_of(layout, pid) is not None)
        halts = Halts(os.environ.get("PLIANT_HALT", ""))
        clock = SteadyClock(newest(saved))
        shares = Handout(
            Place(layout.state),
            seen=found.processes,
            owner=lambda pid: owner_of(layout, pid),
            report=self._tell,
        )
        engine = LocalEngine(
            options.state,
            found.devices,
            url=lambda: self.url,
            token=lambda attempt: attempt_token(str(attempt), secret),
            project_name=self._project_name,
            clock=clock.now,
            halt=halts,
            occupants=shares.on_cards,
            fractions=shares,
        )
        engines = {engine.name: engine}
        ring = Ring(options.state / "replay")
        self._seal_old(engine, saved)
        self.loop = Loop(
            store, engines, clock, decider=ChildDecider(), recorder=ring, halt=halts, fatal=self._fatal
        )
        self.loop.open()
        self.loop.start()
        service = Service(self.loop, engines)
        service.bootstrap()
        self._settle_identity(cluster, specs)
        if found.notice:
            log.warning(found.notice)
        app = create_app(
            service,
            token=token,
            secret=secret,
            server=self._info(found),
            shutdown=self._shutdown,
            backup=store.backup,
            bundle=lambda: bundle(self.loop, store, self.folder.log),
            closing=lambda: self._uvicorn.should_exit,
        )
        config = uvicorn.Config(
            app,
            http=PeerProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=3,
        )
        self._uvicorn = uvicorn.Server(config)
        listener.listen(2048)
        local = listen(self.folder.socket)
        local.listen(2048)
        self._write_record(found)
        threading.Thread(target=self._prune, args=(store,), name="pliant-prune", daemon=True).start()
        threading.Thread(target=self._tidy, args=(service,), name="pliant-trash", daemon=True).start()
        gc.collect()
        gc.freeze()  # what is there now stays: looking through it for garbage would hold everything for 50 ms
        self._uvicorn.run(sockets=[listener, local])
        if self._stop_tasks:
            self._drain()
        self.loop.close()
        engine.close()
        return OK

    def _tell(self, attempt: AttemptId, text: str) -> None:
        """Into a workload's history: what the node noticed about one of its tasks."""
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
            notice=found.notice,
            findings=lambda: findings(self.options.state, found.devices),
        )

    def _write_record(self, found: Found) -> None:
        self.folder.write_record(
            {
                "url": self.url,
                "socket": self.folder.socket.name,
                "pid": os.getpid(),
                "version": __version__,
                "started": self.began,
                "epoch": self.loop.state.epoch,
                "simulated": found.devices.simulated,
                "notice": found.notice,
                "simulate": list(self.options.simulate),
                "port": self.options.port,
            }
        )

    def _project_name(self, identity: str) -> str:
        project = self.loop.state.world.projects.get(identity)
        return project.name if project is not None else identity

    def _settle_identity(self, cluster: Cluster, specs: Sequence[str]) -> None:
        def run(draft: Draft) -> None:
            draft.put(cluster)
            draft.settings["simulate"] = json.dumps(list(specs))
            draft.settings[UNSEALED] = ""

        self.loop.call(run)

    @staticmethod
    def _seal_old(engine: LocalEngine, saved: Saved) -> None:
        """Values that an older release kept in its rows; the migration has taken them out of there."""
        for workload, launches in json.loads(saved.settings.get(UNSEALED) or "{}").items():
            if not engine.sealed(workload):
                engine.seal(
                    workload, {group: Variables(tuple(env.items())) for group, env in launches.items()}
                )

    def _prune(self, store: Store) -> None:
        """Forget what is too old, once a day."""
        while True:
            try:
                store.prune(self.loop.clock.now() - KEEP_HISTORY)
            except StoreError as error:
                log.error("old history could not be pruned: %s", error)
            time.sleep(24 * 3600)

    def _tidy(self, service: Service) -> None:
        """Remove files of deleted workloads that were kept for long enough."""
        while True:
            try:
                service.files.tidy()
            except (OSError, Refused) as error:
                log.error("the trash could not be tidied: %s", error)
            time.sleep(TIDY_SECONDS)

    def _shutdown(self, stop_tasks: bool) -> None:
        """Asked for by a client: answer first, then end."""
        self._stop_tasks = stop_tasks
        self._uvicorn.should_exit = True

    def _drain(self) -> None:
        """Stop every task and wait until nothing of them lives."""
        self.loop.stop_all()
        while self.loop.state.attempts and self.loop.failure is None:
            time.sleep(0.02)

    def _fatal(self, error: BaseException) -> None:
        """The loop cannot go on, so neither can the server: leave at once and let the jobs run."""
        sys.stderr.write(f"pliant: {error!r}: this server ends; its jobs go on running\n")
        sys.stderr.flush()
        os._exit(TAKEN_OVER if isinstance(error, StaleEpoch) else FAILED)


def findings(state: Path, devices: Devices) -> list[Finding]:
    """What of shares of GPUs is enforced on this machine and what is not."""
    program, notice = command()
    core = Finding("compiled core", COMPILED, CORE)
    return [core, *examine(devices, Place(state), notice, writable(program))]


def restore_backup(folder: StateFolder, source: Path) -> int:
    """Put a backup in the place of what no server uses now."""
    folder.prepare()
    lock = folder.lock(take_over=False)
    try:
        restore(source, folder.database, overwrite=True)
    finally:
        os.close(lock)
    return OK


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant.app")
    verbs = parser.add_subparsers(dest="verb", required=True)
    back = verbs.add_parser("restore")
    back.add_argument("--state", type=Path, required=True)
    back.add_argument("--check", action="store_true", help="only see whether it could be restored")
    back.add_argument("file", type=Path)
    serve = verbs.add_parser("serve")
    serve.add_argument("--state", type=Path, required=True)
    serve.add_argument("--simulate", action="append", default=[])
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--take-over", action="store_true")
    look = verbs.add_parser("doctor")
    look.add_argument("--state", type=Path, required=True)
    given = parser.parse_args(argv)
    if given.verb == "doctor":
        found = find_devices((), "", lambda pid: True)
        print(json.dumps(table(findings(given.state.absolute(), found.devices))))
        return OK
    logging.basicConfig(
        handlers=[ServerLog(StateFolder(given.state.absolute()).log)],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        if given.verb == "restore" and given.check:
            check(given.file)
            return OK
        if given.verb == "restore":
            return restore_backup(StateFolder(given.state.absolute()), given.file)
        options = Options(
            given.state.absolute(), tuple(given.simulate), given.host, given.port, given.take_over
        )
        return Server(options).run()
    except (Held, StoreError, LayoutError, ValueError) as error:
        sys.stderr.write(f"pliant: {error}\n")
        return CONFLICT if isinstance(error, Held) else PORT_TAKEN if isinstance(error, PortTaken) else FAILED


if __name__ == "__main__":
    sys.exit(main())
