"""Checks that every loss was needed: gives each victim one portion back and tries the winner again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pliant.model.quantity import Resources
from pliant.model.workload import Task, Workload
from pliant.sched.plan import Plan, Verb
from tests.sched.ledger import Books, Key, missing, overlaid
from tests.sched.room import Room, core_fit, may_have, without_bonus
from tests.sched.worlds import Scene


def irreducible(scene: Scene, plan: Plan) -> int:
    """Asserts that no victim of a plan could have kept a portion; returns the number of ways it tried.

    Checks plans in which one workload gets its core and only its victims change, for there the question has
    one meaning; returns 0 for others.
    """
    after = overlaid(scene, plan)
    takes = [d for d in plan.decisions if d.beneficiary and d.verb in (Verb.SHRINK, Verb.EVICT)]
    winners = {decision.beneficiary for decision in takes}
    if len(winners) != 1:
        return 0
    winner = scene.workloads[winners.pop()]
    moved = {d.workload for d in plan.decisions if d.verb is Verb.MOVE and d.beneficiary}
    victims = {decision.workload for decision in takes} - moved
    taken = {(decision.workload, task) for decision in takes for task in decision.tasks}
    changed = {key[0] for key, task in after.items() if task.claims != scene.tasks[key].claims}
    before = [task for task in scene.tasks.values() if task.workload == winner.id]
    gained = [after[task.key] for task in before if after[task.key].claims != task.claims]
    devices = sum(len(task.claims.shares) for task in gained if task.claims)
    if changed - victims - moved - {winner.id} or len(gained) != missing(winner, before):
        return 0
    if any(group.elastic for group in winner.groups) and devices != 1:
        return 0
    base = {key: scene.tasks[key] if key[0] == winner.id else task for key, task in after.items()}
    tried = 0
    released = {decision.workload for decision in plan.decisions if decision.action == "release"}
    for name in sorted(victims - released):  # some claims that these lost were void anyway
        for given in _portions_back(scene, scene.workloads[name], after):
            if not {task.key for task in given} <= taken:
                continue
            room = Room(scene, base.values())
            extra = [task.claims for task in given if task.claims]
            for key in (task.key for task in given):
                claims = base[key].claims
                if claims:
                    room.give(claims)
            if not all(room.fits(place) and scene.nodes[place.node].ready for place in extra):
                continue
            back = {task.key: task for task in given}
            if any(d.action == "preempt" for d in takes) and _wins(scene, winner, {**after, **back}):
                continue
            tried += 1
            kept = {**base, **back}
            assert core_fit(scene, kept, winner) is None, (
                f"{name} need not have lost {[task.key for task in given]} for {winner.name}"
            )
    return tried


def _wins(scene: Scene, winner: Workload, after: dict[Key, Task]) -> bool:
    """True if a queue of the winner gained and exceeds its quota, which no preemption may cause."""
    old, new = (Books.of(scene, without_bonus(scene, tasks).values()) for tasks in (scene.tasks, after))
    return any(
        used.gpu > max(old.used[queue, pool].gpu, new.deserved(queue, pool))
        and new.deserved(queue, pool) >= 0
        for (queue, pool), used in new.used.items()
        if queue in new.path(winner)
    )


def needless(scene: Scene, plan: Plan) -> None:
    """Asserts that no workload was moved or stopped whose old place is still free after the plan.

    Checks plans with one beneficiary: a later one may free a place that the first had to clear.
    """
    after = overlaid(scene, plan)
    if len({decision.beneficiary for decision in plan.decisions if decision.beneficiary}) != 1:
        return
    released = {decision.workload for decision in plan.decisions if decision.action == "release"}
    for decision in plan.decisions:
        if decision.verb not in (Verb.MOVE, Verb.EVICT) or not decision.beneficiary:
            continue
        if decision.workload in released:
            continue
        workload = scene.workloads[decision.workload]
        if missing(workload, [task for task in scene.tasks.values() if task.workload == workload.id]):
            continue  # the rest of a broken gang need not stay
        keys = [
            key
            for key, task in after.items()
            if key[0] == workload.id and task.claims != scene.tasks[key].claims
        ]
        rest = {key: replace(task, claims=None) if key in keys else task for key, task in after.items()}
        old = [place for key in keys if (place := scene.tasks[key].claims)]
        room, books = Room(scene, rest.values()), Books.of(scene, rest.values())
        free = bool(old)
        amount = Resources()
        for place in old:
            free = free and place.node in scene.nodes and scene.nodes[place.node].ready and room.fits(place)
            if not free:
                break
            room.take(place)
            amount = amount.plus(place.resources)
        if free:
            allowed = may_have(books, workload, books.pool(old[0].node), amount)
            if decision.action == "preempt" and decision.verb is Verb.EVICT:
                kept = {**after, **{key: scene.tasks[key] for key in keys}}
                allowed = allowed and not _wins(scene, scene.workloads[decision.beneficiary], kept)
            assert not allowed, f"{workload.name} could have stayed where it was: {decision}"


def _portions_back(scene: Scene, victim: Workload, after: dict[Key, Task]) -> Iterator[list[Task]]:
    """Each smallest thing that it could get back at its old place: its core, or one portion above it."""
    mine = [(scene.tasks[key], task) for key, task in after.items() if key[0] == victim.id]
    if not any(new.claims for _, new in mine):
        if missing(victim, [old for old, _ in mine]):
            return  # it had lost a part of its gang before: the rest alone is no core
        core: list[Task] = []
        for group in victim.groups:
            had = [(old, new) for old, new in mine if old.group == group.name and old.claims]
            for old, new in had[: group.min]:
                assert old.claims is not None
                first = old.claims.shares[:1] if group.elastic else old.claims.shares
                core.append(replace(new, claims=replace(old.claims, shares=first)))
        if core:
            yield core
        return
    for old, new in mine:
        if old.claims is None or old.claims == new.claims:
            continue
        if new.claims is None:
            yield [replace(new, claims=old.claims)]
        elif new.claims.node == old.claims.node and not victim.grow_doubling:
            for share in old.claims.shares:
                if share not in new.claims.shares:
                    more = replace(new.claims, shares=tuple(sorted((*new.claims.shares, share))))
                    yield [replace(new, claims=more)]
