"""Hasten: moves a task that waits for the release of its place to a place where it can start now."""

from dataclasses import replace
from itertools import chain

from pliant.model.reason import Hastened
from pliant.model.workload import Task, TaskPhase
from pliant.sched.actions.context import Cycle
from pliant.sched.placement import fit
from pliant.sched.plan import Decision, Verb
from pliant.sched.world.chunks import Part, workload_open


def hasten_first(cycle: Cycle) -> None:
    """Hasten before places are given out, if no waiting chunk could use one now: each has a live task."""
    world = cycle.world
    if "hasten" not in cycle.settings.actions or not world.adrift:
        return
    for rows in cycle.waiting().values():
        for chunk in chain.from_iterable(rows):
            if not any(world.tasks[part.task].phase.live for part in chunk.parts):
                return
    hasten(cycle)


def hasten(cycle: Cycle) -> None:
    """Runs after workloads without a place are served. Each move leads to a start, so nothing oscillates."""
    world = cycle.world
    waiting = {key[0] for key in world.adrift if world.tasks[key].phase is TaskPhase.WAITING}
    order = sorted((world.workloads[wid].serial, wid) for wid in waiting if wid in world.workloads)
    for _, wid in order:
        rows = world.tasks_of(wid)
        late = [row for row in rows if row.phase is TaskPhase.WAITING and not fit.starts_now(world, row.key)]
        resting = any(row.retry_at is not None and row.retry_at > cycle.now for row in late)
        if not late or resting or not cycle.placeable(wid) or not workload_open(world.workloads[wid]):
            continue
        if any(row.phase is TaskPhase.STOPPING for row in rows):
            continue  # it could not start yet, wherever its places are
        mark = world.checkpoint()
        if not _elsewhere(cycle, wid, late):
            world.undo(mark)


def _elsewhere(cycle: Cycle, wid: str, late: list[Task]) -> bool:
    """Give all of these tasks places where they can start now; False if impossible."""
    world, workload = cycle.world, cycle.world.workloads[wid]
    pool = cycle.choices(workload)[0]
    cls, before, old = cycle.nodes_for(workload, pool), world.gpu_of(wid), {}
    for row in late:
        old[row.key] = world.claim_of(row.key)
        world.claim(row.key, None)
    for row in late:
        claim, group = old[row.key], workload.group(row.group)
        assert claim is not None
        request = replace(group.request, devices=len(claim.shares)) if group.elastic else group.request
        if not fit.place_again(world, cls, Part(row.key, request), cycle.pool(pool)):
            return False
        if not fit.starts_now(world, row.key):
            return False
    claims = [claim for row in late if (claim := world.claim_of(row.key)) is not None]
    if world.gpu_of(wid) > before:
        return False  # GPU memory is a larger part of a smaller device
    sources = ", ".join(sorted({claim.node for claim in old.values() if claim is not None}))
    reason = Hastened(sources, ", ".join(sorted({claim.node for claim in claims})))
    names = tuple(row.name for row in late)
    cycle.record(Decision(Verb.MOVE, "hasten", wid, names, before, world.gpu_of(wid), reason))
    return True
