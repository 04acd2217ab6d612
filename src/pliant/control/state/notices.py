"""Notices about jobs: recorded in the event's own transaction, so that none is lost, and dropped once sent.

Belongs to the loop's thread.
"""

import uuid

from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.event import Event, EventKind
from pliant.model.notice import END, FAILURE, IDLE, PREEMPTION, START, Notice, Subscription
from pliant.model.workload import Workload

MOST = 10_000
"""Most notices that may wait; further ones are not recorded."""

_EVENTS = {
    EventKind.RUNNING: START,
    EventKind.COMPLETED: END,
    EventKind.FAILED: FAILURE,
    EventKind.RECLAIMED: PREEMPTION,
    EventKind.PREEMPTED: PREEMPTION,
    EventKind.IDLE: IDLE,
}

TAKEN = "Other work took GPUs from the job. Stopped tasks restart automatically."
"""Message of a preemption: the reason itself may name work that the reader may not know."""


FAILED = "The job failed. Its owner sees the reason with: pliant describe job."
"""Message of a failure to anyone but the owner: the reason may name the job's command."""


def take(state: State, draft: Draft) -> None:
    """Record a notice for each event of this cycle and each subscription to it."""
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
    message = TAKEN if word == PREEMPTION else event.message
    if word == FAILURE and subscription.user != row.user:
        message = FAILED
    return Notice(
        id=str(uuid.uuid4()),
        subscription=subscription.id,
        event=word,
        at=event.at,
        workload=row.id,
        name=row.name,
        project=project.name if project is not None else row.project,
        user=row.user,
        message=message,
    )
