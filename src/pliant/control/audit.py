"""Records what each request changes, in the same transaction as the change.

The code that takes a request in sets `TRAIL`; what that request makes the loop do is then recorded.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, TypeVar, cast

from pliant.control.policy_changes import policy_changes
from pliant.control.ports import Remembered, Row
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.asset import Asset, AssetKind
from pliant.model.audit import AuditRecord, Change
from pliant.model.booking import Booking
from pliant.model.identity import (
    AccessKey,
    AccessRule,
    Allowance,
    Application,
    CustomRole,
    LoginSession,
    User,
)
from pliant.model.machine import NodePool
from pliant.model.notice import MailServer, Subscription
from pliant.model.priority import PriorityClass
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Workload
from pliant.sched.world.rows import of_world

T = TypeVar("T")

LONGEST = 2000
"""Characters of a value that are kept."""

WORDS: Mapping[type, str] = {
    Workload: "Workload",
    Project: "Project",
    Department: "Department",
    NodePool: "NodePool",
    Topology: "NetworkTopology",
    PriorityClass: "PriorityClass",
    Booking: "Booking",
    Asset: "Asset",
    User: "User",
    Application: "ServiceAccount",
    AccessKey: "AccessKey",
    AccessRule: "AccessRule",
    CustomRole: "Role",
    Allowance: "Limit",
    LoginSession: "Session",
    Subscription: "Notification",
    MailServer: "MailServer",
}
"""What a record calls a row. Rows of other kinds are not in a record."""

OF_WORKLOADS = frozenset(
    {"name", "project", "kind", "priority", "priority_class", "preemptible", "desired", "purge"}
    | {"cancelled_by", "shared", "user", "owner", "groups"}
)
"""The only fields of a workload that are recorded: its command line may hold private data."""

SECRET = frozenset({"password", "secret", "again", "body"})
"""Fields whose values are never recorded, only that they changed. The body of an asset may hold variables;
that of a policy is recorded field by field, without them."""

SECONDARY = frozenset({LoginSession, AccessRule, Asset})
"""Kinds that change with rows of other kinds, e.g. are deleted with their project."""


@dataclass(slots=True)
class Trail:
    """What a record says about one request."""

    request: str
    subject: str
    name: str
    source: str
    via: str
    method: str
    path: str
    permission: str
    action: str
    recorded: bool = False  # True once its changes are recorded

    def record(
        self,
        at: int,
        status: int,
        changes: tuple[Change, ...] = (),
        about: tuple[str, str, str] = ("", "", ""),
    ) -> AuditRecord:
        """`about`: kind, id and name of what it is about."""
        return AuditRecord(
            at=at,
            request=self.request,
            subject=self.subject,
            name=self.name,
            source=self.source,
            via=self.via,
            method=self.method,
            path=self.path,
            action=self.action,
            entity=about[0],
            entity_id=about[1],
            entity_name=about[2],
            status=status,
            permission=self.permission,
            changes=changes,
        )


TRAIL: ContextVar[Trail | None] = ContextVar("trail", default=None)


def unchanged() -> None:
    """Note that this request repeats one that was done before: there is nothing to record."""
    if (trail := TRAIL.get()) is not None:
        trail.recorded = True


def audited(run: Callable[[Draft], T], state: State) -> Callable[[Draft], T]:
    """`run`, with a record of what it changes if a request causes it."""
    trail = TRAIL.get()
    if trail is None:
        return run

    def both(draft: Draft) -> T:
        result = run(draft)
        rows = [row for row in draft.rows.values() if type(row) in WORDS]
        gone = [row for row in draft.dropped.values() if type(row) in WORDS]
        if not draft.empty:
            changes = (*_put(rows, state), *_gone(gone), *_set(draft.settings))
            draft.audit.append(trail.record(draft.now, 0, changes, _about(rows, gone)))
            trail.recorded = True
        return result

    return both


def _about(rows: Iterable[Any], gone: Iterable[Any]) -> tuple[str, str, str]:
    """(kind, id, name) of what a change is about: its first row, of a secondary kind only if all are."""
    found = sorted([*rows, *gone], key=lambda row: type(row) in SECONDARY)
    if not found:
        return ("", "", "")
    row = found[0]
    identity = str(getattr(row, "id", "") or getattr(row, "name", "") or getattr(row, "subject", ""))
    return (WORDS[type(row)], identity, str(getattr(row, "name", "")))


def _put(rows: Iterable[Row | Remembered], state: State) -> Iterable[Change]:
    for row in rows:
        before = _known(row, state)
        for name, default in _compared(cast(Hashable, type(row))):
            new = getattr(row, name)
            old = getattr(before, name) if before is not None else default
            if name == "body" and isinstance(row, Asset) and row.kind is AssetKind.POLICY:
                for path, was, now in policy_changes(before.body if before is not None else "", new):
                    yield Change(f"{WORDS[Asset]}.body.{path}", was[:LONGEST], now[:LONGEST])
            elif old != new:
                hidden = name in SECRET
                told = (_told(old) if before is not None else "", _told(new))
                yield Change(f"{WORDS[type(row)]}.{name}", *(("***", "***") if hidden else told))


@cache
def _compared(kind: Any) -> tuple[tuple[str, Any], ...]:
    """(name, default) of the fields of a class whose changes are recorded."""
    return tuple(
        (it.name, it.default)
        for it in fields(kind)
        if it.name != "updated" and (kind is not Workload or it.name in OF_WORKLOADS)
    )


def _gone(rows: Iterable[Any]) -> Iterable[Change]:
    for row in rows:
        yield Change(WORDS[type(row)], _told(str(getattr(row, "name", "") or getattr(row, "id", ""))), "")


def _set(settings: Mapping[str, str]) -> Iterable[Change]:
    for name, value in settings.items():
        yield Change(f"Setting.{name}", "", value[:LONGEST])


def _known(row: Any, state: State) -> Any:
    """The row before the change; None: it is new."""
    if of_world(row):
        return state.world.known(row)
    seen = state.access.seen
    match row:
        case User():
            return seen.users.get(row.id)
        case Application():
            return seen.applications.get(row.id)
        case AccessKey():
            return seen.keys.get(row.id)
        case AccessRule():
            return seen.rules.get(row.id)
        case CustomRole():
            return seen.roles.get(row.id)
        case LoginSession():
            return seen.sessions.get(row.id)
        case Allowance():
            return seen.allowances.get((row.subject, row.project))
        case PriorityClass():
            return state.priorities.get(row.name)
        case Asset():
            return state.assets.get(row.id)
        case Subscription():
            return state.subscriptions.get(row.id)
        case MailServer():
            return state.mail_server
    return None


def _plain(value: Any) -> Any:
    return asdict(value)


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"))  # json.dumps makes one for each value


def _told(value: Any) -> str:
    return _ENCODER.encode(value)[:LONGEST]
