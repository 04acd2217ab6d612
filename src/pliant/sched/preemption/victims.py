"""Victims: what may be taken from whom, in which pieces, and what it costs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.reason import Moved, Reason, Shrunk
from pliant.model.workload import TaskPhase, Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.preemption.eviction_order import Walk
from pliant.sched.shares.admission import Refusal
from pliant.sched.shares.naming import named_at, workload_named
from pliant.sched.shares.protection import Guarantee, of_pool
from pliant.sched.world.nodes import TaskKey
from pliant.sched.world.portions import Chunk, Part, Step, core_priority, priority_of, without
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import spare_part

Rank = tuple[tuple[int, ...], int, int, str]
"""Smaller is lost first: see rank()."""

UnitRank = tuple[tuple[int, ...], int, int, int, int, str]
"""The same with what is lost (bonus before core) and the place of a surplus task in its group."""

Cost = tuple[int, int, tuple[UnitRank, ...]]
"""(workloads that lose their core, milli-GPUs lost, victims by rank): smaller is better. Where cores are only
moved, they count as lost; where both happens, a move costs its milli-GPUs alone."""


WALKED = 200
"""Of so many holders the order of loss is worked out in each hunt; among more, queues stand as they began."""

Before = Mapping[str, Mapping[TaskKey, Placement | None]]
"""Workload -> what its tasks claimed before the first unit was taken of it."""


class Unit(NamedTuple):
    """One thing taken from a workload: a device, a task, or all it has."""

    workload: str
    step: Step  # what is lost: a bonus portion, a wanted one, or the core
    changes: tuple[tuple[TaskKey, Placement | None], ...]  # tasks and what they claim afterwards
    gpu: int  # milli-GPUs lost
    cause: tuple[TaskKey, str | None]  # the task and device that had to make room
    priority: int  # of the group, or of the core
    again: Part | None = None  # what must be placed again elsewhere: a move

    def lost(self, before: Before) -> Resources:
        """What its workload no longer has."""
        gone = [before[self.workload][key] for key, after in self.changes if after is None]
        cpu = sum(claim.cpu for claim in gone if claim is not None)
        return Resources(self.gpu, cpu, sum(claim.memory for claim in gone if claim is not None))


class Rules:
    """What an action may take for one chunk. Subclasses say which portions of which workloads."""

    action = ""
    moves = False  # cores are moved rather than taken
    in_turn = False  # who goes first decides who may go after it
    resettles = False  # victims may be placed again on what is left

    def __init__(self, cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> None:
        self.cycle = cycle
        self.world: World = cycle.world
        self.chunk = chunk
        self.pool = pool
        self.adding = adding
        self.turns: dict[str, tuple[int, ...]] = {}  # project -> its turn() when it was first looked at
        path = self.world.path(chunk.workload.project)
        self.held = {key: self.world.claimed(key, pool).gpu for key in path}  # before the search
        self.youngest = cycle.settings.victims == "youngest"
        held = sum(map(len, self.world.holders.values()))
        self.walks = self.youngest and held <= WALKED  # the order of queues follows what is lost
        self._walk: Walk | None = None
        self.spared: dict[str, int] = {}  # workloads that may still run a while, and until when (ms)
        self.patient = True  # False: search as if nobody had a minimum run time
        self.ranks: dict[str, Rank] = {}  # what rank() has answered
        self.fresh: dict[str, bool] = {}  # workload -> what fresh() has answered
        self.least: dict[str, int] = {}  # project -> the runtime that guarantee() has answered
        self.unbounded = False  # True: search as if there were no budget
        self.spare = ""  # a workload whose core the present search leaves alone
        self.relocates = False  # True: a core that may not be taken may be moved
        self.wary = False  # True: lasts() is asked from the start, not only once nothing can be left out
        self.fleeting = False  # some outcome does not last
        self.shelter = cycle.churn.spent()  # projects whose work may not be disturbed any more
        self.denied: set[str] = set()  # those of them that were asked for something
        self.overdrawn: set[str] = set()  # projects of which some outcome took more than they have left
        self.singles: dict[TaskKey, tuple[Placement, Unit, Cost]] = {}  # what single() has answered

    def walk(self) -> Walk:
        """The order of all that could be lost, as it was when it was first asked for."""
        if self._walk is None:
            rows = (self.world.workloads[wid] for held in self.world.holders.values() for wid in sorted(held))
            others = (row for row in rows if row.preemptible and row.project in self.world.projects)
            self._walk = Walk(self.cycle, self.pool, others)
        return self._walk

    def may(self, victim: Workload, step: Step, priority: int) -> bool:
        """True if this portion may be taken now, with what was taken before it gone already."""
        raise NotImplementedError

    def takes(self, victim: Workload, step: Step, priority: int) -> bool:
        """The same for the search that is under way."""
        return (step is not Step.CORE or victim.id != self.spare) and self.may(victim, step, priority)

    def may_move(self, victim: Workload) -> bool:
        """True if a core that may not be taken may be placed elsewhere instead."""
        if not self.relocates or not victim.preemptible or self.sheltered(victim):
            return False
        aside = self.cycle.settings.moves_aside == "anybody" or self.gives(victim)
        return aside and self.unprotected(victim)

    def gives(self, victim: Workload) -> bool:
        """True if it was among those that something may be taken from when the search began."""
        return True

    def sheltered(self, victim: Workload) -> bool:
        """True if its project was disturbed so often that it keeps what it has but bonus."""
        if victim.project not in self.shelter:
            return False
        self.denied.add(victim.project)
        return True

    def bearable(self, units: Iterable["Unit"]) -> bool:
        """True if no project loses more by these than its budget allows."""
        if not self.cycle.churn.bounded:
            return True
        disturbed: dict[str, set[str]] = {}
        for unit in units:
            disturbs = unit.step is not Step.BONUS or unit.again is not None
            if disturbs and not fresh(self.world, unit.workload):
                project = self.world.workloads[unit.workload].project
                disturbed.setdefault(project, set()).add(unit.workload)
        over = {it for it, workloads in disturbed.items() if len(workloads) > self.cycle.churn.left(it)}
        self.overdrawn |= over
        return not over or self.unbounded

    def within_reach(self) -> bool:
        """False if whatever may be taken leaves too few GPUs: a bound for which nothing has to be tried."""
        return True

    def holds(self) -> bool:
        """True if the whole outcome, chunk placed and victims gone, keeps the rules."""
        return True

    def lasts(self, units: Iterable[Unit], before: Before) -> bool:
        """True if nothing of what was taken comes straight back; asked once nothing more can be left out."""
        return True

    def lacking(self) -> Refusal | None:
        """The bound that the chunk would break unless its own queue gives so much; None if there is none."""
        return None

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        """Why the victim loses so many milli-GPUs, of portions of this priority."""
        return self.shrunk(gpu)

    def shrunk(self, gpu: int) -> Reason:
        winner = self.chunk.workload
        project = named_at(self.world, winner.project)
        return Shrunk(gpu, workload_named(self.world, winner.id), project)

    def moved(self, sources: Iterable[str], targets: Iterable[str], lost: int) -> Reason:
        """Why it moves and gives back so many milli-GPUs of its bonus on the way."""
        here, there = ", ".join(sorted(set(sources))), ", ".join(sorted(set(targets)))
        return Moved(workload_named(self.world, self.chunk.workload.id), here, there, lost)

    def guarantee(self, victim: Workload) -> Guarantee:
        """For how long a victim is safe after its start, and whose setting says so."""
        return of_pool(self.world, self.pool)

    def safe(self, victim: Workload) -> int:
        """For how long (ms) it is safe after its start; 0: not at all."""
        least = self.least.get(victim.project)
        if least is None:
            least = self.least[victim.project] = self.guarantee(victim).runtime
        return least

    def unprotected(self, victim: Workload) -> bool:
        """False while its minimum run time keeps it safe."""
        least = self.safe(victim)
        if not least:
            return True
        until = protected_until(self.cycle, victim, least)
        if until <= self.cycle.now:
            return True
        self.spared[victim.id] = until
        return not self.patient


def protected_until(cycle: Cycle, victim: Workload, least: int) -> int:
    """When (ms) its present attempts have run for `least` ms; 0 if it has none."""
    begun = 0
    for row in cycle.world.tasks_of(victim.id):
        if row.phase.live or (row.attempt and row.claims is not None):
            # An attempt that is about to start has all its time before it.
            begun = max(begun, row.started if row.started is not None else cycle.now)
    return begun + least if begun else 0


def turn(rules: Rules, project: str) -> tuple[int, ...]:
    """Where a project stands among those that lose: level by level, by rank and excess over its due."""
    standing, found = rules.cycle.standing(rules.pool), []
    for key in reversed(rules.world.path(project)):
        have, due = rules.held.get(key), standing[key].allocatable.gpu
        if have is None:
            have = rules.world.claimed(key, rules.pool).gpu
        found += [standing[key].rank, -((have << 32) // due if due > 0 else have << 32)]
    return tuple(found)


def rank(rules: Rules, wid: str) -> Rank:
    """Who goes first when nothing else decides.

    On each level the queue of the lowest rank, then the one most above its due; then the lowest priority, the
    youngest.
    """
    known = rules.ranks.get(wid)
    if known is not None:
        return known
    workload = rules.world.workloads[wid]
    priority, age = core_priority(workload), -workload.serial
    queue = rules.turns.get(workload.project)
    if rules.walks:
        queue = (rules.walk().place(workload.project, (priority, -Step.CORE, age, 0, wid)),)
    elif queue is None:
        queue = rules.turns[workload.project] = turn(rules, workload.project)
    found = (queue, priority, age, wid)
    rules.ranks[wid] = found
    return found


def fresh(world: World, wid: str) -> bool:
    """True if all it has was given in this very cycle: to take it back costs nothing."""
    return all(row.claims is None and row.carries is None for row in world.tasks_of(wid))


def unit_for(rules: Rules, key: TaskKey, uuid: str | None) -> Unit | None:
    """The least that gets a task off a device (or, without one, off its node); None if it may not go."""
    world = rules.world
    wid = key[0]
    victim = world.workloads.get(wid)
    claim = world.claim_of(key)
    if (
        victim is None
        or claim is None
        or wid == rules.chunk.workload.id
        or victim.project not in world.projects
    ):
        return None
    row = world.tasks[key]
    group = victim.groups[0] if len(victim.groups) == 1 else victim.group(row.group)
    own = priority_of(victim, group)
    if len(victim.groups) == 1 and group.min == group.max == 1 and not (group.elastic or rules.moves):
        if rules.takes(victim, Step.CORE, own):  # the most frequent kind: one task, all or nothing
            return Unit(wid, Step.CORE, ((key, None),), claim.gpu, (key, uuid), own)
        if not rules.relocates:
            return None
    if group.elastic:
        held, asked = len(claim.shares), group.request.devices
        if uuid is not None and held > 1:
            step = Step.BONUS if held > asked else Step.WANTED
            gone = _given_back(victim, claim, uuid, held, asked if step is Step.BONUS else 1)
            if rules.takes(victim, step, own) and not (rules.moves and step is Step.WANTED):
                after = without(claim, gone)
                return Unit(wid, step, ((key, after),), claim.gpu - after.gpu, (key, uuid), own)
    else:
        have = sum(
            1
            for task in world.tasks_of(wid)
            if task.group == group.name
            and (task.phase is TaskPhase.SUCCEEDED or world.claim_of(task.key) is not None)
        )
        surplus = Step.BONUS if have > group.wanted else Step.WANTED if have > group.min else None
        if (
            surplus is not None
            and rules.takes(victim, surplus, own)
            and not (rules.moves and surplus is Step.WANTED)
        ):
            return Unit(wid, surplus, ((key, None),), claim.gpu, (key, uuid), own)
    spare = spare_part(world, victim, row)
    own = max((priority_of(victim, victim.group(world.tasks[k].group)) for k in spare), default=own)
    if spare and rules.takes(victim, Step.WANTED, own) and not rules.moves:
        gpu = sum(part.gpu for k in spare if (part := world.claim_of(k)) is not None)
        return Unit(wid, Step.WANTED, tuple((k, None) for k in spare), gpu, (key, uuid), own)
    held_by = [k for k in world.keys_of(wid) if world.claim_of(k) is not None]
    # With its core it loses its portions: the highest of all that counts.
    core = max(
        core_priority(victim), *(priority_of(victim, victim.group(world.tasks[k].group)) for k in held_by)
    )
    may = rules.takes(victim, Step.CORE, core)
    if not may and not rules.may_move(victim):
        return None
    if rules.moves or not may:
        if row.phase is not TaskPhase.RUNNING or row.carries != row.claims or not _within(claim, row.carries):
            return None  # what is on its way is not moved about
        request = group.request
        if group.elastic:
            request = replace(request, devices=min(len(claim.shares), request.devices))
        return Unit(wid, Step.CORE, ((key, None),), claim.gpu, (key, uuid), core, Part(key, request))
    return Unit(wid, Step.CORE, tuple((k, None) for k in held_by), world.gpu_of(wid), (key, uuid), core)


def single(rules: Rules, key: TaskKey, uuid: str) -> tuple[Unit, Cost] | None:
    """What unit_for() says, and its price. Of a workload of one task on one device both are kept: they stay
    as they are while it claims the same; whether it may go is asked each time.
    """
    claim = rules.world.claim_of(key)
    known = rules.singles.get(key)
    if known is not None and known[0] is claim and key[0] != rules.chunk.workload.id:
        if rules.takes(rules.world.workloads[key[0]], Step.CORE, known[1].priority):
            return known[1:]
        if not rules.relocates:
            return None
    unit = unit_for(rules, key, uuid)
    if unit is None or claim is None:
        return None
    price = cost(rules, (unit,))
    victim = rules.world.workloads[key[0]]
    whole = unit.step is Step.CORE and unit.again is None and len(claim.shares) == 1
    if whole and len(victim.groups) == 1 == victim.groups[0].max:
        rules.singles[key] = claim, unit, price
    return unit, price


def _within(claim: Placement, carries: Placement | None) -> bool:
    """True if an attempt that carries this needs nothing more for what it claims."""
    return carries is not None and claim.node == carries.node and set(claim.shares) <= set(carries.shares)


def _given_back(victim: Workload, claim: Placement, uuid: str, held: int, floor: int) -> frozenset[str]:
    """Devices that one step down frees, `uuid` among them: one, or by the doubling rule down to half."""
    count = 1 if not victim.grow_doubling else held - max(floor, held // 2)
    others = [share.gpu for share in reversed(claim.shares) if share.gpu != uuid]
    return frozenset([uuid, *others[: max(1, count) - 1]])


def _tail(world: World, unit: Unit) -> int:
    """The place of a surplus task: the last of its group goes first; then sub-groups, the last first."""
    key = unit.cause[0]
    if unit.step is Step.CORE or unit.changes[0][1] is not None:
        return 0
    if len(unit.changes) == 1:
        return -world.tasks[key].index
    keys = world.keys_of(unit.workload)
    return len(keys) - keys.index(unit.changes[0][0])


def core_cost(rules: Rules, unit: Unit) -> Cost:
    """As cost() of the core of one workload; `rules.fresh` must know it."""
    if rules.fresh[unit.workload]:
        return (0, 0, ())
    queue, _, age, wid = rank(rules, unit.workload)
    order = ((queue, unit.priority, -unit.step, age, 0, wid),)
    return (0, 0, order) if rules.youngest else (1, unit.gpu, order)


def cost(rules: Rules, units: Iterable[Unit]) -> Cost:
    """What a set of units costs; with `settings.victims` "youngest" only the order of victims counts."""
    world = rules.world
    cores: set[str] = set()
    gpu = 0
    ranks: set[UnitRank] = set()
    moved: dict[str, int] = {}
    for unit in units:
        if unit.again is not None:
            moved[unit.workload] = moved.get(unit.workload, 0) + unit.gpu
    for unit in units:
        if unit.workload in rules.fresh:
            is_fresh = rules.fresh[unit.workload]
        else:
            is_fresh = rules.fresh[unit.workload] = fresh(world, unit.workload)
        if is_fresh:
            continue
        queue, _, age, wid = rank(rules, unit.workload)
        tail = _tail(world, unit)
        if unit.again is not None:  # the fewest GPUs moved, then the last task
            tail = (moved[wid] << 16) - world.tasks[unit.again.task].index
        elif rules.walks and unit.step is not Step.CORE:
            turn_ = (unit.priority, -unit.step, age, tail, wid)
            queue = (rules.walk().place(world.workloads[wid].project, turn_),)
        ranks.add((queue, unit.priority, -unit.step, age, tail, wid))
        gpu += unit.gpu
        if unit.step is Step.CORE and (rules.moves or unit.again is None):
            cores.add(unit.workload)
    order = tuple(sorted(ranks, reverse=True)) if len(ranks) > 1 else tuple(ranks)
    return (0, 0, order) if rules.youngest else (len(cores), gpu, order)
