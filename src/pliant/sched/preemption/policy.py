"""A policy says what may be taken for one chunk, and whether an outcome is valid; the search asks it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.reason import GaveWay, Moved, Reason, Shrunk
from pliant.model.workload import Request, TaskGroup, TaskKey, TaskPhase, Workload
from pliant.sched.placement.eligibility import Destinations
from pliant.sched.plan import Guarantee
from pliant.sched.preemption.attempt import Attempt, Before, Cost, Estimate, Unit
from pliant.sched.preemption.churn import Churn
from pliant.sched.shares.admission import Refusal
from pliant.sched.shares.entitlement import Entitlement
from pliant.sched.shares.naming import named_at, workload_named
from pliant.sched.shares.protection import of_pool, protected_until
from pliant.sched.world.chunks import Chunk, Part, Step, core_priority, priority_of
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import given_back, without
from pliant.sched.world.subgroups import surplus, tree


@dataclass(frozen=True, slots=True)
class Grounds:
    """What policies use: fair shares, eligible nodes, and how often work may be disrupted."""

    places: Destinations
    shares: Entitlement
    churn: Churn
    now: int  # ms
    # By action, project and pool of the chunk, then by project of the victim: see Policy.safe().
    least: dict[tuple[str, str, str], dict[str, int]] = field(default_factory=dict)


class Policy:
    """The policy of one action for one chunk. It changes nothing: a search keeps notes in its attempt."""

    action = ""
    moves = False  # cores are moved, not taken
    in_turn = False  # the first victim decides which others may follow
    resettles = False  # victims may be placed again on the remaining GPUs

    def __init__(self, grounds: Grounds, chunk: Chunk, pool: str, adding: Resources) -> None:
        self.grounds = grounds
        self.shares = grounds.shares
        self.world = grounds.places.world
        self.chunk = chunk
        self.pool = pool
        self.adding = adding  # what the chunk adds to its queues
        self._least = grounds.least.setdefault((self.action, chunk.workload.project, pool), {})

    # ------------------------------------------------------------------ what a policy says
    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        """True if this portion may be taken now, after the ones already taken."""
        raise NotImplementedError

    def gives(self, project: str) -> bool:
        """False once it may keep all but bonus and background work; only this changes during an attempt."""
        return True

    def within_reach(self) -> bool:
        """False if even taking everything allowed frees too few GPUs: a bound that needs no trial."""
        return True

    def priced(self, node: NodeState, request: Request, estimate: Estimate) -> Cost | None:
        """What room for that on a node costs, or a bound of it; None if none can be made."""
        return estimate(node, request)

    def holds(self) -> bool:
        """True if the whole outcome, chunk placed and victims gone, keeps the rules."""
        return True

    def lasts(self, units: Iterable[Unit], before: Before) -> bool:
        """True if nothing that was taken is reclaimed at once; checked when no more units can be left out."""
        return True

    def lacking(self) -> Refusal | None:
        """The bound that the chunk would break unless its queue gives this much; None if there is none."""
        return None

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        """Why the victim loses so many milli-GPUs, of portions of this priority."""
        return self.shrunk(gpu)

    def guarantee(self, victim: Workload) -> Guarantee:
        """For how long a victim is safe after its start, and whose setting says so."""
        return of_pool(self.world, self.pool)

    # ------------------------------------------------------------------ what holds for all of them
    def takes(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        """may(), without the cores that the attempt leaves alone. Background work may always be taken."""
        if victim.background:
            return True
        if step is Step.CORE and victim.id in attempt.mode.keeps:
            return False
        return self.may(attempt, victim, step, priority)

    def may_move(self, attempt: Attempt, victim: Workload) -> bool:
        """True if a core that may not be taken may be placed elsewhere instead."""
        if not attempt.mode.relocates or not victim.preemptible or self.sheltered(attempt, victim):
            return False
        return self.unprotected(attempt, victim)

    def sheltered(self, attempt: Attempt, victim: Workload) -> bool:
        """True if its project is over its disruption budget: it keeps all but bonus."""
        if victim.project not in attempt.mode.sheltered:
            return False
        attempt.denied.add(victim.project)
        return True

    def safe(self, victim: Workload) -> int:
        """How long (ms) it is safe after its start; 0: not at all."""
        least = self._least.get(victim.project)
        if least is None:
            least = self._least[victim.project] = self.guarantee(victim).runtime
        return least

    def unprotected(self, attempt: Attempt, victim: Workload) -> bool:
        """False while its minimum run time keeps it safe."""
        least = self.safe(victim)
        until = protected_until(self.world, victim.id, least, self.grounds.now) if least else 0
        if until <= self.grounds.now:
            return True
        attempt.spared[victim.id] = until
        return not attempt.mode.patient

    def why(self, victim: Workload, gpu: int, priority: int) -> Reason:
        """reason(), of background work that it is background work."""
        return self.shrunk(gpu, True) if victim.background else self.reason(victim, gpu, priority)

    def shrunk(self, gpu: int, background: bool = False) -> Reason:
        winner, project = self.chunk.workload.id, named_at(self.world, self.chunk.workload.project)
        return (GaveWay if background else Shrunk)(gpu, workload_named(self.world, winner), project)

    def moved(self, sources: Iterable[str], targets: Iterable[str], lost: int) -> Reason:
        """Why it moves and gives back so many milli-GPUs of its bonus on the way."""
        here, there = ", ".join(sorted(set(sources))), ", ".join(sorted(set(targets)))
        return Moved(workload_named(self.world, self.chunk.workload.id), here, there, lost)

    # ------------------------------------------------------------------ units
    def unit(self, attempt: Attempt, key: TaskKey, uuid: str | None) -> Unit | None:
        """The smallest unit that removes a task from a device (or its node); None if it may not be taken."""
        world, wid = self.world, key[0]
        victim, claim = world.workloads.get(wid), world.claim_of(key)
        if victim is None or claim is None or wid == self.chunk.workload.id:
            return None
        if victim.project not in world.projects:
            return None
        alone = len(victim.groups) == 1
        group = victim.groups[0] if alone else victim.group(world.tasks[key].group)
        own = priority_of(victim, group)
        if alone and group.min == group.max == 1 and not (group.elastic or self.moves):
            if self.takes(attempt, victim, Step.CORE, own):  # the most frequent case: all or nothing
                return Unit(wid, Step.CORE, ((key, None),), claim.gpu, (key, uuid), own)
            if not attempt.mode.relocates:
                return None
        found = self._portion(attempt, victim, group, key, uuid)
        return found if found is not None else self._core(attempt, victim, group, key, uuid)

    def _portion(
        self, attempt: Attempt, victim: Workload, group: TaskGroup, key: TaskKey, uuid: str | None
    ) -> Unit | None:
        """Something above the core: a device, a task, or a part of its tree."""
        world, own, claim = self.world, priority_of(victim, group), self.world.claim_of(key)
        assert claim is not None
        if group.elastic:
            held, asked = len(claim.shares), group.request.devices
            if uuid is not None and held > 1:
                step = Step.BONUS if held > asked or victim.background else Step.WANTED
                if self.takes(attempt, victim, step, own) and not (self.moves and step is Step.WANTED):
                    gone = given_back(victim, claim, uuid, held, asked if step is Step.BONUS else 1)
                    after = without(claim, gone)
                    return Unit(victim.id, step, ((key, after),), claim.gpu - after.gpu, (key, uuid), own)
        else:
            have = self.world.have(victim.id).get(group.name, 0)
            step = Step.BONUS if have > group.wanted or victim.background else Step.WANTED
            above = have > min(group.min, group.wanted) and self.takes(attempt, victim, step, own)
            if above and not (self.moves and step is Step.WANTED):
                return Unit(victim.id, step, ((key, None),), claim.gpu, (key, uuid), own)
        if not victim.subgroups and victim.min_groups is None:
            return None
        names = {it.name for it in surplus(tree(victim), group.name, self.world.have(victim.id))}
        mine = (task.key for task in world.tasks_of(victim.id) if task.group in names)
        spare = {k: part for k in mine if (part := world.claim_of(k)) is not None}
        own = max((priority_of(victim, victim.group(world.tasks[k].group)) for k in spare), default=own)
        if not spare or not self.takes(attempt, victim, Step.WANTED, own) or self.moves:
            return None
        gpu = sum(part.gpu for part in spare.values())
        return Unit(victim.id, Step.WANTED, tuple((k, None) for k in spare), gpu, (key, uuid), own)

    def _core(
        self, attempt: Attempt, victim: Workload, group: TaskGroup, key: TaskKey, uuid: str | None
    ) -> Unit | None:
        """All it has; or, where cores are moved, this task, which is placed again elsewhere."""
        world, row, claim = self.world, self.world.tasks[key], self.world.claim_of(key)
        assert claim is not None
        held_by = [k for k in world.keys_of(victim.id) if world.claim_of(k) is not None]
        # With its core it loses its portions: their highest priority counts.
        core = max(
            core_priority(victim),
            *(priority_of(victim, victim.group(world.tasks[k].group)) for k in held_by),
        )
        may = self.takes(attempt, victim, Step.CORE, core)
        if may and (victim.background or not self.moves):
            gpu, changes = world.gpu_of(victim.id), tuple((k, None) for k in held_by)
            return Unit(victim.id, Step.CORE, changes, gpu, (key, uuid), core)
        if not may and not self.may_move(attempt, victim):
            return None
        if row.phase is not TaskPhase.RUNNING or row.carries != row.claims or not _within(claim, row.carries):
            return None  # a task that is starting or moving is not moved again
        request = group.request
        if group.elastic:
            request = replace(request, devices=min(len(claim.shares), request.devices))
        again = Part(key, request)
        return Unit(victim.id, Step.CORE, ((key, None),), claim.gpu, (key, uuid), core, again)


def _within(claim: Placement, carries: Placement | None) -> bool:
    """True if an attempt that carries this needs nothing more than it claims."""
    if carries is None or claim == carries:
        return carries is not None
    return claim.node == carries.node and set(claim.shares) <= set(carries.shares)
