"""The order of eviction: in which all portions would be lost, with queues compared after each loss.

It is the reverse of the scheduling order: on each level the last queue, in a project the lowest priority,
then portions above cores, then the youngest. Portions that are already lost do not count when two queues
are compared.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pliant.model.quantity import Resources
from pliant.model.workload import Workload
from pliant.sched.shares.fair_share import Standing
from pliant.sched.shares.queue_order import ROOT, dominant, measure_of, queue_order
from pliant.sched.world.chunks import Step, core_priority, may_lose, priority_of
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import least

Turn = tuple[int, int, int, int, str]
"""Of a portion inside its project: priority, minus its step, age, its place in its group, workload."""

Worst = tuple[int, ...]
"""The reversed key of a queue: the smallest loses first."""


class Loss(NamedTuple):
    """One portion that its workload could lose."""

    turn: Turn
    amount: Resources


class EvictionOrder:
    """The place of every portion that the workloads of some projects could lose in a pool."""

    def __init__(
        self, world: World, pool: str, standing: Mapping[str, Standing], victims: Iterable[Workload]
    ) -> None:
        self._world = world
        self._pool = pool
        self._standing = standing
        self._left: dict[str, list[Loss]] = {}  # project -> its portions, the first to be lost at the end
        for victim in victims:
            losses = list(_losses(world, pool, victim))
            if losses:
                self._left.setdefault(victim.project, []).extend(losses)
        self._turns: dict[str, list[Turn]] = {}
        self._places: dict[str, list[int]] = {project: [] for project in self._left}
        for project, losses in self._left.items():
            losses.sort(key=lambda loss: loss.turn, reverse=True)
            self._turns[project] = [loss.turn for loss in reversed(losses)]
        self._gone = dict.fromkeys(self._left, NOTHING)  # project -> its lost portions
        self._older = {key: at for at, key in enumerate(sorted(standing))}
        self._below: dict[str, dict[str, None]] = {}  # queue -> those below it that have something to lose
        self._keys: dict[str, Worst] = {}  # of queues below which nothing was lost since they were calculated
        for project in self._left:
            for child, parent in self._links(project):
                self._below.setdefault(parent, {})[child] = None
        for at in range(sum(map(len, self._left.values()))):
            self._take(at)

    def place(self, project: str, turn: Turn) -> int:
        """When such a portion is lost: a smaller number goes first."""
        turns = self._turns.get(project)
        if not turns:
            return 0
        return self._places[project][min(bisect_left(turns, turn), len(turns) - 1)]

    def _take(self, at: int) -> None:
        project = self._next(ROOT)
        loss = self._left[project].pop()
        self._gone[project] = self._gone[project].plus(loss.amount)
        self._places[project].append(at)
        for child, parent in self._links(project):
            self._keys.pop(child, None)
            if not (self._left.get(child) or self._below.get(child)):
                del self._below[parent][child]

    def _next(self, queue: str) -> str:
        """The project that loses next below a queue."""
        while queue not in self._left:
            queue = min(self._below[queue], key=self._key)
        return queue

    def _key(self, queue: str) -> Worst:
        found = self._keys.get(queue)
        if found is None:
            found = self._keys[queue] = self._worst(queue)
        return found

    def _worst(self, queue: str) -> Worst:
        """Without what was taken and what is lost next, where shares are compared."""
        project, standing = self._next(queue), self._standing[queue]
        tally = self._world.tally(queue, self._pool)
        measure = measure_of(standing.allocatable, self._world.capacity.get(self._pool, NOTHING))
        key = queue_order(queue, standing, tally, NOTHING, measure)
        left = tally.claimed.minus(self._gone[project]).minus(self._left[project][-1].amount)
        return (
            -key.above_fair_share,
            -key.above_quota,
            -key.rank,
            -key.beyond_reach,
            -dominant(*left, measure),
            -key.share,
            -key.reach,
            -key.created,
            -self._older[queue],
        )

    def _links(self, project: str) -> Iterable[tuple[str, str]]:
        """(child, parent) from the project up to the root."""
        path = self._world.path(project)
        return zip(path, (*path[1:], ROOT), strict=True)


def _losses(world: World, pool: str, victim: Workload) -> Iterator[Loss]:
    """What a workload has in a pool: its tasks above the core, the last first, and the core."""
    rest = NOTHING
    keys = [
        key
        for key in world.keys_of(victim.id)
        if (it := world.claim_of(key)) and world.pool_of(it.node) == pool
    ]
    for group in victim.groups:
        mine = sorted(
            (key for key in keys if world.tasks[key].group == group.name),
            key=lambda key: world.tasks[key].index,
        )
        for at, key in enumerate(mine):
            claim = world.claim_of(key)
            assert claim is not None
            if at < least(group):
                rest = rest.plus(claim.resources)
                continue
            index, own = world.tasks[key].index, priority_of(victim, group)
            turn = (own, -Step.WANTED, -victim.serial, -index, victim.id)
            yield Loss(turn, claim.resources)
    if keys and may_lose(victim, Step.CORE):
        yield Loss((core_priority(victim), -Step.CORE, -victim.serial, 0, victim.id), rest)
