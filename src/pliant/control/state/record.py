"""Turns a plan into rows, history, and the orders to send once these are on disk."""

from dataclasses import replace

from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.event import EventKind
from pliant.model.order import Order, Resize, Start, Stop
from pliant.model.reason import Preempted
from pliant.model.workload import Attempt, Workload
from pliant.sched.plan import Decision, Plan, Verb

_KINDS = {
    Verb.PLACE: EventKind.STARTED,
    Verb.GROW: EventKind.GROWN,
    Verb.SHRINK: EventKind.SHRUNK,
    Verb.MOVE: EventKind.MOVED,
}
_EVICTIONS = {
    "reclaim": EventKind.RECLAIMED,
    "preempt": EventKind.PREEMPTED,
    "shrink": EventKind.SHRUNK,
    "stale": EventKind.STOPPING,
}


def event_kind(decision: Decision) -> EventKind:
    """The kind of event that records a decision."""
    if decision.verb is Verb.EVICT:
        return _EVICTIONS.get(decision.action, EventKind.STOPPING)
    return _KINDS[decision.verb]


def _preempted(decision: Decision, plan: Plan) -> tuple[str, ...]:
    """Tasks that a workload, whose core stays, loses entirely to higher priority."""
    if decision.verb is not Verb.SHRINK or decision.reason.code != Preempted.code:
        return ()
    gone = {row.name for row in plan.tasks if row.workload == decision.workload and row.claims is None}
    return tuple(name for name in decision.tasks if name in gone)


def record_plan(state: State, plan: Plan, draft: Draft, number: int) -> list[Order]:
    """Put the plan's rows and history into the draft; the orders to send after the commit.

    `number` is the number of the ask that the plan answers.
    """
    prefix = f"{state.epoch}.{number}"
    if (plan.standings, plan.protections) != (state.standings, state.protections):
        state.standings, state.protections, state.moved = plan.standings, plan.protections, True

    def cause(index: int) -> str:
        return f"{prefix}.{index}" if index >= 0 else prefix

    for index, decision in enumerate(plan.decisions):
        lost, words = _preempted(decision, plan), decision.reason.text(draft.now)
        draft.event(
            decision.workload,
            EventKind.PREEMPTED if lost else event_kind(decision),
            f"{', '.join(lost)}: {words}" if lost else words,
            reason=decision.reason,
            decision=cause(index),
        )
        state.reasons[decision.workload] = decision.reason
    for row in plan.tasks:
        state.put(draft, row)
    for count in plan.disruptions:
        state.put(draft, count)
    orders: list[Order] = []
    for start in plan.starts:
        why, begun = cause(start.decision), start.attempt
        workload = state.world.workloads[begun.workload]
        state.put(draft, Attempt(begun, start.placement, state.epoch, why, draft.now))
        orders.append(Start(begun, start.placement, workload, why, state.epoch))
    for stop in plan.stops:
        why = cause(stop.decision)
        attempt = state.attempts.get(stop.attempt)
        if attempt is None:
            continue
        workload = state.world.workloads[stop.attempt.workload]
        state.put(draft, replace(attempt, stop_cause=why, stop_ordered=draft.now))
        orders.append(Stop(stop.attempt, attempt.placement.node, workload.launch.grace, why, state.epoch))
    for resize in plan.resizes:
        workload = state.world.workloads[resize.attempt.workload]
        why = cause(resize.decision)
        orders.append(Resize(resize.attempt, resize.placement, workload.launch.grace, why, state.epoch))
    _note_verdicts(state, plan, draft)
    return orders


def _note_verdicts(state: State, plan: Plan, draft: Draft) -> None:
    """Keep the newest verdict of each waiting workload; history gets a line when its kind changes."""
    before = state.verdicts
    gone = {it.row.id for it in state.news if it.gone and isinstance(it.row, Workload)}  # since the ask
    after = state.verdicts = plan.verdicts.without(gone).follow(before)
    for identity, reason in after.recoded(before):
        draft.event(identity, EventKind.PENDING, reason.text(draft.now), reason=reason)
        state.touched.add(identity)
    state.touched |= after.lost(before)
    state.told |= before != after
