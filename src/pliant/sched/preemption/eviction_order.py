"""The eviction order: the order in which all portions would be lost. Queues are compared after each loss.

It is the reverse of the scheduling order: on each level the last queue loses first; in a project the lowest
priority, then portions above cores, then the youngest. The comparison does not count the portions that the
next project to lose has already lost.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from pliant.model.quantity import Resources
from pliant.model.workload import Workload
from pliant.sched.shares.fair_share import Standing
from pliant.sched.shares.queue_order import Measure, QueueOrder, queue_order
from pliant.sched.world.chunks import Step, core_priority, may_lose, priority_of
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import least

Turn = tuple[object, ...]
"""(priority, -step, -serial, place in its group, workload): the smallest of a project is lost first."""

Loss = tuple[Turn, Resources]
"""One portion that its workload could lose."""


class EvictionOrder:
    """The place of every portion that workloads could lose in a pool."""

    def __init__(self, world: World, pool: str, standing: Mapping[str, Standing]) -> None:
        self._world = world
        self._pool = pool
        self._standing = standing
        self._left: dict[str, list[Loss]] = {}  # project -> its portions, the first to be lost at the end
        for project, holders in world.holders.items():
            rows = [world.workloads[wid] for wid in holders] if project in world.projects else []
            losses = sorted((loss for row in rows for loss in _losses(world, pool, row)), reverse=True)
            if losses:
                self._left[project] = losses
        self._places: dict[str, list[tuple[Turn, int]]] = {project: [] for project in self._left}
        self._gone = dict.fromkeys(self._left, NOTHING)  # project -> its lost portions
        for at in range(sum(map(len, self._left.values()))):
            project = self._last([it for it, losses in self._left.items() if losses], 1)
            turn, amount = self._left[project].pop()
            self._gone[project] = self._gone[project].plus(amount)
            self._places[project].append((turn, at))

    def place(self, project: str, turn: Turn) -> int:
        """The place of such a portion in the order: smaller is lost first; 0 if the project loses nothing."""
        places = self._places.get(project)
        return places[min(bisect_left(places, (turn, 0)), len(places) - 1)][1] if places else 0

    def _last(self, projects: Iterable[str], level: int) -> str:
        """The project of these that loses next; all of them have the same queues above this level."""
        below: dict[str, list[str]] = {}
        for project in projects:
            below.setdefault(self._world.path(project)[-level], []).append(project)
        last = {it: it if it in self._left else self._last(mine, level + 1) for it, mine in below.items()}
        return last[max(last, key=lambda queue: self._key(queue, last[queue]))]

    def _key(self, queue: str, project: str) -> QueueOrder:
        """The place of a queue without what this project of it has lost and loses next."""
        standing, tally = self._standing[queue], self._world.tally(queue, self._pool)
        measure = Measure(standing.allocatable, self._world.capacity.get(self._pool, NOTHING))
        left = tally.claimed.minus(self._gone[project]).minus(self._left[project][-1][1])
        return queue_order(queue, standing, tally, NOTHING, measure, measure.share(*left))


def _losses(world: World, pool: str, victim: Workload) -> Iterator[Loss]:
    """What a workload may lose in a pool: its tasks above the core, and the core."""
    rows, core, age = world.tasks_of(victim.id), NOTHING, -victim.serial
    claims = [(row, it) for row in rows if (it := world.claim_of(row.key)) and world.pool_of(it.node) == pool]
    for group in victim.groups if may_lose(victim, Step.WANTED) else ():
        mine = [(row.index, claim.resources) for row, claim in claims if row.group == group.name]
        for at, (index, amount) in enumerate(mine):
            if at < least(group):
                core = core.plus(amount)
            else:
                yield (priority_of(victim, group), -Step.WANTED, age, -index, victim.id), amount
    if claims and may_lose(victim, Step.CORE):
        yield (core_priority(victim), -Step.CORE, age, 0, victim.id), core
