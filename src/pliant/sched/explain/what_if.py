"""What a change would do: compares a world at rest with the changed world at rest."""

from dataclasses import dataclass

from pliant.model.reason import Reason
from pliant.sched.explain.foresee import Outcome, come_to_rest
from pliant.sched.explain.trial import Change, Decide, apply
from pliant.sched.plan import Decision
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

Seats = tuple[tuple[str, int, int], ...]
"""(node, milli-GPUs, tasks) by node."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One workload with another outcome."""

    workload: str  # id
    before: Seats  # empty: it waits
    after: Seats
    what: str  # starts | waits | moves | grows | shrinks | new | gone
    reason: Reason | None  # None: nothing was decided about it


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All differences, ordered by workload id, and how much is in use before and after."""

    differences: tuple[Difference, ...]
    gpus_before: int  # milli-GPUs in use
    gpus_after: int
    waiting_before: int  # workloads
    waiting_after: int


def what_if(
    world: World,
    now: int,
    settings: Settings,
    decide: Decide,
    change: Change,
    then_settings: Settings | None = None,
) -> WhatIf:
    """The differences; the world is left as it was. `then_settings`: for the changed world, if others."""
    today = come_to_rest(world, now, settings, decide)
    apply(world, today.undo)
    undo = apply(world, change)
    then = come_to_rest(world, now, then_settings or settings, decide)
    apply(world, then.undo)
    apply(world, undo)
    found = [_difference(wid, today, then) for wid in sorted({*today.placed, *then.placed})]
    return WhatIf(
        tuple(it for it in found if it is not None),
        _gpus(today),
        _gpus(then),
        sum(not seats for seats in today.placed.values()),
        sum(not seats for seats in then.placed.values()),
    )


def _gpus(outcome: Outcome) -> int:
    return sum(gpu for seats in outcome.placed.values() for _, gpu, _ in seats)


def _difference(wid: str, today: Outcome, then: Outcome) -> Difference | None:
    before, after = today.placed.get(wid), then.placed.get(wid)
    if before == after:
        return None
    if before is None:
        what = "new"
    elif after is None:
        what = "gone"
    elif not before:
        what = "starts"
    elif not after:
        what = "waits"
    else:
        had, has = sum(seat[1] for seat in before), sum(seat[1] for seat in after)
        tasks = sum(seat[2] for seat in before), sum(seat[2] for seat in after)
        what = "grows" if (has, tasks[1]) > (had, tasks[0]) else "shrinks" if has < had else "moves"
    decided: Decision | None = next((it for it in reversed(then.decisions) if it.workload == wid), None)
    verdict = then.verdicts.reason(wid)
    reason = verdict if verdict is not None and not after else decided.reason if decided else verdict
    return Difference(wid, before or (), after or (), what, reason)
