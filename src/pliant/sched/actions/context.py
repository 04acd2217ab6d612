"""The state of one cycle: what the actions share, record and leave behind for the plan."""

from collections.abc import Iterable, Iterator, Mapping
from operator import gt
from typing import TYPE_CHECKING, NamedTuple

from pliant.model.quantity import Resources
from pliant.model.reason import Grown, Placed, Reason
from pliant.model.workload import Workload
from pliant.sched.actions.reservation import Reserving
from pliant.sched.placement import eligibility, fit
from pliant.sched.placement.equivalence import Destinations, Kin
from pliant.sched.placement.staying import stay
from pliant.sched.plan import Decision, QueueStanding, Verb
from pliant.sched.preemption.churn import Churn
from pliant.sched.settings import Settings
from pliant.sched.shares.admission import Refusal, asked, exceeded, refuse
from pliant.sched.shares.ageing import aged
from pliant.sched.shares.fair_share import INFINITE, Standing
from pliant.sched.shares.naming import queue_named
from pliant.sched.shares.protection import Guarantee
from pliant.sched.shares.queue_order import Order, Row, job_key
from pliant.sched.shares.standings import pending, standings
from pliant.sched.world.node_classes import spec_of
from pliant.sched.world.nodes import NodeClass, TaskKey
from pliant.sched.world.portions import Chunk, Step, priority_of, waiting_since
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.state import World

if TYPE_CHECKING:
    from pliant.sched.preemption.kept import Kept

Lane = tuple[int, str]
"""A pool as the first (0), second, ... choice of workloads."""


class Block(NamedTuple):
    """Why a chunk, and others that are alike, got no place when it was tried."""

    chunk: Chunk
    pool: str
    adding: Resources
    refusal: Refusal | None
    kin: Kin


REFINEMENTS = 2_000
"""Nodes times tasks that a cycle may look at for lighter sets of victims than those it found first."""


class Cycle(Destinations):
    def __init__(self, world: World, now: int, settings: Settings) -> None:
        super().__init__(world, settings)
        self.now = now
        self.decisions: list[Decision] = []
        self.blocked: dict[str, Block] = {}  # by workload: what it could not get
        # What each lane could not give: kin -> workload -> what it asked for.
        self.failures: dict[Lane, dict[Kin, dict[str, Chunk]]] = {}
        self.resting: dict[str, TaskKey] = {}  # workload -> its task in back-off for which its chunk waits
        # A victim, until when (ms) it is safe, and whose setting says so.
        self.protected: dict[Kin, tuple[str, int, Guarantee]] = {}
        self.delays: dict[str, int] = {}  # workload -> when (ms) it may take from others
        self.outwaited: dict[Kin, tuple[str, int, int]] = {}  # a victim, its priority and aged priority
        self.churn = Churn(world, now, settings)
        self.withheld: dict[Kin, str] = {}  # project whose budget keeps its work from being disturbed
        self.reserving = Reserving(self)
        self.unentitled: set[Kin] = set()  # those whose project has all it is due
        self.positions: dict[str, int] = {}
        self.wake: int | None = None
        self.steps = settings.search_steps
        self.refinements = REFINEMENTS
        self.void: set[TaskKey] = set()  # tasks whose claims were void: they have no place to keep
        self.released = False  # some hypothesis succeeded: others may profit from what is left
        self.pools = eligibility.all_pools(world)
        self._standing: dict[str, Mapping[str, Standing]] = {}
        self._bare: dict[tuple[str, bool], Mapping[str, Standing]] = {}
        self._pending: dict[str, dict[str, Resources]] | None = None
        self._unfit: set[tuple[object, ...]] = set()
        self._over: dict[str, tuple[int, tuple[str, ...]]] = {}  # pool -> (version, queues above quota)
        self._lent: dict[str, tuple[int, dict[str, int]]] = {}  # pool -> (version, queue -> bonus in it)
        self._largest: dict[str, int] = {}
        self.kept: dict[Kin, Kept] = {}  # prices from the last hunt for chunks of a kind

    # ------------------------------------------------------------------ who waits
    def lanes(self) -> dict[Lane, list[Row]]:
        """What wanting workloads ask for next, by lane, in the order in which lanes are served."""
        world = self.world
        world.settle()
        found: dict[Lane, list[Row]] = {}
        for alike in world.kinds.values():
            row = sorted(alike.values(), key=job_key) if len(alike) > 1 else list(alike.values())
            workload = row[0].workload
            if workload.project not in world.projects or self.rests(row[0]):
                continue
            for turn, pool in enumerate(self.choices(workload)):
                found.setdefault((turn, pool), []).append(row)
        return {lane: found[lane] for lane in self.turns() if lane in found}

    def asks(self, chunk: Chunk) -> bool:
        """True if this is still what its workload asks for next."""
        now = self.world.need(chunk.workload.id).chunk
        return now is chunk or now == chunk

    def turns(self) -> Iterator[Lane]:
        """(choice number, pool) in the order in which pools are served."""
        for turn in range(len(self.pools)):
            for pool in self.pools:
                yield turn, pool

    def rests(self, chunk: Chunk) -> bool:
        """True if some task of the chunk is in back-off; remembers when that ends."""
        for part in chunk.parts:
            row = self.world.tasks[part.task]
            if row.retry_at is not None and row.retry_at > self.now:
                self.wake_at(row.retry_at)
                self.resting[chunk.workload.id] = part.task
                return True
        return False

    def delayed(self, workload: Workload) -> bool:
        """True if it has not waited for long enough to take from others; remembers when it has."""
        until = waiting_since(workload) + workload.preemption_delay
        if not workload.preemption_delay or until <= self.now:
            return False
        self.wake_at(until)
        self.delays[workload.id] = until
        return True

    # ------------------------------------------------------------------ who is entitled to what
    def standing(self, pool: str) -> Mapping[str, Standing]:
        """Fair shares of a pool, computed once a cycle from what was claimed and pending at its start."""
        if pool not in self._standing:
            asked = self._asked(pool)
            self._standing[pool] = bare = self._shares(pool, asked)
            less = dict(asked)
            for wid in self.world.stretched:
                workload, bonus = self.world.workloads[wid], self.world.need(wid).bonus_gpu
                if bonus and pool in self.choices(workload):
                    less[workload.project] = less.get(workload.project, NOTHING).minus(Resources(bonus))
            if less != asked:
                bare = self._shares(pool, less)
            queues = (*self.world.projects.values(), *self.world.departments.values())
            weightless = any(queue.quota(pool).weight == 0 for queue in queues)
            self._bare[pool, False] = bare
            self._bare[pool, True] = self._shares(pool, less, lend=True) if weightless else bare
        return self._standing[pool]

    def standings(self) -> Iterator[QueueStanding]:
        """Of all queues in all pools: the numbers with which this cycle decides."""
        for pool in self.pools:
            standing = self._standing.get(pool) or self._shares(pool, self._asked(pool))
            for key, it in standing.items():
                quota = it.deserved.gpu
                yield QueueStanding(key, pool, -1 if quota >= INFINITE else quota, it.fair.gpu)

    def _asked(self, pool: str) -> Mapping[str, Resources]:
        """What the workloads of each project still ask for in a pool."""
        if self._pending is None:
            self._pending = pending(self.world, now=self.now)
        return self._pending.get(pool, {})

    def _shares(
        self, pool: str, asked: Mapping[str, Resources], lend: bool = False
    ) -> Mapping[str, Standing]:
        return standings(self.world, pool, asked, self.settings.past_use, lend)

    def bare(self, pool: str, lend: bool = False) -> Mapping[str, Standing]:
        """The same as if nobody held a bonus; with `lend` what is nobody's due goes to those of weight 0."""
        self.standing(pool)
        return self._bare[pool, lend]

    def own(self, key: str, pool: str) -> Resources:
        """What a project or department claims of a pool now, what its workloads hold as bonus left out."""
        world = self.world
        claimed = world.claimed(key, pool)
        if not world.stretched:  # nobody comes to hold a bonus but by growing, which comes last
            return claimed
        version, lent = self._lent.get(pool, (-1, {}))
        if version != world.version:
            lent = {}
            for wid in world.stretched:
                workload = world.workloads[wid]
                if workload.project in world.projects and pool in self.choices(workload):
                    for queue in world.path(workload.project):
                        lent[queue] = lent.get(queue, 0) + world.need(wid).bonus_gpu
            self._lent[pool] = world.version, lent
        return claimed.minus(Resources(lent.get(key, 0)))

    def donors(self, pool: str, project: str) -> bool:
        """True if some other project or department holds more of a pool than its quota."""
        version, over = self._over.get(pool, (-1, ()))
        if version != self.world.version:
            version = self.world.version
            over = tuple(key for key, it in self.standing(pool).items() if self._gives(key, pool, it))
            self._over[pool] = (version, over)
        own = self.world.path(project)
        return any(key not in own for key in over)

    def _gives(self, key: str, pool: str, it: Standing) -> bool:
        claimed = self.world.claimed(key, pool)
        above = any(map(gt, claimed, it.deserved))
        if above or "allocate" in self.settings.actions:
            return above
        # Where nothing allocates, who might have to give opens the way to what is idle.
        fixed = self.world.tally(key, pool).fixed_gpu
        return claimed.gpu >= it.deserved.gpu and claimed.gpu > fixed

    def largest(self, project: str) -> int:
        """Milli-GPUs of the largest preemptible workload of a project when it was first asked for."""
        found = self._largest.get(project)
        if found is None:
            world = self.world
            held = (wid for wid in world.holders.get(project, ()) if world.workloads[wid].preemptible)
            found = self._largest[project] = max(map(world.gpu_of, held), default=0)
        return found

    def lowest_priority(self, project: str) -> int | None:
        """Of the groups of preemptible workloads of a project that hold anything."""
        world = self.world
        world.settle()
        return min(
            (
                min(priority_of(row, group) for group in row.groups)
                for wid in world.holders.get(project, ())
                if (row := world.workloads[wid]).preemptible
            ),
            default=None,
        )

    def adding(self, chunk: Chunk, pool: str) -> Resources:
        """What the chunk adds to its queues; memory of GPUs counts on the largest device it may land on."""
        if not chunk.by_memory:
            return chunk.resources
        return asked(chunk, self.nodes_for(chunk.workload, pool).largest[1])

    def refuse(self, chunk: Chunk, pool: str, adding: Resources) -> Refusal | None:
        workload = chunk.workload
        return refuse(self.world, self.standing(pool), workload.project, pool, adding, workload.preemptible)

    def exceeded(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        """True if the chunk, placed, takes more than its queues may have."""
        workload = chunk.workload
        standing = self.standing(pool)
        return exceeded(self.world, standing, workload.project, pool, adding, workload.preemptible)

    # ------------------------------------------------------------------ trying
    def try_place(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        """Place a chunk on what nobody claims, or leave everything as it is."""
        world = self.world
        if self.refuse(chunk, pool, adding) is not None:
            return False
        cls = self.class_for(chunk, pool)
        shape = (pool, cls.types, chunk.shape)
        if not chunk.extends and shape in self._unfit:
            return False
        mark = world.checkpoint()
        placed = stay(self, chunk) or fit.place(world, cls, chunk, self.pool(pool))
        if not placed and not self._relocated(chunk, cls, pool):
            if not chunk.extends:
                self._unfit.add(shape)
            return False
        if chunk.by_memory and self.exceeded(chunk, pool, adding):
            world.undo(mark)  # on the devices where it would land it is more than its queues may have
            return self._on_larger(chunk, cls, pool, adding)
        return True

    def _on_larger(self, chunk: Chunk, cls: NodeClass, pool: str, adding: Resources) -> bool:
        """Place a chunk that asks for GPU memory on larger devices only, of which it is a smaller part."""
        mark = self.world.checkpoint()
        for size in cls.sizes[1:]:
            larger = self.world.narrowed(cls, spec_of(cls)._replace(device_memory=size))
            placed = fit.place(self.world, larger, chunk, self.pool(pool))
            if placed and not self.exceeded(chunk, pool, adding):
                return True
            self.world.undo(mark)
        return False

    def _relocated(self, chunk: Chunk, cls: NodeClass, pool: str) -> bool:
        """A wanted portion that its node has no room for may be had on another, for a restart."""
        if chunk.step is not Step.WANTED or not chunk.extends:
            return False
        part = chunk.parts[0]
        group = chunk.workload.group(self.world.tasks[part.task].group)
        return fit.relocate(self.world, cls, part, self.pool(pool), group)

    def room_freed(self) -> None:
        """Something was released: what did not fit may fit now."""
        self._unfit.clear()
        self.released = True

    # ------------------------------------------------------------------ recording
    def order(self, pool: str, rows: Iterable[Row]) -> Order:
        jobs = ((row, self.adding(row[0], pool)) for row in rows if row)
        aged = self.aged if self.settings.ageing else None
        return Order(self.world, pool, self.standing(pool), jobs, aged)

    def aged(self, workload: Workload, priority: int) -> int:
        """A priority with what the workload has won by waiting."""
        return aged(workload, priority, self.now, self.settings)

    def looked_at(self, workload: str) -> None:
        self.positions.setdefault(workload, len(self.positions) + 1)

    def wake_at(self, instant: int) -> None:
        if instant > self.now and (self.wake is None or instant < self.wake):
            self.wake = instant

    def placed(self, chunk: Chunk, pool: str, action: str, before: int, bonus: bool = False) -> None:
        """Record that a chunk got its place."""
        world, workload = self.world, chunk.workload
        claims = [world.claim_of(part.task) for part in chunk.parts]
        nodes = sorted({claim.node for claim in claims if claim is not None})
        after = world.gpu_of(workload.id)
        reason: Reason
        if chunk.step is Step.CORE:
            pool = world.pool_of(nodes[0])  # it may have stayed in another
            standing = self.standing(pool)[workload.project]
            quota = standing.deserved.gpu
            reason = Placed(
                ", ".join(nodes),
                after - before,
                queue_named(world.projects[workload.project]),
                world.tally(workload.project, pool).gpu,
                -1 if quota >= INFINITE else quota,
            )
        else:
            asks = sum(group.request.devices * group.wanted for group in workload.groups)
            reason = Grown(after - before, ", ".join(nodes), asks * 1000)
        verb = Verb.PLACE if chunk.step is Step.CORE else Verb.GROW
        tasks = tuple([part.task[1] for part in chunk.parts])
        self.record(Decision(verb, action, workload.id, tasks, before, after, reason))
        self.blocked.pop(workload.id, None)

    def block(self, lane: Lane, block: Block, alike: Iterable[Chunk]) -> None:
        """Remember that these got nothing, and why: of several pools the one in which they came farthest."""
        self.failed(lane, block.kin, alike)
        for chunk in alike:
            known = self.blocked.get(chunk.workload.id)
            if known is None or not _same(known.chunk, chunk) or self._more_hope(block, known):
                self.blocked[chunk.workload.id] = block

    def failed(self, lane: Lane, kin: Kin, alike: Iterable[Chunk]) -> None:
        """Remember what a lane could not give."""
        failures = self.failures.setdefault(lane, {}).setdefault(kin, {})
        for chunk in alike:
            failures[chunk.workload.id] = chunk

    def _more_hope(self, one: Block, other: Block) -> bool:
        if one.kin == other.kin and (one.refusal is None) is (other.refusal is None):
            return False
        return self._hope(one) > self._hope(other)

    def _hope(self, block: Block) -> int:
        if self.never_fits(block.chunk, block.pool):
            return 0
        return 1 if block.refusal is not None else 2

    def record(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.churn.note(decision)


def _same(one: Chunk, other: Chunk) -> bool:
    """True if what two chunks of a workload, or of equal ones, ask for is the same."""
    return (one.step, one.shape, one.standing) == (other.step, other.shape, other.standing)
