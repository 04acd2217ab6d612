"""Asks the core about a changed world: puts and drops rows, makes a plan, undoes the change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pliant.model.quantity import GPU
from pliant.model.workload import Task, Workload
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.shares.fair_share import INFINITE, bound
from pliant.sched.shares.queue_order import job_key
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.rows import Row
from pliant.sched.world.state import World

Decide = Callable[[World, int, Settings], Plan]
"""The core: the plan for a world at an instant (ms)."""


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to put and rows to drop. Drops come first; the tasks of a workload before it."""

    puts: tuple[Row, ...] = ()
    drops: tuple[Row, ...] = ()

    def and_then(self, other: "Change") -> "Change":
        return Change((*self.puts, *other.puts), (*self.drops, *other.drops))


class Trial:
    """Asks the core about changes of one world, and restores it after each."""

    def __init__(
        self, world: World, now: int, settings: Settings, decide: Decide, tries: int = 1 << 30
    ) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.core = decide
        self.tries = tries  # how often the core may still be asked

    def decide(self, change: Change, now: int | None = None) -> Plan:
        """The plan of the changed world."""
        self.tries -= 1
        before = apply(self.world, change)
        try:
            return self.core(self.world, self.now if now is None else now, self.settings)
        finally:
            apply(self.world, before)


def apply(world: World, change: Change) -> Change:
    """Make a change; returns the change that undoes it."""
    puts: list[Row] = []
    drops: list[Row] = []
    for row in change.drops:
        known = world.known(row)
        if known is not None:
            puts.insert(0, known)  # what was dropped last comes back first: a workload before its tasks
            world.drop(row)
    for row in change.puts:
        known = world.known(row)
        if known is None:
            drops.insert(0, row)
        else:
            puts.append(known)
        world.put(row)
    return Change(tuple(puts), tuple(drops))


def gone(world: World, workload: str) -> Change:
    """The change that removes a workload and all of its tasks."""
    return Change(drops=(*world.tasks_of(workload), world.workloads[workload]))


def gains(world: World, plan: Plan, workload: str) -> bool:
    """True if the plan gives the workload places that it has not now."""
    tasks = [task for task in plan.tasks if task.workload == workload]
    had = [world.tasks[task.key].claims for task in tasks if task.key in world.tasks]
    has = [task.claims for task in tasks]
    before = (sum(c is not None for c in had), sum(c.gpu for c in had if c is not None))
    after = (sum(c is not None for c in has), sum(c.gpu for c in has if c is not None))
    return after[0] > before[0] or after[1] > before[1]


def started(world: World, plan: Plan, workload: str) -> bool:
    """True if the plan gives the workload places, or starts it on those that it has."""
    return gains(world, plan, workload) or any(it.task.workload == workload for it in plan.starts)


def together(changes: Iterable[Change]) -> Change:
    """The changes one after the other, as one."""
    total = Change()
    for change in changes:
        total = total.and_then(change)
    return total


# ---------------------------------------------------------------------- a smaller world, the same answers


def narrowed(world: World, keep: Iterable[str]) -> World:
    """A copy without those waiting workloads that no decision can depend on; `keep` stay in any case.

    Of equal workloads of one project, the core places one only after all that come before it. So the first
    ones that together ask for all there is are enough. The others get nothing, and fair shares stay the same,
    because a queue counts at most with the whole pool or its quota.
    """
    world.update_sets()
    left_out = _beyond(world, frozenset(keep))
    copy = World()
    for it in world.rows(without=(Workload, Task)):
        copy.put(it)
    for wid, row in world.workloads.items():
        if wid not in left_out and not (row.phase.final and not world.need(wid).holds):
            copy.put(row)
            for task in world.tasks_of(wid):
                copy.put(task)
    copy.asked = world.asked.copied()  # nodes are ordered by all that was asked for, left out or not
    return copy


def _beyond(world: World, keep: frozenset[str]) -> set[str]:
    """Waiting workloads behind equal ones that together ask for all there is."""
    left_out: set[str] = set()
    for alike in world.alike.values():
        first = next(iter(alike.values()))
        gpu, need = first.resources.gpu, world.need(first.workload.id)
        enough = _enough(world, first.workload.project)
        if not gpu or gpu * len(alike) <= enough or need.holds or need.lacks_memory:
            continue
        asked = 0
        for chunk in sorted(alike.values(), key=job_key):
            if not _plain(world, chunk):
                continue
            if asked > enough and chunk.workload.id not in keep:
                left_out.add(chunk.workload.id)
            asked += gpu
    return left_out


def _plain(world: World, chunk: Chunk) -> bool:
    """True if the workload asks for all at once, so that it cannot differ later from equal ones."""
    workload = chunk.workload
    only = workload.groups[0]
    if len(workload.groups) > 1 or only.elastic:
        return False
    return only.max == len(chunk.parts) or len(world.keys_of(workload.id)) == len(chunk.parts)


def _enough(world: World, project: str) -> int:
    """Milli-GPUs beyond which it makes no difference how much a project asks for."""
    most = sum((world.capacity.get(pool, NOTHING).gpu for pool in world.pools), 0)
    if project in world.projects:
        for key in world.path(project):
            for _, quota in world.queue_of(key).quotas:
                due = bound(quota.gpu)
                most = max(most, due if due < INFINITE else 0)
    return most + SLACK


SLACK = 16 * GPU
"""Milli-GPUs that may be added to the machines or to a quota of a narrowed world."""
