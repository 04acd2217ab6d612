"""Maps each stored class to its table and its identity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import Table

from pliant.control.ports import Batch, Remembered
from pliant.control.state.kinds import STORED_ROWS
from pliant.model.audit import AuditRecord
from pliant.model.event import Event
from pliant.model.sample import Sample
from pliant.model.workload import Attempt, Task, Workload
from pliant.sched.world.rows import RowKind
from pliant.store import schema
from pliant.store.codec import FORMAT, Codec, CodecError

T = TypeVar("T")
Values = dict[str, Any]  # column -> value of one row


def _sound(values: Values) -> Values:
    """The same values, if every database can store them. Raises CodecError."""
    for name, value in values.items():
        if isinstance(value, str) and ("\0" in value or (not value.isascii() and _surrogate(value))):
            raise CodecError(f"{name} {value!r:.60} cannot be stored: invalid characters")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise CodecError(f"{name} {value} does not fit in 64 bits")
    return values


def _surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """How objects of one class are stored."""

    codec: Codec[T]
    table: Table
    identity: Callable[[T], Values]  # primary key
    columns: Callable[[T], Values] = field(default=lambda _: {})  # what queries need besides

    def row(self, value: T, identity: Values | None = None) -> Values:
        """The column values of a row; `identity`: the primary key, if it is known already."""
        body, identity = self.codec.encode(value), identity or self.identity(value)
        return _sound({**identity, **self.columns(value), "format": FORMAT, "body": body})

    def read(self, format: int, body: str) -> T:
        return self.codec.decode(body, format)


BESIDES: dict[type, Callable[[Any], Values]] = {
    Workload: lambda w: {"project": w.project, "serial": w.serial, "deleted": w.deleted},
    Task: lambda t: {"attempt": t.attempt},
    Attempt: lambda a: {"ended": None if a.exit is None else a.exit.at},
    Remembered: lambda r: {"at": r.at},
}
"""Columns that queries need besides the identity."""

EVENT = Kind(Codec(Event), schema.events, lambda _: {}, lambda e: {"subject": e.subject, "at": e.at})

AUDIT = Kind(Codec(AuditRecord), schema.audit, lambda _: {}, lambda a: {"at": a.at})

SAMPLE = Kind(Codec(Sample), schema.samples, lambda s: {"subject": s.subject, "step": s.step, "at": s.at})


def _kind(kind: RowKind[T]) -> Kind[T]:
    names = [name.rpartition(".")[2] for name in kind.identity]
    parts = [attrgetter(name) for name in kind.identity]
    return Kind(
        Codec(kind.row),
        schema.ROWS[kind.slot],
        lambda row: {name: part(row) for name, part in zip(names, parts, strict=True)},
        BESIDES.get(kind.row, lambda _: {}),
    )


KINDS: Mapping[type, Kind[Any]] = {kind.row: _kind(kind) for kind in STORED_ROWS.kinds}
"""By class, in the order in which rows are put."""


@dataclass(frozen=True, slots=True)
class Change:
    """A batch as rows. It is encoded before the write lock is taken, so a bad batch affects no other."""

    puts: Sequence[tuple[Kind[Any], list[Values]]]
    drops: Sequence[tuple[Kind[Any], list[Values]]]
    events: list[Values]
    settings: list[Values]
    audit: list[Values]
    samples: list[Values]
    serial: int  # highest of the batch's workloads
    durable: bool


def change(batch: Batch) -> Change:
    """Encodes a batch. Raises CodecError (a ValueError) for a value that its class does not allow."""
    return Change(
        puts=_by_kind(batch.put, Kind.row),
        drops=[*reversed(_by_kind(batch.drop, lambda kind, value, identity: identity))],
        events=[EVENT.row(event) for event in batch.events],
        settings=[_sound({"key": key, "value": value}) for key, value in batch.settings.items()],
        audit=[AUDIT.row(record) for record in batch.audit],
        samples=[SAMPLE.row(sample) for sample in batch.samples],
        serial=max((row.serial for row in batch.put if isinstance(row, Workload)), default=0),
        durable=batch.durable,
    )


def _by_kind(
    rows: Sequence[Any], make: Callable[[Kind[Any], Any, Values], Values]
) -> list[tuple[Kind[Any], list[Values]]]:
    """Rows per kind in the order of KINDS; the last of several with one identity counts."""
    found: dict[type, dict[tuple[Any, ...], Values]] = {kind: {} for kind in KINDS}
    for row in rows:
        kind = KINDS[STORED_ROWS.of(row).row]
        identity = kind.identity(row)
        found[type(row)][tuple(identity.values())] = make(kind, row, identity)
    return [(KINDS[kind], [*values.values()]) for kind, values in found.items() if values]
