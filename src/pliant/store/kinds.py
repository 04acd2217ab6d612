"""Which class lives in which table, and what makes its identity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import Table

from pliant.control.ports import Batch, Remembered
from pliant.model.event import Event
from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import Cluster, Node, NodePool
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Attempt, Task, Workload
from pliant.store import schema
from pliant.store.codec import FORMAT, Codec, CodecError

T = TypeVar("T")
Values = dict[str, Any]  # column -> value of one row


def _sound(values: Values) -> Values:
    """The same, if every database can hold it. Raises CodecError."""
    for name, value in values.items():
        if isinstance(value, str) and ("\0" in value or (not value.isascii() and _surrogate(value))):
            raise CodecError(f"{name} {value!r:.60} contains characters that cannot be stored")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise CodecError(f"{name} {value} does not fit in 64 bits")
    return values


def _surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """How objects of one class are kept."""

    codec: Codec[T]
    table: Table
    identity: Callable[[T], Values]  # primary key
    columns: Callable[[T], Values] = field(default=lambda _: {})  # what queries need besides

    def row(self, value: T) -> Values:
        body = self.codec.encode(value)
        return _sound({**self.identity(value), **self.columns(value), "format": FORMAT, "body": body})

    def read(self, format: int, body: str) -> T:
        return self.codec.decode(body, format)


CLUSTER = Kind(Codec(Cluster), schema.clusters, lambda c: {"uuid": c.uuid})
DEPARTMENT = Kind(Codec(Department), schema.departments, lambda d: {"id": d.id})
PROJECT = Kind(Codec(Project), schema.projects, lambda p: {"id": p.id})
POOL = Kind(Codec(NodePool), schema.pools, lambda p: {"id": p.id})
TOPOLOGY = Kind(Codec(Topology), schema.topologies, lambda t: {"name": t.name})
NODE = Kind(Codec(Node), schema.nodes, lambda n: {"name": n.name})
WORKLOAD = Kind(
    Codec(Workload),
    schema.workloads,
    lambda w: {"id": w.id},
    lambda w: {"project": w.project, "serial": w.serial, "deleted": w.deleted},
)
TASK = Kind(
    Codec(Task),
    schema.tasks,
    lambda t: {"workload": t.workload, "name": t.name},
    lambda t: {"attempt": t.attempt},
)
ATTEMPT = Kind(
    Codec(Attempt),
    schema.attempts,
    lambda a: {"workload": a.id.workload, "task": a.id.task, "number": a.id.number},
    lambda a: {"ended": None if a.exit is None else a.exit.at},
)
PAST_USE = Kind(Codec(PastUse), schema.past_uses, lambda u: {"project": u.project, "pool": u.pool})
DISRUPTIONS = Kind(Codec(Disruptions), schema.disruptions, lambda d: {"project": d.project})
PROGRESS = Kind(Codec(Progress), schema.progresses, lambda p: {"workload": p.workload})
PRIORITY_CLASS = Kind(Codec(PriorityClass), schema.priority_classes, lambda p: {"name": p.name})
EVENT = Kind(Codec(Event), schema.events, lambda _: {}, lambda e: {"subject": e.subject, "at": e.at})
REMEMBERED = Kind(Codec(Remembered), schema.remembered, lambda r: {"key": r.key}, lambda r: {"at": r.at})

KINDS: tuple[Kind[Any], ...] = (  # what is referred to comes first
    CLUSTER,
    DEPARTMENT,
    PROJECT,
    POOL,
    TOPOLOGY,
    NODE,
    WORKLOAD,
    TASK,
    ATTEMPT,
    PROGRESS,
    PAST_USE,
    DISRUPTIONS,
    PRIORITY_CLASS,
    REMEMBERED,
)
_OF_CLASS = {kind.codec.kind: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Change:
    """A batch in the form of rows: encoded before the write lock is taken, so that a bad one harms nobody."""

    puts: Sequence[tuple[Kind[Any], list[Values]]]
    drops: Sequence[tuple[Kind[Any], list[Values]]]
    events: list[Values]
    settings: list[Values]
    serial: int  # highest of the batch's workloads
    durable: bool


def change(batch: Batch) -> Change:
    """Encode a batch. Raises CodecError (a ValueError) for a value that its class does not allow."""
    return Change(
        puts=_by_kind(batch.put, lambda kind, value: kind.row(value)),
        drops=[*reversed(_by_kind(batch.drop, lambda kind, value: kind.identity(value)))],
        events=[EVENT.row(event) for event in batch.events],
        settings=[_sound({"key": key, "value": value}) for key, value in batch.settings.items()],
        serial=max((row.serial for row in batch.put if isinstance(row, Workload)), default=0),
        durable=batch.durable,
    )


def _by_kind(
    rows: Sequence[Any], make: Callable[[Kind[Any], Any], Values]
) -> list[tuple[Kind[Any], list[Values]]]:
    """Rows per kind in the order of KINDS; of several with one identity the last counts."""
    found: dict[Kind[Any], dict[tuple[Any, ...], Values]] = {kind: {} for kind in KINDS}
    for row in rows:
        kind = _OF_CLASS[type(row)]
        found[kind][tuple(kind.identity(row).values())] = make(kind, row)
    return [(kind, [*values.values()]) for kind, values in found.items() if values]
