"""The state of one cycle: what the actions share, record and leave behind for the plan."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from typing import NamedTuple

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.reason import Grown, Named, Placed
from pliant.model.workload import TaskKey, Workload
from pliant.sched.placement import eligibility, fit
from pliant.sched.placement.booked import Books
from pliant.sched.placement.eligibility import Destinations, Equivalence
from pliant.sched.placement.series import Series
from pliant.sched.placement.staying import given_back
from pliant.sched.plan import Decision, Guarantee, Verb
from pliant.sched.preemption.attempt import Effort, Obstacles, Rank, Unit
from pliant.sched.preemption.churn import Churn
from pliant.sched.preemption.policy import Grounds, Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.settings import Settings
from pliant.sched.shares.admission import Refusal, asked
from pliant.sched.shares.ageing import aged
from pliant.sched.shares.entitlement import Entitlement
from pliant.sched.shares.fair_share import INFINITE
from pliant.sched.shares.job_order import Batch, Order
from pliant.sched.shares.naming import queue_named
from pliant.sched.shares.promises import Promises
from pliant.sched.shares.queue_order import job_key
from pliant.sched.world.chunks import Chunk, Step, waiting_since
from pliant.sched.world.node_classes import NodeClass, spec_of
from pliant.sched.world.state import World

PolicyFor = Callable[["Cycle", Chunk, str, Resources], Policy | None]
"""The policy by which a chunk may take from others in a pool; None if it may not, or if that is useless."""

PoolChoice = tuple[int, str]
"""(number of the choice from 0, pool): a pool as the first, second, ... choice of workloads."""


class Block(NamedTuple):
    """Why a chunk, and those alike, got no place when it was tried."""

    chunk: Chunk
    pool: str
    adding: Resources
    refusal: Refusal | None
    equivalence: Equivalence


REFINEMENTS = 2_000
"""The budget of a cycle for lighter sets of victims than the first ones found: nodes times tasks."""


class Cycle(Destinations):
    def __init__(self, world: World, now: int, settings: Settings) -> None:
        super().__init__(world, settings)
        self.now = now
        # None, as in most worlds, if nothing is booked.
        self.books = (Books(world, now, world.bookings.values()) or None) if world.bookings else None
        asking = partial(eligibility.pending, world, now=now)
        self.shares = Entitlement(world, settings.past_use, asking, self.choices)
        self.decisions: list[Decision] = []
        # Workload -> what it could not get; None: it lacks nothing. In the order of the first look at each.
        self.looked: dict[str, Block | None] = {}
        # Choice -> the chunks that failed there, in parts; if a workload occurs twice, its last chunk counts.
        self.failures: dict[PoolChoice, dict[Equivalence, list[Sequence[Chunk]]]] = {}
        self.resting: dict[str, TaskKey] = {}  # workload -> the task in back-off that its chunk waits for
        # A victim, when (ms) its protection ends, and the setting.
        self.protected: dict[Equivalence, tuple[str, int, Guarantee]] = {}
        self.delays: dict[str, int] = {}  # workload -> when (ms) it may take from others
        # A victim, its priority and its aged priority.
        self.outwaited: dict[Equivalence, tuple[str, int, int]] = {}
        self.churn = Churn(world, now, settings)
        self.withheld: dict[Equivalence, str] = {}  # the project whose budget protects its work
        self.unentitled: set[Equivalence] = set()  # those whose project has all it is due
        self._positions: dict[str, int] = {}
        self.wake: int | None = None
        self.effort = Effort(settings.search_steps, REFINEMENTS)
        self.grounds = Grounds(self, self.shares, self.churn, now, self.effort)
        self.void: set[TaskKey] = set()  # tasks whose claims were void: they have no place to keep
        self.released = False  # something was released: what failed before may fit now
        self.pools = eligibility.all_pools(world)
        self._promised: dict[str, int] = {}
        self._unfit: set[tuple[object, ...]] = set()
        self._series: dict[Equivalence, Series] = {}
        self._serial: dict[tuple[object, ...], Series] = {}  # the same by shape
        self._named: dict[str, Named] = {}  # projects, by id
        self.prices: dict[
            Equivalence, PriceCache
        ] = {}  # from the last search for such chunks, if it succeeded

    def promised(self, pool: str) -> int:
        """Milli-GPUs that all quotas of a pool promise together."""
        found = self._promised.get(pool)
        if found is None:
            world = self.world
            found = self._promised[pool] = Promises(world.departments, world.projects, pool).below()
        return found

    # ------------------------------------------------------------------ who waits
    def waiting(self) -> dict[PoolChoice, list[Batch]]:
        """The next chunks of the waiting workloads by choice, in the order in which choices are served."""
        world = self.world
        world.update_sets()
        found: dict[PoolChoice, list[Batch]] = {}
        for row in world.rows_alike(job_key):
            workload = row[0].workload
            if workload.project not in world.projects or self.rests(row[0]):
                continue
            for turn, pool in enumerate(self.choices(workload)):
                found.setdefault((turn, pool), []).append(row)
        return {choice: found[choice] for choice in self.turns() if choice in found}

    def turns(self) -> Iterator[PoolChoice]:
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
        """True if it has not waited long enough to take from others; remembers when that ends."""
        until = waiting_since(workload) + workload.preemption_delay
        if not workload.preemption_delay or until <= self.now:
            return False
        self.wake_at(until)
        self.delays[workload.id] = until
        return True

    def adding(self, chunk: Chunk, pool: str) -> Resources:
        """What the chunk adds to its queues; GPU memory counts as on the largest device of its nodes."""
        if not chunk.by_memory:
            return chunk.resources
        return asked(chunk, self.nodes_for(chunk.workload, pool).largest[1])

    # ------------------------------------------------------------------ trying
    def opened(self, chunk: Chunk) -> AbstractContextManager[None]:
        """Within this context the chunk may use what is booked for its project."""
        return nullcontext() if self.books is None else self.books.opened(chunk.workload.project)

    def try_place(self, chunk: Chunk, pool: str, adding: Resources, known: Equivalence | None = None) -> bool:
        """Place a chunk on unclaimed capacity, or leave everything as it is. `known`: its equivalence."""
        if self.books is not None:
            with self.books.opened(chunk.workload.project):
                return self.shares.refuse(chunk, pool, adding) is None and self._tried(chunk, pool, adding)
        world = self.world
        if self.shares.refuse(chunk, pool, adding) is not None:
            return False
        series = self.series_for(chunk, pool, self.equivalence(chunk, pool) if known is None else known)
        if series is None or not world.placeless(chunk.parts[0].task):
            return self._tried(chunk, pool, adding)
        if self.unfit(series):
            return False
        if not fit.place_next(world, series, chunk, self.pool(pool)):
            self._unfit.add(series.shape)
            return False
        return True

    def series_for(self, chunk: Chunk, pool: str, equivalence: Equivalence) -> Series | None:
        """The series of such chunks, one for all projects with the same nodes; None if not fit.serial()."""
        found = self._series.get(equivalence)
        if found is None and fit.serial(self.world, chunk):
            cls = self.class_for(chunk, pool)
            shape = (pool, cls.types, chunk.shape)
            found = self._serial.get(shape)
            if found is None:
                found = fit.series_of(self.world, chunk, cls, self.pool(pool), shape)
                self._serial[shape] = found
            self._series[equivalence] = found
        return found

    def unfit(self, series: Series) -> bool:
        """True if a chunk of this series found no place, and nothing was released since."""
        return bool(self._unfit) and series.shape in self._unfit

    def _tried(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        """try_place() for any chunk that its queues may have."""
        world, cls = self.world, self.class_for(chunk, pool)
        shape = (pool, cls.types, chunk.shape, *(self.books.sort(chunk.workload) if self.books else ()))
        if not chunk.extends and shape in self._unfit:
            return False
        mark = world.checkpoint()
        placed = self._stays(chunk) or fit.place(world, cls, chunk, self.pool(pool))
        if not placed and not self._relocated(chunk, cls, pool):
            if not chunk.extends:
                self._unfit.add(shape)
            return False
        if chunk.by_memory and self.shares.exceeded(chunk, pool, adding):
            world.undo(mark)  # on these devices it counts as more than its queues may have
            return self._on_larger(chunk, cls, pool, adding)
        return True

    def _stays(self, chunk: Chunk) -> bool:
        """Place a chunk that lost its places in this cycle there again, if all are free.

        This holds for every pool it is tried in: a preferred pool is no reason to restart running work.
        """
        world = self.world
        mine: dict[TaskKey, Placement | None] = {}
        for part in chunk.parts:
            mine[part.task] = world.tasks[part.task].claims
            if mine[part.task] is None or part.task in self.void or chunk.extends:
                return False
        rest = (key for key in world.keys_of(chunk.workload.id) if key not in mine)
        if any(world.claim_of(key) not in (None, world.tasks[key].claims) for key in rest):
            return False
        mark = world.checkpoint()
        if not given_back(world, mine.items()):
            return False
        pools = {world.pool_of(claim.node) for claim in mine.values() if claim is not None}
        if any(self.shares.exceeded(chunk, pool, self.adding(chunk, pool)) for pool in pools):
            world.undo(mark)
            return False
        return True

    def _on_larger(self, chunk: Chunk, cls: NodeClass, pool: str, adding: Resources) -> bool:
        """Place a chunk that asks for GPU memory on larger devices, where it counts as less."""
        mark = self.world.checkpoint()
        for size in cls.sizes[1:]:
            larger = self.world.narrowed(cls, spec_of(cls)._replace(device_memory=size))
            placed = fit.place(self.world, larger, chunk, self.pool(pool))
            if placed and not self.shares.exceeded(chunk, pool, adding):
                return True
            self.world.undo(mark)
        return False

    def _relocated(self, chunk: Chunk, cls: NodeClass, pool: str) -> bool:
        """Restart a task on another node if its own has no room for a wanted portion; False if none has."""
        if chunk.step is not Step.WANTED or not chunk.extends:
            return False
        part = chunk.parts[0]
        group = chunk.workload.group(self.world.tasks[part.task].group)
        return fit.relocate(self.world, cls, part, self.pool(pool), group)

    def resettle(self, units: Iterable[Unit], pool: str, rank: Callable[[str], Rank]) -> None:
        """Place victims on what is left, the most valuable first: cores, then one portion of each other."""
        self.room_freed()
        hopeless: set[Equivalence] = set()  # claims only grow here
        victims = {unit.workload for unit in units if unit.step is not Step.BONUS and unit.again is None}
        order = sorted(victims, key=rank, reverse=True)
        chunks = [chunk for wid in order if (chunk := self.world.need(wid).chunk) is not None]
        for chunk in sorted(chunks, key=lambda chunk: chunk.step is not Step.CORE):
            if not self.rests(chunk):
                equivalence = self.equivalence(chunk, pool)
                if equivalence not in hopeless and not self.try_place(chunk, pool, self.adding(chunk, pool)):
                    hopeless.add(equivalence)

    def came_upon(self, equivalence: Equivalence, met: Obstacles) -> None:
        """Remember what kept a search from taking more, and when that may change."""
        if met.outwaited is not None:
            self.outwaited.setdefault(equivalence, met.outwaited)
        if met.protected is not None:
            self.protected[equivalence] = met.protected
        if met.withheld:
            self.withheld[equivalence] = met.withheld
        if met.wake is not None:
            self.wake_at(met.wake)

    def room_freed(self) -> None:
        """Something was released: what did not fit may fit now."""
        self._unfit.clear()
        self.released = True

    # ------------------------------------------------------------------ recording
    def order(self, pool: str, rows: Iterable[Batch]) -> Order:
        jobs = ((row, self.adding(row[0], pool)) for row in rows if row)
        aged = self.aged if self.settings.ageing else None
        return Order(self.world, pool, self.shares.standing(pool), jobs, aged)

    def aged(self, workload: Workload, priority: int) -> int:
        """A priority plus the steps that the workload gained by waiting."""
        return aged(workload, priority, self.now, self.settings)

    def positions(self) -> Mapping[str, int]:
        """Workload -> its position, from 1, in the order in which this cycle looked at workloads."""
        if len(self._positions) < len(self.looked):  # none is ever removed
            self._positions = dict(zip(self.looked, count(1), strict=False))
        return self._positions

    def wake_at(self, instant: int) -> None:
        if instant > self.now and (self.wake is None or instant < self.wake):
            self.wake = instant

    def placed(self, chunk: Chunk, pool: str, action: str, before: int, bonus: bool = False) -> None:
        """Record that a chunk got its place."""
        world, workload = self.world, chunk.workload
        claims = [claim for part in chunk.parts if (claim := world.claim_of(part.task)) is not None]
        if len(claims) == 1:
            first = where = claims[0].node
            tasks: tuple[str, ...] = (chunk.parts[0].task[1],)
        else:
            nodes = sorted({claim.node for claim in claims})
            first, where = nodes[0], ", ".join(nodes)
            tasks = tuple([part.task[1] for part in chunk.parts])
        after = claims[0].gpu if chunk.alone else world.gpu_of(workload.id)
        if chunk.step is Step.CORE:
            pool = world.nodes[first].pool  # it may have stayed in another
            has = world.tally(workload.project, pool).gpu
            quota = self.quota(workload.project, pool)
            placed = Placed(where, after - before, self.named(workload.project), has, quota)
            self.record(Decision(Verb.PLACE, action, workload.id, tasks, before, after, placed))
        else:
            asks = sum(group.request.devices * group.wanted for group in workload.groups)
            grown = Grown(after - before, where, asks * 1000)
            self.record(Decision(Verb.GROW, action, workload.id, tasks, before, after, grown))
        if self.looked.get(workload.id) is not None:
            self.looked[workload.id] = None

    def named(self, project: str) -> Named:
        found = self._named.get(project)
        if found is None:
            found = self._named[project] = queue_named(self.world.projects[project])
        return found

    def quota(self, project: str, pool: str) -> int:
        """Milli-GPUs; -1: unlimited."""
        quota = self.shares.standing(pool)[project].deserved.gpu
        return -1 if quota >= INFINITE else quota

    def failed(self, choice: PoolChoice, equivalence: Equivalence, alike: Sequence[Chunk]) -> None:
        """Remember the chunks that failed in a choice."""
        self.failures.setdefault(choice, {}).setdefault(equivalence, []).append(alike)

    def block(self, block: Block, alike: Sequence[Chunk], ids: Sequence[str]) -> None:
        """Remember why these chunks got no place; of several pools the most hopeful one counts: see _hope().

        `ids`: their workloads.
        """
        looked = self.looked
        if looked.keys().isdisjoint(ids):
            looked.update(dict.fromkeys(ids, block))
            return
        kept: Block | None = None
        for chunk in alike:
            kept = self.block_one(block, chunk, kept)

    def block_one(self, block: Block, chunk: Chunk, kept: Block | None) -> Block | None:
        """block() for one chunk. `kept`: the earlier block that the last alike chunk kept, None at first.

        Returns the next `kept`: alike chunks mostly share their blocks.
        """
        wid = chunk.workload.id
        known = self.looked.get(wid)
        stays = known is kept or (
            known is not None and _same(known.chunk, chunk) and not self._more_hope(block, known)
        )
        if known is not None and stays:
            return known
        self.looked[wid] = block
        return kept

    def _more_hope(self, one: Block, other: Block) -> bool:
        if one.equivalence == other.equivalence and (one.refusal is None) is (other.refusal is None):
            return False
        return self._hope(one) > self._hope(other)

    def _hope(self, block: Block) -> int:
        if self.never_fits(block.chunk, block.pool):
            return 0
        return 1 if block.refusal is not None else 2

    def record(self, decision: Decision) -> None:
        self.decisions.append(decision)
        if self.churn.bounded:
            self.churn.note(decision)


def _same(one: Chunk, other: Chunk) -> bool:
    """True if two chunks of one workload, or of equal ones, ask for the same."""
    return one.step is other.step and one.shape == other.shape and one.reached is other.reached
