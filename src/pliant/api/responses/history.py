"""Renders events, history records, attempts and outcomes of workloads."""

from dataclasses import replace
from typing import Annotated

from fastapi import Depends

from pliant.api.listing import Listing, Window
from pliant.api.responses.amounts import gpus
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.api.responses.workloads import names_of, numbers_of
from pliant.control.board.outcome import Outcome, code_of
from pliant.control.board.view import WorkloadView
from pliant.model.event import Event, EventKind
from pliant.model.reason import MayRead
from pliant.model.reason.told import again
from pliant.model.workload import Attempt, Phase, Workload
from pliant.wire import workload as wire
from pliant.wire.events import EventItem, Involved, RecordItem, RecordSpec
from pliant.wire.history import AttemptEntry

MILLI_GPU_HOUR = 1000 * 3_600_000
"""Milli-GPU-ms of one GPU-hour."""

_WARNINGS = frozenset(
    {
        EventKind.RECLAIMED,
        EventKind.PREEMPTED,
        EventKind.LOST,
        EventKind.RETRYING,
        EventKind.FAILED,
        EventKind.WARNING,
        EventKind.IDLE,
    }
)
_PHASES = {
    EventKind.PENDING: Phase.PENDING,
    EventKind.RUNNING: Phase.RUNNING,
    EventKind.STOPPED: Phase.STOPPED,
    EventKind.RESUMED: Phase.RESUMING,
    EventKind.COMPLETED: Phase.COMPLETED,
    EventKind.FAILED: Phase.FAILED,
    EventKind.DELETED: Phase.DELETING,
}
"""The phase that begins with an event of that kind."""

EVENTS: Listing[tuple[int, Event]] = Listing(
    {
        "createdAt": lambda entry: entry[1].at,
        "reason": lambda entry: entry[1].kind.value,
        "message": lambda entry: entry[1].message,
        "source": lambda entry: entry[1].who,
        "code": lambda entry: entry[1].reason,
    },
    searched=("reason", "message", "source"),
)
"""How events can be listed; each has its place in all history."""

AskedEvents = Annotated[Window, Depends(EVENTS.asked)]


def event_item(
    view: WorkloadView, cluster: str, number: int, event: Event, may_read: MayRead | None = None
) -> EventItem:
    """The event without names that the caller may not read; `number` is its place in all history."""
    return decision_item(view.workload, view.project.namespace, cluster, number, event, may_read)


def decision_item(
    workload: Workload,
    namespace: str,
    cluster: str,
    number: int,
    event: Event,
    may_read: MayRead | None = None,
) -> EventItem:
    """The same for a workload that may have been deleted."""
    involved: Involved = {
        "uid": workload.id,
        "kind": f"{workload.kind.value}Workload",
        "name": workload.name,
        "namespace": namespace,
    }
    return _item(cluster, number, event if may_read is None else seen(event, may_read), involved)


def seen(event: Event, may_read: MayRead) -> Event:
    """The event without names that the caller may not read.

    Its message is made again, from its reason without them. If this version cannot do that (the event is of
    another one), its numbers, its names and its message are left out.
    """
    if not event.reason:
        return event
    reason = again(event.reason, event.numbers, event.names)
    if reason is None:
        message = f"Details are not available to this user ({event.reason})."
        return replace(event, message=message, numbers=(), names=())
    less = reason.seen_by(may_read)
    if less == reason:
        return event
    return replace(event, message=less.text(event.at), numbers=less.numbers, names=less.names)


def happening(cluster: str, number: int, event: Event) -> EventItem:
    """An event about something that is not a workload."""
    kind, _, identity = event.subject.partition("/")
    return _item(cluster, number, event, {"kind": kind.capitalize(), "name": identity or kind})


def _item(cluster: str, number: int, event: Event, involved: Involved) -> EventItem:
    return {
        "createdAt": stamp(event.at),
        "type": "Warning" if event.kind in _WARNINGS else "Normal",
        "reason": event.kind.value,
        "message": event.message,
        "source": event.who,
        "clusterId": cluster,
        "involvedObject": involved,
        "id": str(number),
        "who": event.who,
        "code": event.reason,
        "numbers": numbers_of(event.numbers),
        "names": names_of(event.names),
        "decision": event.decision,
        "attempt": event.attempt,
    }


def record_item(view: WorkloadView, cluster: str, number: int, event: Event) -> RecordItem:
    """An entry of Run:ai's history: a change of phase or an event."""
    phase = _PHASES.get(event.kind)
    if phase is not None:
        spec: RecordSpec = {"phaseUpdate": {"phase": phase.value, "phaseMessage": event.message}}
    else:
        spec = {"event": event_item(view, cluster, number, event)}
    return {
        "meta": {
            "creationTimestamp": stamp(event.at),
            "type": "Event" if phase is None else "PhaseUpdate",
        },
        "spec": spec,
    }


def attempt_entry(row: Attempt, now: int) -> AttemptEntry:
    end = row.exit
    said = "" if end is None else end.error or ("lost: no exit code was recorded" if end.lost else "")
    return {
        "task": row.id.task,
        "attempt": row.id.number,
        "node": row.placement.node,
        "startedAt": stamp_or_none(row.started),
        "endedAt": stamp_or_none(end.at if end is not None else None),
        "gpus": gpus(row.placement.gpu),
        "gpuHours": round(row.held(now) / MILLI_GPU_HOUR, 4),
        "exitCode": None if end is None or end.lost else code_of(end),
        "signal": end.signal if end is not None else None,
        "stopped": end is not None and end.stopped,
        "outOfMemory": end is not None and end.oom,
        "maxRssBytes": (end.max_rss or None) if end is not None else None,
        "message": said,
    }


def outcome_item(outcome: Outcome) -> wire.Outcome:
    return {
        "phase": outcome.phase.value,
        "exitCode": outcome.exit_code,
        "signal": outcome.signal,
        "outOfMemory": outcome.out_of_memory,
        "cancelled": bool(outcome.cancelled_by),
        "deleted": outcome.deleted,
        "gone": outcome.gone,
        "message": outcome.message,
        "runningSeconds": outcome.running // 1000,
        "maxRssBytes": outcome.max_rss or None,
        "gpuHours": round(outcome.held / MILLI_GPU_HOUR, 4),
    }
