"""A server without its process: real loop, real store, tasks in virtual time that follows the real time."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any

from fastapi import FastAPI

from pliant.api.app import ServerInfo, create_app
from pliant.control.clock import SteadyClock
from pliant.control.loop import Loop
from pliant.control.ports import Input, Session
from pliant.control.service import Service
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Behaviour, Machines, declared
from pliant.engines.virtual.timeline import Timeline
from pliant.model.machine import Cluster, Gpu, Node
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import AttemptId, Workload
from pliant.store.folder import Word
from tests.store.made import open_made

_DESCRIBED: list[dict[str, Any]] = []  # filled at the first request

TOKEN = "the-token-of-the-state-folder"
SECRET = b"thirty-two bytes of a test secret"
CLUSTER = "11111111-2222-3333-4444-555555555555"
IMAGE = "runai.jfrog.io/demo/quickstart"


def nodes(count: int = 1, gpus: int = 2, labels: tuple[tuple[str, str], ...] = ()) -> list[Node]:
    return [
        Node(
            f"node-{index}",
            tuple(Gpu(f"GPU-{index}-{number}", number, 16 * 2**30, "Simulated") for number in range(gpus)),
            cpu=16_000 * gpus,
            memory=gpus * 64 * 2**30,
            labels=labels,
            engine="virtual",
            simulated=True,
        )
        for index in range(count)
    ]


def described(describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The description of the API, the same for each stage: computed once per process, as it takes 2 s."""
    if not _DESCRIBED:
        _DESCRIBED.append(describe())
    return _DESCRIBED[0]


class Command:
    """A command inside a task: `cat` returns its input, `sleep` waits, `false` exits with 1."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.screen = (0, 0)
        self.killed = False
        self._code: int | None = None
        self._output: SimpleQueue[bytes] = SimpleQueue()
        self._ended = False
        if argv[0] == "echo":
            self._output.put(" ".join(argv[1:]).encode() + b"\n")
        if argv[0] in ("echo", "true", "false"):
            self._end(1 if argv[0] == "false" else 0)

    def _end(self, code: int) -> None:
        self._code = code
        self._output.put(b"")

    def read(self, timeout: float) -> bytes | None:
        if self._ended:
            return b""
        try:
            chunk = self._output.get(timeout=timeout)
        except Empty:
            return None
        self._ended = not chunk
        return chunk

    def write(self, data: bytes) -> None:
        if self._code is not None:
            raise BrokenPipeError(32, "it has ended")
        self._output.put(data)

    def close_stdin(self) -> None:
        if self.argv[0] == "cat" and self._code is None:
            self._end(0)

    def resize(self, rows: int, columns: int) -> None:
        self.screen = (rows, columns)

    def exit_code(self) -> int | None:
        return self._code

    def kill(self) -> None:
        self.killed = True
        if self._code is None:
            self._end(137)


class StageEngine(VirtualEngine):
    """Virtual tasks for several threads, with commands inside them."""

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.guard = threading.RLock()
        self.commands: list[Command] = []
        self.typed: list[tuple[AttemptId, bytes, int, int, bool]] = []

    def start(self, order: Start) -> None:
        with self.guard:
            super().start(order)

    def stop(self, order: Stop) -> None:
        with self.guard:
            super().stop(order)

    def resize(self, order: Resize) -> None:
        with self.guard:
            super().resize(order)

    def forget(self, workload: Workload) -> None:
        with self.guard:
            super().forget(workload)

    def exec(
        self, attempt: AttemptId, argv: Sequence[str], *, tty: bool, stdin: bool, rows: int, columns: int
    ) -> Session:
        command = Command(argv)
        command.resize(rows, columns)
        self.commands.append(command)
        return command

    def input(self, attempt: AttemptId) -> Input:
        return Typed(self, attempt)


class Typed:
    """Records the input; takes at most three bytes at once."""

    def __init__(self, engine: StageEngine, attempt: AttemptId) -> None:
        self._engine = engine
        self._attempt = attempt

    def send(self, data: bytes, *, stream: int, at: int, end: bool) -> int:
        self._engine.typed.append((self._attempt, data[:3], stream, at, end))
        return min(3, len(data) + end)

    def resize(self, rows: int, columns: int) -> None:
        raise ValueError("it has no terminal")


def behaviour(order: Start, env: Mapping[str, str]) -> Behaviour:
    """As declared; TEST_OUTPUT is what it logs."""
    plain = declared(order, env)
    output = env.get("TEST_OUTPUT", "").encode()
    return Behaviour(plain.duration, plain.code, plain.stop, output)


class Stage:
    """Everything behind the API, and the API's application."""

    def __init__(self, folder: Path, machines: Machines, clock: SteadyClock) -> None:
        self.clock = clock
        self.machines = machines
        self.engine = StageEngine(machines)
        self.path = folder / "pliant.db"
        self.store = open_made(self.path)
        self.loop = Loop(self.store, {"virtual": self.engine}, clock)
        self.loop.open()
        self.loop.start()
        self.service = Service(self.loop, {"virtual": self.engine})
        self.service.bootstrap()
        cluster = Cluster(CLUSTER, created=clock.now(), version="1.2.3")
        self.loop.call(lambda draft: draft.put(cluster))
        self.asked: list[object] = []  # what the API asked of the process
        self.frozen = threading.Event()  # while a test sets it, tasks do not advance
        self._over = threading.Event()
        self._mover = threading.Thread(target=self._move, daemon=True)
        self._mover.start()

    def app(
        self,
        closing: Callable[[], bool] = lambda: False,
        backup: Callable[[Path], None] | None = None,
        token: Word | None = None,
        **more: Any,
    ) -> FastAPI:
        server = ServerInfo(
            url="http://127.0.0.1:1",
            version="1.2.3",
            pid=4711,
            started=self.clock.now(),
            state="/state",
            epoch=self.loop.state.epoch,
            simulated=True,
        )
        app = create_app(
            self.service,
            hosts=frozenset({"testserver"}),
            token=token or (lambda: TOKEN),
            renew=token and token.renew,
            secret=SECRET,
            server=server,
            shutdown=self.asked.append,
            backup=backup or self.store.backup,
            bundle=lambda: b"PK\5\6" + bytes(18),  # an empty zip
            closing=closing,
            **more,
        )
        describe = app.openapi
        app.openapi = lambda: described(describe)  # type: ignore[method-assign]
        return app

    def _move(self) -> None:
        """Advances virtual time to the clock's."""
        while not self._over.wait(0.01):
            with self.engine.guard:
                if self.frozen.is_set():
                    continue
                self.machines.timeline.advance(self.clock.now())

    def close(self) -> None:
        self._over.set()
        self._mover.join(60)
        self.loop.close()
        self.engine.close()
        self.store.close()
        assert self.loop.failure is None, self.loop.failure
        self.loop.world.check()


@contextmanager
def stage(folder: Path, count: int = 1, gpus: int = 2, machines: Machines | None = None) -> Iterator[Stage]:
    clock = SteadyClock()
    made = machines or Machines(Timeline(clock.now()), nodes(count, gpus), behaviour=behaviour)
    set_up = Stage(folder, made, clock)
    try:
        yield set_up
    finally:
        set_up.close()


def until(true: Callable[[], object], seconds: float = 240) -> None:
    """Polls until it is true."""
    deadline = monotonic() + seconds
    while not true():
        assert monotonic() < deadline, "it did not come about in time"
        sleep(0.005)
