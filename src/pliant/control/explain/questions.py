"""Answers what would unblock a workload, when it will start, and what-if questions, beside the loop."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pliant.control.board.fairness import Audit
from pliant.control.decider.pieces import lean
from pliant.control.decider.port import Known, Question
from pliant.control.errors import BadRequest, NotFound, Unavailable
from pliant.control.explain.lasting import PastRuns, known_for
from pliant.control.explain.supposing import suppose
from pliant.control.recording import Recorder
from pliant.control.state.draft import Draft
from pliant.model.event import EventKind
from pliant.model.quantity import listed
from pliant.model.reason import Cure, Estimate, Named
from pliant.model.workload import Desired, Phase, Task, Workload
from pliant.sched.cycle import decide
from pliant.sched.explain.drain import Draining, drained
from pliant.sched.explain.eta_model import estimate
from pliant.sched.explain.eta_replay import foretell
from pliant.sched.explain.never import never
from pliant.sched.explain.trial import apply, narrowed
from pliant.sched.explain.unblock import Unblocking
from pliant.sched.explain.what_if import WhatIf, what_if
from pliant.sched.shares.naming import workload_named

if TYPE_CHECKING:
    from pliant.control.loop import Loop

T = TypeVar("T")

KINDS = 1
"""Kinds of remedy after which the search for a quick answer ends."""

QUICK, FULL = 30_000, 2_000_000
"""About how many microseconds the core may take for the remedies of a quick and of a full answer."""

PLAYED = 1_500_000
"""About how many microseconds playing forward may take; in a full answer only."""

SMALL = 1_000
"""Number of workloads up to which it takes longer to leave out irrelevant ones than to keep all."""

DEEP = 8
"""Place in the queue behind which it is of little use to search for workloads whose end would help."""

ALL = 0.4
"""Seconds for the remedies of all waiting workloads together."""

TRIES = 4, 40
"""Questions to the core for each kind of waiting workload: few at first, more where few found no remedy."""

REMEMBERED = 10_000
"""Ms after which the past runs are read again."""

LARGE = 3_000
"""Number of workloads beyond which the core plays nothing forward."""


Cures = tuple[Cure, ...]
"""Steps that must be done together."""


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The answer about one waiting workload, besides its reason."""

    never: bool  # the machines could not hold it even if they were empty
    remedies: tuple[Cures, ...]
    estimate: Estimate
    complete: bool  # False: the time was up before all kinds of remedy were tried
    ahead: int = 0  # milli-GPUs for which those before it in the queue wait


@dataclass(frozen=True, slots=True)
class Suggested:
    """What would start the first of several workloads that request the same in the same way."""

    first: str  # id
    like: tuple[str, ...]  # ids of those that wait behind it for the same
    remedy: Cures | None  # None: none was found in time


@dataclass(frozen=True, slots=True)
class Supposed:
    """The answer to a what-if."""

    found: WhatIf
    names: Mapping[str, Named]  # of the workloads in it, by id


@dataclass(frozen=True, slots=True)
class Drained:
    """What becomes of the workloads on nodes: moves | waits | stops."""

    nodes: tuple[str, ...]
    workloads: tuple[tuple[Named, str], ...]


class Questions:
    """For any thread."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._past: tuple[int, Sequence[Workload]] = (0, ())  # (ms when read, what had ended)

    @property
    def recorder(self) -> Recorder:
        """The recorder of past cycles."""
        return self._loop.recorder

    @property
    def audit(self) -> Audit:
        """What each project was entitled to in the past hours, and what it received."""
        return self._loop.audit

    def unblock(self, identity: str, *, full: bool = False) -> Unblocked | None:
        """What would let it start, and when it will; None if it does not wait. `full`: a longer search."""
        cost = max(200, self._loop.board.cycle_us)
        now = self._loop.clock.now()
        work = partial(_unblock, now=now, identity=identity, ended=self._ended(now), cost=cost, full=full)
        return self._answered(work, None)

    def starts(self, identities: Sequence[str]) -> Mapping[str, Estimate]:
        """When those of them that wait will start, by id."""
        now = self._loop.clock.now()
        work = partial(_starts, now=now, identities=tuple(identities), ended=self._ended(now))
        return self._answered(work, {})

    def _answered(self, work: Question[T], otherwise: T) -> T:
        """The answer, or `otherwise` while the decider is in trouble, which every response then reports."""
        try:
            return self._loop.question(work)
        except Unavailable:
            if self._loop.decider.trouble:
                return otherwise
            raise

    def _ended(self, now: int) -> list[Workload]:
        """The deleted workloads that are remembered, read at most REMEMBERED ms ago."""
        if not 0 <= now - self._past[0] < REMEMBERED:
            self._past = now, self._loop.store.ended()
        return [lean(row) for row in self._past[1]]

    def suggest(self) -> tuple[Suggested, ...]:
        """One remedy for each kind of waiting workload, in queue order, as far as ALL seconds suffice."""
        return self._loop.question(partial(_suggested, now=self._loop.clock.now()))

    def what_if(self, said: Sequence[Mapping[str, Any]]) -> Supposed:
        """What would be different with all these changes; control.explain.supposing defines their form."""
        if not said:
            raise BadRequest("No change was given.", "Specify at least one change.")
        return self._loop.question(partial(_what_if, now=self._loop.clock.now(), said=list(said)))

    def preview(self, nodes: Sequence[str], *, stop: bool) -> Drained:
        """What would happen to the work on these nodes if they were drained."""
        return self._draining(nodes, stop)[0]

    def drain(self, nodes: Sequence[str], user: str, *, stop: bool) -> Drained:
        """Drain them: move what can move, let the rest run to its end or stop it."""
        told, plan = self._draining(nodes, stop)

        def run(draft: Draft) -> Drained:
            world = self._loop.world
            for name in nodes:
                if name not in world.nodes:  # removed since the question
                    raise NotFound(f"There is no node {name!r}.", "See them with: pliant node list")
                draft.put(replace(world.nodes[name].row, draining=True))
                counts = f"{len(plan.moves)} move, {len(plan.waits)} run to their end, {len(plan.stops)} stop"
                draft.event(f"node/{name}", EventKind.UPDATED, f"Drained by {user}: {counts}.", who=user)
            for row in plan.change.puts:
                task = world.tasks.get(row.key) if isinstance(row, Task) else None
                if task is not None and task.claims is not None and task.claims.node in nodes:
                    draft.put(replace(task, claims=None))
            for wid in (*plan.moves, *plan.stops):
                text = f"Evicted from {listed(nodes)}: drained by {user}."
                draft.event(wid, EventKind.STOPPING, text, who=user)
            return told

        return self._loop.call(run)

    def _draining(self, nodes: Sequence[str], stop: bool) -> tuple[Drained, Draining]:
        return self._loop.question(
            partial(_drained, now=self._loop.clock.now(), nodes=tuple(nodes), stop=stop)
        )


def _drained(state: Known, now: int, nodes: Sequence[str], stop: bool) -> tuple[Drained, Draining]:
    world = state.world
    for name in nodes:
        if name not in world.nodes:
            raise NotFound(f"There is no node {name!r}.", "See them with: pliant node list")
    plan = drained(world, now, state.settings, decide, nodes, stop=stop)
    told = tuple(
        (workload_named(world, wid), what)
        for what, wids in (("moves", plan.moves), ("waits", plan.waits), ("stops", plan.stops))
        for wid in wids
    )
    return Drained(tuple(nodes), told), plan


def _what_if(state: Known, now: int, said: Sequence[Mapping[str, Any]]) -> Supposed:
    world = state.world
    change = suppose(world, now, state.settings, said)
    found = what_if(world, now, state.settings, decide, change)
    ended = {row.id: workload_named(world, row.id) for row in change.drops if isinstance(row, Workload)}
    apply(world, change)  # so that new workloads have their names
    names = {
        it.workload: workload_named(world, it.workload)
        for it in found.differences
        if it.workload in world.workloads
    }
    return Supposed(found, {**ended, **names})


def _unblock(
    state: Known, now: int, identity: str, ended: Sequence[Workload], cost: int, full: bool
) -> Unblocked | None:
    row = state.world.workloads.get(identity)
    if row is None or row.desired is Desired.DELETED:
        raise NotFound(f"There is no workload {identity!r}.", "It may have been deleted already.")
    verdict = state.verdicts.of(identity)
    if verdict is None or row.held or row.phase in (Phase.COMPLETED, Phase.FAILED):
        return None  # a held workload does not compete: its reason says all
    large = len(state.world.workloads) > SMALL
    world = narrowed(state.world, [identity]) if large else state.world
    each = max(100, cost * len(world.workloads) // len(state.world.workloads))
    tries = max(40, FULL // each) if full else max(4, QUICK // each)
    deep = verdict.position > DEEP
    search = Unblocking(
        world, now, state.settings, decide, identity, tries=tries, enough=20 if full else KINDS, deep=deep
    )
    found = search.run(verdict.reason)
    remedies = tuple(remedy.steps for remedy in found)
    known = known_for(state.world, PastRuns([*state.world.workloads.values(), *ended]))
    when: Estimate | None = None
    waits = next((remedy.cure.count for remedy in found if remedy.kind == "wait"), None)
    if waits is not None:
        when = Estimate(now + waits, now + waits + 60_000, "wait")
    elif full and len(state.world.workloads) <= LARGE:
        when = foretell(state.world, now, state.settings, decide, identity, known, PLAYED // cost)
    if when is None:
        when = estimate(state.world, now, identity, known)
    impossible = never(state.world, now, state.settings, decide, identity)
    before = state.verdicts.workloads[: verdict.position - 1]
    needs = [state.world.need(wid) for wid in before if wid in state.world.wanting]
    ahead = sum(need.lacks.gpu for need in needs if not need.holds)
    return Unblocked(impossible, remedies, when, search.trial.tries > 0, ahead)


def _starts(
    state: Known, now: int, identities: Sequence[str], ended: Sequence[Workload]
) -> Mapping[str, Estimate]:
    known = known_for(state.world, PastRuns([*state.world.workloads.values(), *ended]))
    return {wid: estimate(state.world, now, wid, known) for wid in identities if wid in state.verdicts.places}


def _suggested(state: Known, now: int) -> tuple[Suggested, ...]:
    """One search for each set of workloads that wait for the same; it is about the first of them."""
    until = time.monotonic() + ALL
    world, verdicts, places = state.world, state.verdicts, state.verdicts.places
    world.update_sets()
    kinds = [
        sorted(known, key=places.__getitem__)
        for alike in world.alike.values()
        if (known := [wid for wid in alike if wid in places])
    ]
    kinds.sort(key=lambda wids: places[wids[0]])
    if len(world.workloads) > SMALL:
        world = narrowed(world, [wids[0] for wids in kinds])
    found: dict[str, Cures] = {}
    for tries in TRIES:
        for first, *_ in kinds:
            if first not in found and time.monotonic() < until:
                deep = places[first] > DEEP
                search = Unblocking(
                    world, now, state.settings, decide, first, tries=tries, enough=1, deep=deep
                )
                found.update((first, it.steps) for it in search.run(verdicts.reason(first))[:1])
    return tuple(Suggested(first, tuple(like), found.get(first)) for first, *like in kinds)
