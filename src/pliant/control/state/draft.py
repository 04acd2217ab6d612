"""Collects what one cycle is about to record: rows, removals and history, before anything is committed."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from pliant.control.ports import Batch, Remembered, Row
from pliant.control.state.kinds import STORED_ROWS
from pliant.model.audit import AuditRecord
from pliant.model.event import Event, EventKind
from pliant.model.order import Order
from pliant.model.progress import Progress
from pliant.model.reason import Reason
from pliant.sched.plan import Plan

Identity = tuple[str, Hashable]


@dataclass(slots=True)
class Draft:
    """Collects one transaction. The last put of an identity wins; a drop undoes its put."""

    now: int
    rows: dict[Identity, Row | Remembered] = field(default_factory=dict)
    dropped: dict[Identity, Row] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    audit: list[AuditRecord] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    """From requests, not from the plan; sent once the rest is on disk."""
    when_decided: list["Callable[[Draft, Plan], None]"] = field(default_factory=list)
    """Called with the whole draft and the cycle's plan (empty if there is none) before the commit."""

    def put(self, row: Row | Remembered) -> None:
        key = STORED_ROWS.identity(row)
        self.dropped.pop(key, None)
        self.rows[key] = row

    def drop(self, row: Row) -> None:
        key = STORED_ROWS.identity(row)
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
                reason.names if reason else (),
            )
        )

    def absorb(self, other: "Draft") -> None:
        """Take over what another draft holds, as if it was written here."""
        for row in other.rows.values():
            self.put(row)
        for gone in other.dropped.values():
            self.drop(gone)
        self.events += other.events
        self.settings |= other.settings
        self.audit += other.audit
        self.orders += other.orders
        self.when_decided += other.when_decided

    @property
    def empty(self) -> bool:
        return not (self.rows or self.dropped or self.events or self.settings or self.audit)

    @property
    def weighty(self) -> bool:
        """True if it holds more than progress reports, which jobs send again after a power failure."""
        light = all(isinstance(row, Progress) for row in self.rows.values())
        return not light or bool(self.dropped or self.events or self.settings or self.audit)

    def batch(self, *, durable: bool) -> Batch:
        return Batch(
            put=tuple(self.rows.values()),
            drop=tuple(self.dropped.values()),
            events=tuple(self.events),
            settings=dict(self.settings),
            audit=tuple(self.audit),
            durable=durable,
        )
