"""The quota and the fair share of each queue in a pool, and what the queue has of both."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import gt

from pliant.model.machine import DEFAULT_POOL
from pliant.model.quantity import Resources
from pliant.model.tenancy import UNLIMITED, Department, Project
from pliant.model.workload import Workload
from pliant.sched.plan import QueueStanding
from pliant.sched.shares.admission import BOUNDLESS, Refusal, exceeded, refuse
from pliant.sched.shares.fair_share import ALL, INFINITE, Member, Standing, bound, share_out
from pliant.sched.world.chunks import Chunk, Step, may_lose
from pliant.sched.world.queue_tree import NOTHING, department_key
from pliant.sched.world.state import World


def deserved(world: World, key: str, pool: str = DEFAULT_POOL) -> Resources:
    """The quota of a project or department in a pool, calculated if derived; INFINITE for unlimited."""
    queue = world.queue_of(key)
    quota = queue.quota(pool)
    if isinstance(queue, Department) and queue.derived:
        return Resources(world.capacity.get(pool, NOTHING).gpu, INFINITE, INFINITE)
    if isinstance(queue, Project) and queue.derived:
        return Resources(_left_over(world, queue, pool), INFINITE, INFINITE)
    return Resources(bound(quota.gpu), bound(quota.cpu), bound(quota.memory))


def quota_of(world: World, queue: str, pool: str = DEFAULT_POOL) -> Resources:
    """The quota of a project or department by id, calculated if derived; UNLIMITED where unbounded."""
    key = queue if queue in world.projects else department_key(queue)
    return Resources(*(UNLIMITED if it >= INFINITE else it for it in deserved(world, key, pool)))


def _left_over(world: World, project: Project, pool: str) -> int:
    """The derived quota: an equal part of what other quotas leave of the department's, or its fixed use."""
    whole = world.capacity.get(pool, NOTHING).gpu
    if project.department in world.departments:
        whole = deserved(world, department_key(project.department), pool).gpu
    if whole >= INFINITE:
        return INFINITE
    siblings = [p for p in world.projects.values() if p.department == project.department]
    taken = sum(bound(p.quota(pool).gpu) for p in siblings if not p.derived)
    taken += sum(
        bound(d.quota(pool).gpu) for d in world.departments.values() if d.parent == project.department != ""
    )
    free = max(0, whole - taken) // sum(1 for p in siblings if p.derived)
    return max(free, world.use(project.id, pool).non_preemptible.gpu)


def standings(
    world: World, pool: str, pending: Mapping[str, Resources], past_use: int = 0, lend: bool = False
) -> Mapping[str, Standing]:
    """Fair shares in a pool, by key; `pending` is what each project's workloads still ask for there.

    `past_use` is the setting of that name, `lend` as in divide().
    """
    below = world.children()

    def member(key: str) -> Member:
        if key in world.projects:
            return _member(world, key, pool, world.claimed(key, pool).plus(pending.get(key, NOTHING)))
        children = tuple(member(child) for child in below.get(world.queue_of(key).id, ()))
        gpu = cpu = memory = 0
        for child in children:
            limit, asked = child.limit, child.wants
            gpu += min(limit[0], asked[0])
            cpu += min(limit[1], asked[1])
            memory += min(limit[2], asked[2])
        return _member(world, key, pool, Resources(gpu, cpu, memory), children)

    total = world.capacity.get(pool, NOTHING)
    return share_out(total, [member(key) for key in below.get(None, ())], past_use, lend)


def _member(world: World, key: str, pool: str, wants: Resources, children: tuple[Member, ...] = ()) -> Member:
    queue = world.queue_of(key)
    quota = queue.quota(pool)
    limit = Resources(bound(quota.gpu_limit), bound(quota.cpu_limit), bound(quota.memory_limit))
    if children:
        past = sum(child.past for child in children)
    else:
        row = world.past_uses.get((key, pool))
        past = row.used * ALL // row.capacity if row is not None and row.capacity > 0 else 0
    return Member(
        key, deserved(world, key, pool), limit, quota.weight, quota.rank, queue.created, wants, children, past
    )


class Entitlement:
    """What the queues of each pool are due in one cycle."""

    def __init__(
        self,
        world: World,
        past_use: int,
        asking: Callable[[], Mapping[str, Mapping[str, Resources]]],
        pools_of: Callable[[Workload], Sequence[str]],
    ) -> None:
        """`asking`: what each project asks for, by pool; `pools_of`: the pools that a workload may use."""
        self._world = world
        self._past_use = past_use  # the setting of that name
        self._asking = asking
        self._pools_of = pools_of
        self._asked: Mapping[str, Mapping[str, Resources]] | None = None
        self._standing: dict[str, Mapping[str, Standing]] = {}
        self._bare: dict[tuple[str, bool], Mapping[str, Standing]] = {}
        self._over: dict[str, tuple[int, tuple[str, ...]]] = {}  # pool -> (version, queues above quota)
        self._lent: dict[str, tuple[int, dict[str, int]]] = {}  # pool -> (version, queue -> bonus in it)
        self._largest: dict[str, int] = {}
        self._limits: dict[tuple[str, str], bool] = {}  # (project, pool) -> what _limited() has answered

    def standing(self, pool: str) -> Mapping[str, Standing]:
        """The fair shares of a pool, by key, from what was claimed and asked for at the first call."""
        if pool not in self._standing:
            asked = self._asked_of(pool)
            self._standing[pool] = bare = self._shares(pool, asked)
            less = dict(asked)
            for wid in self._world.stretched:
                workload, bonus = self._world.workloads[wid], self._world.need(wid).bonus_gpu
                if bonus and pool in self._pools_of(workload):
                    less[workload.project] = less.get(workload.project, NOTHING).minus(Resources(bonus))
            if less != asked:
                bare = self._shares(pool, less)
            queues = (*self._world.projects.values(), *self._world.departments.values())
            weightless = any(queue.quota(pool).weight == 0 for queue in queues)
            self._bare[pool, False] = bare
            self._bare[pool, True] = self._shares(pool, less, lend=True) if weightless else bare
        return self._standing[pool]

    def _shares(
        self, pool: str, asked: Mapping[str, Resources], lend: bool = False
    ) -> Mapping[str, Standing]:
        return standings(self._world, pool, asked, self._past_use, lend)

    def standings(self, pools: Iterable[str]) -> Iterator[QueueStanding]:
        """The standings of all queues in these pools, with which this cycle decides."""
        for pool in pools:
            standing = self._standing.get(pool) or self._shares(pool, self._asked_of(pool))
            for key, it in standing.items():
                quota = it.deserved.gpu
                yield QueueStanding(key, pool, -1 if quota >= INFINITE else quota, it.fair.gpu)

    def _asked_of(self, pool: str) -> Mapping[str, Resources]:
        """What the workloads of each project still ask for in a pool."""
        if self._asked is None:
            self._asked = self._asking()
        return self._asked.get(pool, {})

    def bare(self, pool: str, lend: bool = False) -> Mapping[str, Standing]:
        """standing() without any bonus; with `lend`, queues of weight 0 get what the others leave."""
        self.standing(pool)
        return self._bare[pool, lend]

    def own(self, key: str, pool: str) -> Resources:
        """What a project or department claims of a pool now, without the bonus of its workloads."""
        world = self._world
        claimed = world.claimed(key, pool)
        if not world.stretched:  # bonus comes only from grow, the last action
            return claimed
        version, lent = self._lent.get(pool, (-1, {}))
        if version != world.version:
            lent = {}
            for wid in world.stretched:
                workload = world.workloads[wid]
                if workload.project in world.projects and pool in self._pools_of(workload):
                    for queue in world.path(workload.project):
                        lent[queue] = lent.get(queue, 0) + world.need(wid).bonus_gpu
            self._lent[pool] = world.version, lent
        return claimed.minus(Resources(lent.get(key, 0)))

    def donors(self, pool: str, project: str) -> bool:
        """True if some other project or department holds more of a pool than its quota."""
        version, over = self._over.get(pool, (-1, ()))
        if version != self._world.version:
            version = self._world.version
            over = tuple(key for key, it in self.standing(pool).items() if self._gives(key, pool, it))
            self._over[pool] = (version, over)
        own = self._world.path(project)
        return any(key not in own for key in over)

    def _gives(self, key: str, pool: str, it: Standing) -> bool:
        claimed = self._world.claimed(key, pool)
        return any(map(gt, claimed, it.deserved))

    def largest(self, project: str) -> int:
        """Milli-GPUs of the largest workload of a project that may lose some, as of the first call."""
        found = self._largest.get(project)
        if found is None:
            world = self._world
            found = 0
            for wid in world.holders.get(project, ()):
                gpu = world.gpu_of(wid)
                if gpu > found and may_lose(world.workloads[wid], Step.WANTED):
                    found = gpu
            self._largest[project] = found
        return found

    def refuse(self, chunk: Chunk, pool: str, adding: Resources) -> Refusal | None:
        """The bound that the chunk would break; None if its queues may have it."""
        if not self.bounded(chunk, pool):
            return None
        lends, project = may_lose(chunk.workload, chunk.step), chunk.workload.project
        return refuse(self._world, self.standing(pool), project, pool, adding, lends)

    def bounded(self, chunk: Chunk, pool: str) -> bool:
        """True if there is any bound that such a chunk could break."""
        return not may_lose(chunk.workload, chunk.step) or self._limited(chunk.workload.project, pool)

    def _limited(self, project: str, pool: str) -> bool:
        """True if a project or a queue above it has a limit."""
        found = self._limits.get((project, pool))
        if found is None:
            standing, path = self.standing(pool), self._world.path(project)
            found = self._limits[project, pool] = any(standing[key].limit != BOUNDLESS for key in path)
        return found

    def exceeded(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        """True if a queue of the placed chunk holds more than it may have."""
        lends, project = may_lose(chunk.workload, chunk.step), chunk.workload.project
        return exceeded(self._world, self.standing(pool), project, pool, adding, lends)
