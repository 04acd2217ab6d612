"""The state of one cycle: what the actions share, record and leave behind for the plan."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import gt
from typing import TYPE_CHECKING

from pliant.model.machine import NodePool
from pliant.model.quantity import Resources
from pliant.model.reason import Grown, Placed, Reason
from pliant.model.workload import Workload
from pliant.sched import fit, reach
from pliant.sched.admission import Refusal, asked, exceeded, refuse
from pliant.sched.division import INFINITE, Standing
from pliant.sched.machines import NodeClass, TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.portions import Chunk, Step, priority_of
from pliant.sched.queue import Order
from pliant.sched.settings import Settings
from pliant.sched.share import pending, standings
from pliant.sched.world import World

if TYPE_CHECKING:
    from pliant.sched.kept import Kept

Kin = tuple[object, ...]
"""What chunks have in common that every action treats alike in one pool; see Cycle.kin."""


Lane = tuple[int, str]
"""A pool as the first (0), second, ... choice of workloads."""


@dataclass(frozen=True, slots=True)
class Block:
    """Why a chunk got no place when it was tried."""

    chunk: Chunk
    pool: str
    adding: Resources
    refusal: Refusal | None
    kin: Kin


class Cycle:
    def __init__(self, world: World, now: int, settings: Settings) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.decisions: list[Decision] = []
        self.blocked: dict[str, Block] = {}  # by workload: what it could not get
        self.failures: dict[Lane, dict[str, Chunk]] = {}  # (choice number, pool) -> what it could not give
        self.resting: dict[str, TaskKey] = {}  # workload -> its task in back-off for which its chunk waits
        self.protected: dict[Kin, tuple[str, int]] = {}  # a victim's name, and until when (ms) it is safe
        self.unentitled: set[Kin] = set()  # those whose project has all it is due
        self.positions: dict[str, int] = {}
        self.wake: int | None = None
        self.steps = settings.search_steps
        self.released = False  # some hypothesis succeeded: others may profit from what is left
        self.pools = reach.all_pools(world)
        self._standing: dict[str, Mapping[str, Standing]] = {}
        self._pending: dict[str, dict[str, Resources]] | None = None
        self._nodes: dict[tuple[object, ...], NodeClass] = {}
        self._never: dict[Kin, bool] = {}
        self._unfit: set[tuple[object, ...]] = set()
        self._over: dict[str, tuple[int, tuple[str, ...]]] = {}  # pool -> (version, queues above quota)
        self._largest: dict[str, int] = {}
        self.kept: dict[Kin, Kept] = {}  # prices from the last hunt for chunks of a kind

    # ------------------------------------------------------------------ where a workload may go
    def kin(self, chunk: Chunk, pool: str) -> Kin:
        """Equal for chunks of one project that ask for the same under the same conditions."""
        it = chunk.workload
        owner = (it.project, it.kind, chunk.priority, it.preemptible, it.node_type)
        return (pool, owner, chunk.step, chunk.shape, chunk.parts[0].task if chunk.extends else None)

    def placeable(self, workload: str) -> bool:
        """True if the workload and its project are known."""
        row = self.world.workloads.get(workload)
        return row is not None and row.project in self.world.projects

    def choices(self, workload: Workload) -> list[str]:
        """Pools to try, in order."""
        return reach.choices(self.world, workload)

    def nodes_for(self, workload: Workload, pool: str) -> NodeClass:
        key = (pool, workload.project, workload.kind, workload.node_type)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = reach.nodes_for(self.world, workload, pool)
        return found

    def pool(self, name: str) -> NodePool:
        return self.world.pools.get(name) or NodePool(name, name)

    def never_fits(self, chunk: Chunk, pool: str) -> bool:
        """True if even an empty pool could not hold it."""
        kin = self.kin(chunk, pool)
        found = self._never.get(kin)
        if found is None:
            found = self._never[kin] = reach.never_fits(chunk, self.nodes_for(chunk.workload, pool))
        return found

    def lanes(self) -> dict[Lane, list[Chunk]]:
        """What wanting workloads ask for next, by lane, in the order in which lanes are served."""
        world = self.world
        world.settle()
        found: dict[Lane, list[Chunk]] = {}
        for wid in world.wanting:
            workload, chunk = world.workloads[wid], world.need(wid).chunk
            if chunk is None or workload.project not in world.projects or self.rests(chunk):
                continue
            for turn, pool in enumerate(self.choices(workload)):
                found.setdefault((turn, pool), []).append(chunk)
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
        version, over = self._over.get(pool, (-1, ()))
        if version != self.world.version:
            version = self.world.version
            over = tuple(
                key
                for key, it in self.standing(pool).items()
                if any(map(gt, self.world.use(key, pool).claimed, it.deserved))
            )
            self._over[pool] = (version, over)
        own = self.world.path(project)
        return any(key not in own for key in over)

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
        cls = self.nodes_for(chunk.workload, pool)
        shape = (pool, cls.types, chunk.shape)
        if not chunk.extends and shape in self._unfit:
            return False
        mark = world.checkpoint()
        if not fit.place(world, cls, chunk, self.pool(pool)) and not self._relocated(chunk, cls, pool):
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
            larger = NodeClass(pool, cls.types)
            for name in cls.names:
                if all(device.gpu.memory >= size for device in cls.nodes[name].devices.values()):
                    larger.add(cls.nodes[name])
            placed = fit.place(self.world, larger, chunk, self.pool(pool))
            for node in list(larger.nodes.values()):
                larger.remove(node)
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
    def order(self, pool: str, chunks: Iterable[Chunk]) -> Order:
        jobs = ((chunk, self.adding(chunk, pool)) for chunk in chunks)
        return Order(self.world, pool, self.standing(pool), jobs)

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

    def block(self, lane: Lane, block: Block) -> None:
        """Remember what got nothing, and why: of several pools the one in which it came farthest."""
        wid = block.chunk.workload.id
        self.failures.setdefault(lane, {})[wid] = block.chunk
        known = self.blocked.get(wid)
        if known is None or known.chunk != block.chunk or self._hope(block) > self._hope(known):
            self.blocked[wid] = block

    def _hope(self, block: Block) -> int:
        if self.never_fits(block.chunk, block.pool):
            return 0
        return 1 if block.refusal is not None else 2

    def record(self, decision: Decision) -> None:
        self.decisions.append(decision)
