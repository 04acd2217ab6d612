"""Grow: lend idle GPUs that no pending workload needs, as bonus portions in fair order. Evicts none."""

from pliant.model.workload import TaskPhase
from pliant.sched.actions.context import Cycle
from pliant.sched.actions.intents import differs
from pliant.sched.placement import fit
from pliant.sched.world.chunks import Chunk, Part, Step
from pliant.sched.world.membership import ELASTIC
from pliant.sched.world.portions import bonus_chunks


def grow(cycle: Cycle) -> None:
    """Lend bonus first; background work gets what is left."""
    world = cycle.world
    elastic = sorted(world.now_in(ELASTIC))
    background = [wid for wid in elastic if world.workloads[wid].background]
    _lend(cycle, [wid for wid in elastic if not world.workloads[wid].background], 0)
    for turn in range(len(cycle.pools) if background else 0):
        _lend(cycle, background, turn)


def _lend(cycle: Cycle, workloads: list[str], turn: int) -> None:
    """Lend to each workload in the pool that is its choice number `turn`, from 0."""
    world, by_pool = cycle.world, dict[str, list[Chunk]]()
    for wid in workloads:
        workload = world.workloads[wid]
        if workload.project in world.projects:
            pools = cycle.choices(workload)[turn:]
            chunk = _next(cycle, wid, pools[0]) if pools else None
            if chunk is not None:
                by_pool.setdefault(pools[0], []).append(chunk)
    for pool, chunks in sorted(by_pool.items()):
        order = cycle.order(pool, ((chunk,) for chunk in chunks))
        while (job := order.pop()) is not None:
            chunk, adding = job
            before = world.gpu_of(chunk.workload.id)
            if cycle.try_place(chunk, pool, adding):
                cycle.placed(chunk, pool, "grow", before)
                following = _next(cycle, chunk.workload.id, pool)
                if following is not None:
                    order.push(following, cycle.adding(following, pool))


def _next(cycle: Cycle, wid: str, pool: str) -> Chunk | None:
    """The first bonus portion that may be given now and has idle room; only idle devices are lent.

    Background work gets its core and its wanted portions in the same way.
    """
    workload = cycle.world.workloads[wid]
    if cycle.world.need(wid).chunk is not None:
        return None  # it lacks something that it asked for
    for chunk in bonus_chunks(cycle.world, workload):
        part = chunk.parts[0]
        with cycle.opened(chunk):
            if chunk.step is Step.CORE:
                may = not cycle.rests(chunk) and _all_idle(cycle, chunk, pool)
            else:
                may = not cycle.rests(chunk) and _idle(cycle, chunk, part, pool) and _due(cycle, chunk, part)
        if may:
            return chunk
    return None


def _all_idle(cycle: Cycle, chunk: Chunk, pool: str) -> bool:
    world, mark = cycle.world, cycle.world.checkpoint()
    placed = fit.place(world, cycle.nodes_for(chunk.workload, pool), chunk, cycle.pool(pool))
    now = placed and all(fit.starts_now(world, part.task) for part in chunk.parts)
    world.undo(mark)
    return now


def _idle(cycle: Cycle, chunk: Chunk, part: Part, pool: str) -> bool:
    world = cycle.world
    if part.extends:
        claim = world.claim_of(part.task)
        node = world.nodes.get(claim.node) if claim is not None else None
        return node is not None and node.open and node.idle >= part.request.devices
    mark = world.checkpoint()
    placed = fit.place_again(world, cycle.nodes_for(chunk.workload, pool), part, cycle.pool(pool))
    claim = world.claim_of(part.task)
    world.undo(mark)
    return placed and claim is not None and fit.fits_now(world.nodes[claim.node], part.request)


def _due(cycle: Cycle, chunk: Chunk, part: Part) -> bool:
    """False if growing restarts the task too soon: it waits `grow_every`, doubled by each recent resize."""
    row, settings = cycle.world.tasks[part.task], cycle.settings
    claim = cycle.world.claim_of(part.task)
    if not part.extends or chunk.workload.group(row.group).live_resize:
        return True
    running = row.phase in (TaskPhase.RUNNING, TaskPhase.ORDERED)
    if not running or claim is None or row.carries is None or differs(claim, row.carries):
        return True  # nothing is restarted for it, or it restarts anyway
    recent = [at for at in row.resizes if at > cycle.now - settings.grow_window]
    if not recent:
        return True
    wait = min(settings.grow_every << (len(recent) - 1), settings.grow_wait_max)
    if recent[-1] + wait <= cycle.now:
        return True
    cycle.wake_at(recent[-1] + wait)
    return False
