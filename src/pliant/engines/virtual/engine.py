"""The virtual engine: tasks run for the time that they declare, on a clock that the caller advances."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from pliant.control.clock import stamp
from pliant.control.errors import BadRequest
from pliant.control.fractions import TaskUse
from pliant.control.ports import Input, Session, Sink, StaleEpoch
from pliant.control.submit.variables import Sealed, Variables
from pliant.engines.afar import Afar
from pliant.engines.virtual.machines import Machines
from pliant.model.fact import AttemptEnded, AttemptStarted, NodeSeen
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import Attempt, AttemptId, Launch, Workload


class VirtualEngine(Afar):
    """See control.ports.Engine. Facts come on the thread that calls `open` or advances the timeline."""

    name = "virtual"
    tunnels = None

    def __init__(self, machines: Machines) -> None:
        self.machines = machines

    def open(self, sink: Sink, known: Iterable[Attempt], epoch: int) -> None:
        """Raises StaleEpoch if these machines have seen a higher epoch."""
        machines = self.machines
        if epoch < machines.epoch:
            raise StaleEpoch(f"epoch {epoch} is over: {machines.epoch} leads")
        machines.epoch, machines.sink = epoch, None  # the ends of orphans are not reported
        alive = [attempt.id for attempt in known if attempt.exit is None]
        for orphan in [run.attempt for run in machines.runs.values() if run.exit is None]:
            if orphan not in alive:
                machines.lose(orphan)
        machines.sink = sink
        for node in machines.nodes.values():
            sink(NodeSeen(node))
        for attempt in alive:
            run = machines.runs.get(attempt)
            if run is not None and run.exit is not None:
                sink(AttemptEnded(attempt, run.exit))
            elif run is not None and run.started is not None:
                sink(AttemptStarted(attempt, run.started))

    def start(self, order: Start) -> None:
        self.machines.start(order)

    def stop(self, order: Stop) -> None:
        self.machines.stop(order)

    def resize(self, order: Resize) -> None:
        self.machines.resize(order)

    def recorded(self, attempt: AttemptId) -> None:
        """Does nothing: runs are kept until their workload is forgotten."""

    def answer(self, workload: str, why: str, *, taken: bool) -> None:
        """Does nothing: this engine never finds work that others started."""

    def refuse(self, launch: Launch, variables: Variables) -> BadRequest | None:
        return None

    def seal(self, workload: str, sealed: Sealed) -> None:
        if sealed:
            self.machines.sealed[workload] = sealed
        else:
            self.machines.sealed.pop(workload, None)

    def sealed(self, workload: str) -> bool:
        return workload in self.machines.sealed

    def retain(self, workloads: Container[str]) -> None:
        for workload in [each for each in self.machines.sealed if each not in workloads]:
            del self.machines.sealed[workload]

    def allocation(self, attempt: AttemptId, document: Mapping[str, object]) -> None:
        self.machines.allocations[attempt] = dict(document)

    def logs(
        self,
        attempt: AttemptId,
        *,
        follow: bool,
        tail: int | None,
        since: int | None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """The output that the attempt declares, all of it at its start. `since` is ms of virtual time."""
        told = False
        while True:
            run = self.machines.runs.get(attempt)
            if run is not None and run.started is not None and not told:
                told = True
                label = f"{stamp(run.started)} ".encode() if timestamps else b""
                lines = [label + line for line in run.behaviour.output.splitlines(keepends=True)]
                if since is None or run.started >= since:
                    yield b"".join(lines if tail is None else lines[max(len(lines) - tail, 0) :])
            if not follow or (run is not None and run.exit is not None):
                return
            yield b""

    def exec(
        self, attempt: AttemptId, argv: Sequence[str], *, tty: bool, stdin: bool, rows: int, columns: int
    ) -> Session:
        """Always raises ValueError."""
        raise ValueError(f"{attempt} runs in virtual time: no command can run inside it")

    def signal(self, attempt: AttemptId, number: int) -> None:
        """Always raises ValueError."""
        raise ValueError("it runs in virtual time and has no processes")

    def input(self, attempt: AttemptId) -> Input:
        """Always raises ValueError."""
        raise ValueError("it runs in virtual time and reads nothing")

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        return {}

    def forget(self, workload: Workload) -> None:
        """Raises ValueError if an attempt of it has not ended. There are no files."""
        mine = [attempt for attempt in self.machines.runs if attempt.workload == workload.id]
        if any(self.machines.runs[attempt].exit is None for attempt in mine):
            raise ValueError(f"something of workload {workload.name} still runs: stop it first")
        self.machines.sealed.pop(workload.id, None)
        for attempt in mine:
            del self.machines.runs[attempt]
            self.machines.allocations.pop(attempt, None)

    def close(self) -> None:
        self.machines.sink = None
