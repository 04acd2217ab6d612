"""The state of one cycle: what the actions share, record and leave behind for the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pliant.model.machine import NodePool
from pliant.model.quantity import Resources
from pliant.model.reason import Grown, Placed, Reason
from pliant.model.workload import Workload
from pliant.sched import fit, reach
from pliant.sched.admission import Refusal, asked, refuse
from pliant.sched.division import INFINITE, Standing
from pliant.sched.machines import NodeClass, TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.portions import Chunk, Step
from pliant.sched.queue import Order
from pliant.sched.settings import Settings
from pliant.sched.share import pending, standings
from pliant.sched.tree import NOTHING
from pliant.sched.world import World


@dataclass(frozen=True, slots=True)
class Block:
    """Why a chunk got no place when it was tried."""

    chunk: Chunk
    pool: str
    adding: Resources
    refusal: Refusal | None = None


class Cycle:
    def __init__(self, world: World, now: int, settings: Settings) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.decisions: list[Decision] = []
        self.blocked: dict[str, Block] = {}  # by workload: what it could not get
        self.resting: dict[
            str, TaskKey
        ] = {}  # workloads whose chunk waits for a back-off, and the task behind it
        self.protected: dict[
            str, tuple[str, int]
        ] = {}  # by workload: a victim's name, and until when it is safe
        self.unentitled: dict[str, None] = {}  # workloads whose project has all it is due
        self.positions: dict[str, int] = {}
        self.wake: int | None = None
        self.steps = settings.search_steps
        self.released = False  # some hypothesis succeeded: others may profit from what is left
        self.pools = reach.all_pools(world)
        self._standing: dict[str, Mapping[str, Standing]] = {}
        self._pending: dict[str, dict[str, Resources]] | None = None
        self._unfit: set[tuple[object, ...]] = set()

    def choices(self, workload: Workload) -> list[str]:
        return reach.choices(self.world, workload)

    def nodes_for(self, workload: Workload, pool: str) -> NodeClass:
        return reach.nodes_for(self.world, workload, pool)

    def pool(self, name: str) -> NodePool:
        return self.world.pools.get(name) or NodePool(name, name)

    def never_fits(self, chunk: Chunk, pool: str) -> bool:
        """True if even an empty pool could not hold it."""
        return reach.never_fits(chunk, self.nodes_for(chunk.workload, pool))

    # ------------------------------------------------------------------ who is entitled to what
    def standing(self, pool: str) -> Mapping[str, Standing]:
        """Fair shares of a pool, computed once a cycle from what was claimed and pending at its start."""
        if pool not in self._standing:
            if self._pending is None:
                self._pending = pending(self.world)
            self._standing[pool] = standings(self.world, pool, self._pending.get(pool, {}))
        return self._standing[pool]

    def lent(self, project: str, pool: str) -> int:
        """Milli-GPUs that the project's workloads hold as bonus in a pool now."""
        world = self.world
        world.settle()
        total = 0
        for wid in world.stretched:
            workload = world.workloads[wid]
            if workload.project == project and pool in self.choices(workload):
                total += world.need(wid).bonus_gpu
        return total

    def donors(self, pool: str, project: str) -> bool:
        """True if some other project or department holds more of a pool than its quota."""
        standing, own = self.standing(pool), self.world.path(project)
        return any(
            key not in own
            and any(
                have > due for have, due in zip(self.world.use(key, pool).claimed, it.deserved, strict=True)
            )
            for key, it in standing.items()
        )

    def lowest_priority(self, project: str) -> int | None:
        """Of the preemptible workloads of a project that hold anything."""
        world = self.world
        world.settle()
        return min(
            (
                world.workloads[wid].priority
                for wid in world.holders.get(project, ())
                if world.workloads[wid].preemptible
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

    # ------------------------------------------------------------------ trying
    def try_place(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        """Place a chunk on what nobody claims, or leave everything as it is."""
        world = self.world
        if self.refuse(chunk, pool, adding) is not None:
            return False
        types = reach.types(self.world, chunk.workload)
        shape = (pool, types, chunk.shape)
        if not chunk.extends and shape in self._unfit:
            return False
        mark = world.checkpoint()
        if not fit.place(world, world.node_class(pool, types), chunk, self.pool(pool)):
            if not chunk.extends:
                self._unfit.add(shape)
            return False
        if chunk.by_memory and self.refuse(chunk, pool, NOTHING) is not None:
            world.undo(mark)  # on the devices where it would land it is more than its queues may have
            return False
        return True

    def room_freed(self) -> None:
        """Something was released: what did not fit may fit now."""
        self._unfit.clear()
        self.released = True

    # ------------------------------------------------------------------ recording
    def order(self, pool: str, chunks: Iterator[Chunk]) -> Order:
        jobs = ((chunk, self.adding(chunk, pool)) for chunk in chunks)
        return Order(self.world, pool, self.standing(pool), jobs)

    def waiting(self, pool: str, turn: int) -> Iterator[Chunk]:
        """What the wanting workloads ask for next, for those whose choice number `turn` is this pool."""
        world = self.world
        world.settle()
        for wid in sorted(world.wanting):
            workload = world.workloads[wid]
            if workload.project not in world.projects or wid in self.resting:
                continue
            pools = self.choices(workload)
            if turn < len(pools) and pools[turn] == pool:
                chunk = world.need(wid).chunk
                if chunk is not None and not self.rests(chunk):
                    yield chunk

    def rests(self, chunk: Chunk) -> bool:
        """True if some task of the chunk is in back-off; remembers when that ends."""
        for part in chunk.parts:
            row = self.world.tasks[part.task]
            if row.retry_at is not None and row.retry_at > self.now:
                self.wake_at(row.retry_at)
                self.resting[chunk.workload.id] = part.task
                return True
        return False

    def turns(self) -> Iterator[tuple[int, str]]:
        """(choice number, pool) in the order in which pools are served."""
        for turn in range(len(self.pools)):
            for pool in self.pools:
                yield turn, pool

    def looked_at(self, workload: str) -> None:
        self.positions.setdefault(workload, len(self.positions) + 1)

    def wake_at(self, instant: int) -> None:
        if instant > self.now and (self.wake is None or instant < self.wake):
            self.wake = instant

    def placed(self, chunk: Chunk, pool: str, action: str, before: int, bonus: bool = False) -> None:
        """Record that a chunk got its place."""
        world, workload = self.world, chunk.workload
        nodes = sorted(
            {claim.node for part in chunk.parts if (claim := world.claim_of(part.task)) is not None}
        )
        after = world.gpu_of(workload.id)
        reason: Reason
        if chunk.step is Step.CORE:
            standing = self.standing(pool)[workload.project]
            quota = standing.deserved.gpu
            reason = Placed(
                ", ".join(nodes),
                after - before,
                world.projects[workload.project].name,
                world.use(workload.project, pool).claimed.gpu,
                -1 if quota >= INFINITE else quota,
            )
        else:
            asks = sum(group.request.devices * group.wanted for group in workload.groups)
            reason = Grown(after - before, ", ".join(nodes), asks * 1000)
        verb = Verb.PLACE if chunk.step is Step.CORE else Verb.GROW
        tasks = tuple(part.task[1] for part in chunk.parts)
        self.record(Decision(verb, action, workload.id, tasks, before, after, reason))
        self.blocked.pop(workload.id, None)

    def block(self, block: Block) -> None:
        """Remember why a workload got nothing: of several pools the one in which it came farthest."""
        known = self.blocked.get(block.chunk.workload.id)
        if known is None or known.chunk is not block.chunk or self._hope(block) > self._hope(known):
            self.blocked[block.chunk.workload.id] = block

    def _hope(self, block: Block) -> int:
        if self.never_fits(block.chunk, block.pool):
            return 0
        return 1 if block.refusal is not None else 2

    def record(self, decision: Decision) -> None:
        self.decisions.append(decision)
