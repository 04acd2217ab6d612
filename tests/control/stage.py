"""A loop without a thread over the virtual engine and a real store: a test triggers each cycle."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pliant.control.board.view import WorkloadView
from pliant.control.ports import Batch, Store
from pliant.control.service import Service
from pliant.control.still import StillLoop
from pliant.control.submit.submission import Submission
from pliant.control.submit.variables import Variables
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.devices.simulated import SimulatedDevices
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Machines
from pliant.engines.virtual.timeline import Timeline
from pliant.model.workload import Kind, Launch, Workload
from pliant.store import open_store
from tests.store.made import open_made

START = 1_700_000_000_000


class Stage:
    """The inside of one server. `reopen` restarts it."""

    def __init__(self, folder: Path, simulate: str = "1x2", **latencies: int) -> None:
        self.path = folder / "pliant.db"
        self.timeline = Timeline(START)
        nodes = [replace(node, engine="virtual") for node in SimulatedDevices([simulate], "stage").nodes()]
        self.machines = Machines(self.timeline, nodes, **latencies)
        self.store: Store = open_made(self.path)
        self.begin()

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.path)
        self.begin()

    def begin(self) -> None:
        engine = VirtualEngine(self.machines)
        self.loop = StillLoop(self.store, {engine.name: engine}, self.timeline)
        self.loop.open()
        self.service = Service(self.loop, {engine.name: engine})
        self.service.bootstrap()
        self.run()

    def run(self, ms: int = 0) -> None:
        """Lets virtual time pass, with a cycle whenever something happened or is due."""
        until = self.timeline.now() + ms
        self.loop.settle()
        while True:
            due = [at for at in (self.timeline.next(), self.loop.wakes) if at is not None]
            later = min((at for at in due if at <= until), default=None)
            if later is None:
                break
            self.timeline.advance(max(later, self.timeline.now()))
            self.loop.settle()
        self.timeline.advance(until)
        self.loop.settle()
        self.loop.world.check()

    def project(self, name: str, quota: int, **more: Any) -> None:
        """Creates a project; `quota` in GPUs."""
        change = QueueChange(name=name, quotas=(("default", QuotaChange(gpu=quota * 1000)),), **more)
        self.service.create_project(change, "test")

    def accept(self, asked: Submission) -> Workload:
        return self.service.submit(self.service.check(asked), "me").workload

    def submit(self, name: str, gpus: int = 1, project: str = "default", **more: Any) -> str:
        env = tuple(
            (f"PLIANT_VIRTUAL_{key.upper()}", str(value)) for key, value in more.pop("virtual", {}).items()
        )
        launch = Launch("ubuntu", ("sleep", "infinity"))
        more["variables"] = Variables(env)
        if more.pop("interactive", False):
            more["kind"] = Kind.WORKSPACE
        ask = Submission(project=project, launch=launch, name=name, gpus=gpus * 1000 or None, **more)
        return self.accept(ask).id

    def view(self, identity: str) -> WorkloadView:
        return self.service.workload(identity)

    def phase(self, identity: str) -> str:
        return self.view(identity).workload.phase.value

    def history(self, identity: str) -> list[str]:
        return [event.kind.value for _, event in self.service.history(identity)]


class FailingStore:
    """A store whose commits raise `error` while it is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.error: Exception | None = None

    def commit(self, epoch: int, batch: Batch) -> None:
        if self.error is not None:
            raise self.error
        self._store.commit(epoch, batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
