"""A policy decides what may be taken for one chunk, whether an outcome is valid, and why victims lose."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.reason import GaveWay, Moved, Reason, Shrunk
from pliant.model.workload import Request, TaskKey, TaskPhase, Workload
from pliant.sched.placement.eligibility import Destinations
from pliant.sched.plan import Decision, Guarantee, Verb
from pliant.sched.preemption.attempt import Attempt, Cause, Change, Cost, Effort, Estimate, Unit, before
from pliant.sched.preemption.churn import Churn
from pliant.sched.shares.admission import Refusal
from pliant.sched.shares.entitlement import Entitlement
from pliant.sched.shares.naming import named_at, workload_named
from pliant.sched.shares.protection import of_pool, protected_until
from pliant.sched.world.chunks import Chunk, Part, Step, core_priority, priority_of, rigid
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import given_back, without
from pliant.sched.world.subgroups import surplus, tree


@dataclass(frozen=True, slots=True)
class Grounds:
    """What policies and searches use in a cycle: eligible nodes, fair shares, and the budgets."""

    places: Destinations
    shares: Entitlement
    churn: Churn
    now: int  # ms
    effort: Effort
    # Workload -> (the claims of its tasks, the unit of all of them): the cache of Policy.everything().
    wholes: dict[str, tuple[tuple[Placement | None, ...], Unit]] = field(default_factory=dict)
    # (action, project and pool of the chunk) -> project of the victim -> ms: the cache of Policy.safe().
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
        self.nodes = grounds.places.nodes_for(chunk.workload, pool)  # where it may go
        self.node_pool = grounds.places.pool(pool)
        self.relocates = self.resettles and grounds.places.settings.consolidation_victims != 0
        self._least = grounds.least.setdefault((self.action, chunk.workload.project, pool), {})

    # ------------------------------------------------------------------ what a policy decides
    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        """True if this portion may be taken now, after the ones already taken. Bonus always may."""
        raise NotImplementedError

    def gives(self, project: str) -> bool:
        """False if the project may keep everything but bonus and background work."""
        return True

    def within_reach(self) -> bool:
        """False if even taking everything allowed frees too few GPUs: a bound that needs no trial."""
        return True

    def priced(self, node: NodeState, request: Request, estimate: Estimate) -> Cost | None:
        """The cost of making room for a request on a node, or a lower bound of it; None if impossible."""
        return estimate(node, request)

    def holds(self) -> bool:
        """True if the whole outcome, with the chunk placed and the victims gone, keeps the rules."""
        return True

    def lasts(self, units: Iterable[Unit]) -> bool:
        """True if no project would take these units back in the next cycle."""
        return True

    def lacking(self) -> Refusal | None:
        """The policy's own bound that the chunk would break unless its queue gives up something; or None."""
        return None

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        """Why a victim (no background work) loses `gpu` milli-GPUs of portions with at most this priority."""
        return self.shrunk(gpu)

    def guarantee(self, victim: Workload) -> Guarantee:
        """How long a victim is protected after its start, and by whose setting."""
        return of_pool(self.world, self.pool)

    # ------------------------------------------------------------------ what holds for all of them
    def takes(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        """may() and exposed(), unless the attempt spares it. Always True for bonus and background work."""
        if victim.background or step is Step.BONUS:
            return True
        if step is Step.CORE and (victim.id == attempt.mode.keeps or victim.id in attempt.homeless):
            return False
        return self.may(attempt, victim, step, priority) and self.exposed(attempt, victim, step)

    def exposed(self, attempt: Attempt, victim: Workload, step: Step) -> bool:
        """False while a budget or (for a core) the minimum run time protects it; the attempt notes which."""
        churn = self.grounds.churn
        if churn.bounded and not attempt.mode.unbounded and not churn.allows(victim, attempt.units):
            attempt.met.denied.add(victim.project)  # it keeps all but bonus
            return False
        least = self.safe(victim) if step is Step.CORE else 0
        until = protected_until(self.world, victim.id, least, self.grounds.now) if least else 0
        if until <= self.grounds.now:
            return True
        attempt.met.spared[victim.id] = until
        return attempt.mode.waited

    def safe(self, victim: Workload) -> int:
        """How long (ms) a victim is protected after its start; 0: not at all."""
        least = self._least.get(victim.project)
        if least is None:
            least = self._least[victim.project] = self.guarantee(victim).runtime
        return least

    def shrunk(self, gpu: int, background: bool = False) -> Reason:
        """The reason for taking bonus or background work: the chunk needs it."""
        winner, project = self.chunk.workload.id, named_at(self.world, self.chunk.workload.project)
        return (GaveWay if background else Shrunk)(gpu, workload_named(self.world, winner), project)

    # ------------------------------------------------------------------ units
    def unit(self, attempt: Attempt, key: TaskKey, uuid: str | None) -> Unit | None:
        """The smallest unit that removes a task from a device (or its node); None if it may not be taken."""
        world, cause, guard = self.world, (key, uuid), self.world.guard
        victim, claim = self.victim(key), world.claim_of(key)
        if victim is None or claim is None or (guard and guard.fills(key, self.chunk.workload.project)):
            return None
        for step, changes in self._portions(victim, claim, cause) if not rigid(victim) else ():
            priority = self._highest(victim, changes)
            if self.takes(attempt, victim, step, priority) and not (self.moves and step is Step.WANTED):
                gpu = sum(was.gpu - (0 if after is None else after.gpu) for _, was, after in changes)
                return Unit(victim.id, step, changes, gpu, cause, priority)
        return self._core(attempt, victim, claim, cause)

    def victim(self, key: TaskKey) -> Workload | None:
        """The workload of a task if it may be a victim at all."""
        row, own = self.world.workloads.get(key[0]), self.chunk.workload.id
        return row if row is not None and row.id != own and row.project in self.world.projects else None

    def _portions(
        self, victim: Workload, claim: Placement, cause: Cause
    ) -> Iterator[tuple[Step, tuple[Change, ...]]]:
        """What a victim has above its core at `cause`: a device, a task, or a part of its tree."""
        (key, uuid), have = cause, self.world.have(victim.id)
        group = victim.group(self.world.tasks[key].group)
        held, asked = len(claim.shares), group.request.devices
        if group.elastic:
            if uuid is not None and held > 1:
                step = Step.BONUS if held > asked or victim.background else Step.WANTED
                gone = given_back(victim, claim, uuid, held, asked if step is Step.BONUS else 1)
                yield step, ((key, claim, without(claim, gone)),)
        elif have.get(group.name, 0) > min(group.min, group.wanted):
            bonus = have[group.name] > group.wanted or victim.background
            yield Step.BONUS if bonus else Step.WANTED, ((key, claim, None),)
        if victim.subgroups or victim.min_groups is not None:
            spare = {it.name for it in surplus(tree(victim), group.name, have)}
            every = self.everything(victim, claim, cause).changes
            if changes := tuple(it for it in every if self.world.tasks[it[0]].group in spare):
                yield Step.WANTED, changes

    def _core(self, attempt: Attempt, victim: Workload, claim: Placement, cause: Cause) -> Unit | None:
        """All that a victim has; or, if its core is moved, this task, to be placed again; or None."""
        whole = self.everything(victim, claim, cause)
        may = self.takes(attempt, victim, Step.CORE, whole.priority)
        if may and (victim.background or not self.moves):
            return whole
        aside = attempt.mode.relocates and victim.preemptible and victim.id not in attempt.homeless
        if not may and not (aside and self.exposed(attempt, victim, Step.CORE)):
            return None
        row = self.world.tasks[cause[0]]
        old = row.carries if row.phase is TaskPhase.RUNNING and row.carries == row.claims else None
        if old is None or claim.node != old.node or not set(claim.shares) <= set(old.shares):
            return None  # a task that is starting or moving is not moved again
        group = victim.group(row.group)
        devices = min(len(claim.shares), group.request.devices) if group.elastic else group.request.devices
        again = Part(row.key, replace(group.request, devices=devices))
        return whole._replace(changes=((row.key, claim, None),), gpu=claim.gpu, again=again)

    def everything(self, victim: Workload, claim: Placement, cause: Cause) -> Unit:
        """The unit of all that a victim has; the highest priority of its core and its portions counts."""
        if rigid(victim):  # the most frequent case
            own = priority_of(victim, victim.groups[0])
            return Unit(victim.id, Step.CORE, ((cause[0], claim, None),), claim.gpu, cause, own)
        keys = self.world.keys_of(victim.id)
        claims = tuple(map(self.world.claim_of, keys))
        known = self.grounds.wholes.get(victim.id)
        if known is None or known[0] != claims:
            changes = tuple((key, it, None) for key, it in zip(keys, claims, strict=True) if it is not None)
            priority = max(core_priority(victim), self._highest(victim, changes))
            gpu = sum(it.gpu for _, it, _ in changes)
            unit = Unit(victim.id, Step.CORE, changes, gpu, cause, priority)
            known = self.grounds.wholes[victim.id] = claims, unit
        return known[1]._replace(cause=cause)

    def _highest(self, victim: Workload, changes: Iterable[Change]) -> int:
        """The highest priority among the groups of these tasks."""
        groups = {self.world.tasks[key].group for key, _, _ in changes}
        return max(priority_of(victim, victim.group(name)) for name in groups)

    # ------------------------------------------------------------------ decisions
    def decisions(self, attempt: Attempt) -> Iterator[Decision]:
        """One decision for each workload that no longer has all that it claimed before.

        They are in the order in which the workloads lost their last unit: each is justified after those
        before it.
        """
        world, winner = self.world, self.chunk.workload.id
        for wid, mine in attempt.losses().items():
            now = [(key, old, world.claim_of(key)) for key, old in before(mine).items()]
            gone = [change for change in now if change[1] != change[2]]
            lost = sum(old.gpu - (0 if new is None else new.gpu) for _, old, new in gone)
            if gone:
                verb = self._verb(wid, mine, gone)
                reason = self._why(wid, mine, gone, verb, lost)
                names, gpu_after = tuple(key[1] for key, _, _ in sorted(gone)), world.gpu_of(wid)
                yield Decision(verb, self.action, wid, names, gpu_after + lost, gpu_after, reason, winner)

    def _verb(self, wid: str, units: list[Unit], gone: list[Change]) -> Verb:
        core = any(unit.step is Step.CORE and not unit.again for unit in units)
        chunk, background = self.world.need(wid).chunk, self.world.workloads[wid].background
        if core and (background or (chunk and chunk.step is Step.CORE)):
            return Verb.EVICT
        kept = [(old, new) for _, old, new in gone if new is not None]
        moved = any(new.node != old.node or not set(new.uuids) <= set(old.uuids) for old, new in kept)
        return Verb.MOVE if moved else Verb.SHRINK

    def _why(self, wid: str, units: list[Unit], gone: list[Change], verb: Verb, lost: int) -> Reason:
        victim = self.world.workloads[wid]
        if verb is Verb.MOVE and (lost <= 0 or all(it.step is not Step.WANTED or it.again for it in units)):
            here = ", ".join(sorted({old.node for _, old, _ in gone}))
            there = ", ".join(sorted({new.node for _, _, new in gone if new is not None}))
            return Moved(workload_named(self.world, self.chunk.workload.id), here, there, lost)
        if victim.background or all(unit.step is Step.BONUS for unit in units):
            return self.shrunk(lost, victim.background)
        return self.reason(victim, lost, max(unit.priority for unit in units))
