"""Refining: is there a lighter set of victims than the one that was found node by node?

The first set is found greedily. While the budget lasts, others are tried: without one of its victims, and
beginning with somebody else who may be enough in the stead of several.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pliant.sched.preemption.node_eviction import Clearing
from pliant.sched.preemption.victims import Cost, Rules, Unit, fresh, rank, unit_for
from pliant.sched.world.chunks import Step


class Way(NamedTuple):
    """How else to look for victims."""

    spare: str = ""  # a workload that keeps its core
    first: str = ""  # a workload that loses all it has before anything else


def lighter(
    rules: Rules,
    clearing: Clearing,
    mark: int,
    found: list[Unit],
    each: int,
    by: Callable[[list[Unit]], list[Unit] | None],
) -> list[Unit]:
    """The lightest set of victims among the one that was found and those `by` finds, which stands afterwards.

    `by` makes room beginning with what was taken already, and answers None if there is no way.
    Each try costs the cycle's budget `each`. The world was as it is to be without victims at the mark.
    """
    world, cycle = rules.world, rules.cycle
    if not cycle.settings.refine or cycle.refinements < each:
        return found
    best, price, solution = found, clearing.price(found), world.since(mark)
    overdrawn, denied = set(rules.overdrawn), set(rules.denied)
    tried: set[Way] = set()
    world.undo(mark)
    others = not (rules.in_turn and _loose(rules))
    while cycle.refinements >= each:
        way = next((way for way in _ways(rules, best, price, others) if way not in tried), None)
        if way is None:
            break
        tried.add(way)
        cycle.refinements -= each
        world.undo(mark)
        first = _taken_whole(clearing, rules, way.first) if way.first else []
        rules.spare = way.spare
        units = by(first) if first is not None else None
        rules.spare = ""
        if units is not None and (cost := clearing.price(units)) < price:
            best, price, solution = units, cost, world.since(mark)
    world.undo(mark)
    rules.overdrawn, rules.denied = overdrawn, denied
    for key, claim in solution.items():
        world.claim(key, claim)
    return best


def begun_with_another(
    rules: Rules, clearing: Clearing, mark: int, each: int, by: Callable[[list[Unit]], list[Unit] | None]
) -> bool:
    """Where who goes first decides who may go at all: try beginning with each that is large enough to matter.

    True if that finds victims; otherwise the world is as at the mark.
    """
    world, cycle = rules.world, rules.cycle
    if cycle.refinements < each or _loose(rules):
        return False
    for wid in _others(rules, set()):
        if cycle.refinements < each:
            break
        cycle.refinements -= each
        world.undo(mark)
        first = _taken_whole(clearing, rules, wid)
        if first and by(first) is not None:
            return True
    world.undo(mark)
    return False


def _loose(rules: Rules) -> bool:
    """True if somebody else holds what goes before anybody's core: bonus, or what this cycle gave it."""
    world = rules.world
    given = {wid for wid, _ in world.changed() if world.gpu_of(wid) and fresh(world, wid)}
    lent = {wid for wid in world.stretched if world.need(wid).bonus_gpu}
    return any(world.workloads[wid].project != rules.chunk.workload.project for wid in given | lent)


def _ways(rules: Rules, units: list[Unit], price: Cost, others: bool) -> Iterator[Way]:
    """Other ways than the one that led to these units, which cost so much; `others`: others may go first."""
    victims = {unit.workload for unit in units if unit.step is Step.CORE and unit.again is None}
    for wid in sorted(victims, key=lambda wid: rank(rules, wid), reverse=True):
        yield Way(spare=wid)
    for wid in _others(rules, victims) if price[0] and others else ():
        if (1, rules.world.gpu_of(wid)) <= price[:2]:
            yield Way(first=wid)


def _others(rules: Rules, victims: set[str]) -> list[str]:
    """Who else holds GPUs, the largest first."""
    world = rules.world
    found = [
        wid
        for project, holders in sorted(world.holders.items())
        if project in world.projects
        for wid in holders
        if wid not in victims and wid != rules.chunk.workload.id and world.gpu_of(wid)
    ]
    return sorted(found, key=lambda wid: (-world.gpu_of(wid), rank(rules, wid)))


def _taken_whole(clearing: Clearing, rules: Rules, wid: str) -> list[Unit] | None:
    """Take all that a workload has, portions before the core; None if it may not go. The caller undoes."""
    world = rules.world
    units: list[Unit] = []
    for key in reversed(world.keys_of(wid)):
        while (claim := world.claim_of(key)) is not None:
            if world.pool_of(claim.node) != rules.pool:
                return None
            unit = unit_for(rules, key, claim.shares[-1].gpu if claim.shares else None)
            if unit is None or unit.again is not None or not clearing.spend(1):
                return None
            clearing.apply(unit)
            units.append(unit)
    return units
