"""What is to be told about jobs: recorded with the event itself, so that none is lost, and dropped once told.

Belongs to the loop's thread.
"""

import uuid

from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.event import Event, EventKind
from pliant.model.notice import END, FAILURE, IDLE, PREEMPTION, START, Notice, Subscription
from pliant.model.workload import Workload

MOST = 10_000
"""Notices that wait; what comes beyond is not told."""

_EVENTS = {
    EventKind.RUNNING: START,
    EventKind.COMPLETED: END,
    EventKind.FAILED: FAILURE,
    EventKind.RECLAIMED: PREEMPTION,
    EventKind.PREEMPTED: PREEMPTION,
    EventKind.IDLE: IDLE,
}

TAKEN = "Other work took GPUs from the job. Stopped tasks restart automatically."
"""Of a preemption: the reason itself may name what its reader may not know."""


def take(state: State, draft: Draft) -> None:
    """Put a notice for each event of this cycle and each address that wants it."""
    if not state.subscriptions:
        return
    for event in draft.events:
        word = _EVENTS.get(event.kind)
        row = state.world.workloads.get(event.subject) if word is not None else None
        if word is None or row is None or (word == FAILURE and row.cancelled_by == row.user):
            continue
        for subscription in [*state.subscriptions.values()]:
            if word in subscription.on and subscription.user in ("", row.user) and len(state.notices) < MOST:
                state.put(draft, _notice(state, subscription, event, word, row))


def _notice(state: State, subscription: Subscription, event: Event, word: str, row: Workload) -> Notice:
    project = state.world.projects.get(row.project)
    return Notice(
        id=str(uuid.uuid4()),
        subscription=subscription.id,
        event=word,
        at=event.at,
        workload=row.id,
        name=row.name,
        project=project.name if project is not None else row.project,
        user=row.user,
        message=TAKEN if word == PREEMPTION else event.message,
    )
