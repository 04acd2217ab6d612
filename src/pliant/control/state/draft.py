"""What one cycle is about to record: rows, removals and history, in order, before anything is committed."""

from dataclasses import dataclass, field

from pliant.control.ports import Batch, Remembered, Row
from pliant.model.event import Event, EventKind
from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import Cluster, Node, NodePool
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.reason import Reason
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Attempt, Task, Workload

Identity = tuple[str, object]


def identity(row: Row | Remembered) -> Identity:
    """What makes two rows the same thing."""
    match row:
        case Task():
            return ("task", row.key)
        case Node():
            return ("node", row.name)
        case Topology():
            return ("topology", row.name)
        case PastUse():
            return ("past use", (row.project, row.pool))
        case Disruptions():
            return ("disruptions", row.project)
        case PriorityClass():
            return ("priority class", row.name)
        case Progress():
            return ("progress", row.workload)
        case Cluster():
            return ("cluster", row.uuid)
        case Remembered():
            return ("remembered", row.key)
        case Workload() | Attempt() | Department() | Project() | NodePool():
            return (type(row).__name__, row.id)


@dataclass(slots=True)
class Draft:
    """Collects one transaction. The last put of an identity wins; a drop undoes its put."""

    now: int
    rows: dict[Identity, Row | Remembered] = field(default_factory=dict)
    dropped: dict[Identity, Row] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def put(self, row: Row | Remembered) -> None:
        key = identity(row)
        self.dropped.pop(key, None)
        self.rows[key] = row

    def drop(self, row: Row) -> None:
        key = identity(row)
        self.rows.pop(key, None)
        self.dropped[key] = row

    def event(
        self,
        subject: str,
        kind: EventKind,
        message: str,
        *,
        who: str = "scheduler",
        reason: Reason | None = None,
        decision: str = "",
        attempt: str = "",
    ) -> None:
        self.events.append(
            Event(
                subject,
                self.now,
                who,
                kind,
                message,
                reason.code if reason else "",
                reason.numbers if reason else (),
                decision,
                attempt,
            )
        )

    def absorb(self, other: "Draft") -> None:
        """Take over what another draft holds, as if it had been written here."""
        for row in other.rows.values():
            self.put(row)
        for gone in other.dropped.values():
            self.drop(gone)
        self.events += other.events
        self.settings |= other.settings

    @property
    def empty(self) -> bool:
        return not (self.rows or self.dropped or self.events or self.settings)

    @property
    def weighty(self) -> bool:
        """True if more than reports of jobs is in it: those come again if the machine loses its power."""
        light = all(isinstance(row, Progress) for row in self.rows.values())
        return not light or bool(self.dropped or self.events or self.settings)

    def batch(self, *, durable: bool) -> Batch:
        return Batch(
            put=tuple(self.rows.values()),
            drop=tuple(self.dropped.values()),
            events=tuple(self.events),
            settings=dict(self.settings),
            durable=durable,
        )
