"""The attempts of a victim search in their order: each knows the obstacles that earlier ones found."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge

from pliant.sched.preemption.attempt import Aim, Attempt, Effort, Rank, SearchMode
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.world.chunks import Step
from pliant.sched.world.node_classes import NodeClass

AIMS = tuple(Aim)

Other = tuple[int, Rank, str]  # one to be evicted first: minus its milli-GPUs, its rank, its id

FEW = 16  # units; with more no smaller set is looked for, and none is left out by placing everything again
ELSEWHERE = 4  # repetitions of a search for moves without the workloads that have no other place


class Modes:
    """The modes of one search: iterate, simulate each, and note the attempt before asking for the next."""

    def __init__(self, policy: Policy, effort: Effort, prices: PriceCache, cls: NodeClass) -> None:
        self._policy = policy
        self._world = policy.world
        self._effort = effort
        self._prices = prices
        self._cls = cls
        self._settings = policy.grounds.places.settings
        self._each = len(cls.nodes) * len(policy.chunk.parts)  # refinements that one more attempt costs
        self._mark = self._world.checkpoint()
        self._sheltered = frozenset(policy.grounds.churn.spent())
        self._met = Attempt(self._world, SearchMode())  # all obstacles that the attempts found
        self._best: dict[Aim, Attempt] = {}
        self.last = self._met  # the latest attempt
        self.shown: Attempt | None = None  # the attempt that the world shows; None: it is as it was

    def note(self, attempt: Attempt) -> None:
        self.last = self.shown = attempt
        met = self._met
        met.spared.update(attempt.spared)
        met.denied |= attempt.denied
        met.overdrawn |= attempt.overdrawn
        met.returns = met.returns or attempt.returns
        met.outwaited = met.outwaited or attempt.outwaited

    def back(self) -> None:
        """Restore the world; a valid attempt can be repeated."""
        if self.last.found and self.last.claims is None:
            self.last.claims = self._world.since(self._mark)
        self._world.undo(self._mark)
        self.shown = None

    def __iter__(self) -> Iterator[SearchMode]:
        """The modes worth an attempt, in order, given the obstacles that earlier ones found."""
        for aim in AIMS:
            for mode in self._of_aim(aim) if self._called_for(aim) else ():
                yield mode
                if self.last.found:
                    self._best[aim] = self.last
                    yield from self._lighter(aim)
                    break
            if self._best and not self._met.spared:
                return  # nothing could change the answer

    def _called_for(self, aim: Aim) -> bool:
        """True if an aim may still change the answer."""
        if aim is Aim.TAKE:
            return True
        if aim is Aim.WAIT:
            return bool(self._met.spared)
        if self._met.protected or self._best.keys() - {Aim.WAIT} or self._waits():
            return False
        return self._may_relocate() if aim is Aim.RELOCATE else bool(self._met.denied)

    def _may_relocate(self) -> bool:
        """True if a core may be freed by evicting and moving together."""
        moves = self._policy.resettles and self._settings.consolidation_victims != 0
        return moves and self._policy.chunk.step is Step.CORE and len(self._cls.nodes) > 1

    def _of_aim(self, aim: Aim) -> Iterator[SearchMode]:
        """In the default order, then by the policy's own bound, then beginning with each other workload.

        Victims that would be reclaimed at once are avoided from the start only after an attempt found some.
        If an attempt takes more from a project than its budget allows, all is tried again without it.
        """
        policy, met = self._policy, self._met
        relocates = aim in (Aim.RELOCATE, Aim.UNBOUNDED) and self._may_relocate()
        sheltered = frozenset() if aim is Aim.UNBOUNDED else self._sheltered
        more: frozenset[str] | None = None
        while more is None or more:
            met.overdrawn, met.returns = set(), False
            for lasting in (False, True):
                mode = SearchMode(aim, lasting, relocates=relocates, sheltered=sheltered)
                yield mode
                for _ in range(ELSEWHERE if policy.moves else 0):
                    if self.last.homeless <= mode.keeps:
                        break  # no obstacle was without another place
                    mode = replace(mode, keeps=mode.keeps | self.last.homeless)
                    yield mode
                self.back()
                if policy.lacking() is not None:
                    yield replace(mode, own_bound=True)
                    self.back()
                for _, _, wid in self._others() if policy.in_turn and not self._loose() else ():
                    if self._effort.refinements < self._each:
                        break
                    self._effort.refinements -= self._each
                    yield replace(mode, first=wid)
                if not met.returns:
                    break
            more = frozenset(met.overdrawn - sheltered)
            sheltered |= more
            met.denied |= more
            if aim is not Aim.UNBOUNDED:
                self._sheltered = sheltered

    def _lighter(self, aim: Aim) -> Iterator[SearchMode]:
        """While the budget lasts: without one victim, and beginning with one that may suffice alone."""
        policy, met, units = self._policy, self._met, self.last.units
        if policy.moves or not units or len(units) > FEW or not self._settings.refine:
            return
        if len(units) == 1 and units[0].gpu <= policy.adding.gpu:
            return  # one victim, and no more than is requested
        if self._effort.refinements < self._each:
            return
        base = replace(self.last.mode, own_bound=False)
        overdrawn, denied = set(met.overdrawn), set(met.denied)
        tried: set[tuple[str, str]] = set()
        self.back()
        others = [] if policy.in_turn and self._loose() else self._others()
        while self._effort.refinements >= self._each:
            way = next((it for it in self._ways(self._best[aim], others) if it not in tried), None)
            if way is None:
                break
            tried.add(way)
            self._effort.refinements -= self._each
            yield replace(base, keeps=frozenset({way[0]} - {""}), first=way[1])
            if self.last.found and self.last.price < self._best[aim].price:
                self._best[aim] = self.last
                self.last.heaps = {}  # prices of nodes that changed are not known
        met.overdrawn, met.denied = overdrawn, denied

    def _ways(self, best: Attempt, others: Sequence[Other]) -> Iterator[tuple[str, str]]:
        """Whose core is kept, or who is evicted first instead, by what the last attempt left of them."""
        world = self._world
        victims = {it.workload for it in best.units if it.step is Step.CORE and it.again is None}
        for wid in sorted(victims, key=self._prices.rank, reverse=True):
            yield wid, ""
        if others and best.price[0]:
            touched = {key[0] for key in world.since(self._mark)}
            left = sorted((-world.gpu_of(wid), rank, wid) for _, rank, wid in others if wid in touched)
            for gpu, _, wid in merge((it for it in others if it[2] not in touched), left):
                if gpu and wid not in victims and (1, -gpu) <= best.price[:2]:
                    yield "", wid

    def _others(self) -> list[Other]:
        """Other workloads that hold GPUs, the largest first."""
        world, own = self._world, self._policy.chunk.workload.id
        return sorted(
            (-gpu, self._prices.rank(wid), wid)
            for project, holders in world.holders.items()
            if project in world.projects
            for wid in holders
            if wid != own and (gpu := world.gpu_of(wid))
        )

    def _loose(self) -> bool:
        """True if another workload holds GPUs that are lost before any core: bonus, or GPUs of this cycle."""
        world, own = self._world, self._policy.chunk.workload.project
        given = {wid for wid, _ in world.changed() if world.gpu_of(wid) and world.given_now(wid)}
        lent = {wid for wid in world.stretched if world.need(wid).bonus_gpu}
        return any(world.workloads[wid].project != own for wid in given | lent)

    # ------------------------------------------------------------------ the answer
    def _waits(self) -> bool:
        """True if waiting for the end of others' minimum run time would save GPUs."""
        met, taken, ideal = self._met, self._best.get(Aim.TAKE), self._best.get(Aim.WAIT)
        if ideal is None or (taken is not None and taken.price[:2] <= ideal.price[:2]):
            return False
        waited_for = {unit.workload for unit in ideal.units if unit.workload in met.spared}
        if waited_for:
            last = max(waited_for, key=lambda wid: (met.spared[wid], wid))
            rule = self._policy.guarantee(self._world.workloads[last])
            met.protected = last, met.spared[last], rule
            met.wake = min(met.spared.values())  # another, equally good one may be free to go earlier
        return bool(waited_for)

    def chosen(self) -> Attempt:
        """The best attempt of the first aim that was reached, else the obstacles found."""
        met, churn = self._met, self._policy.grounds.churn
        if self._waits():
            return met
        found = self._best.get(Aim.TAKE) or self._best.get(Aim.RELOCATE)
        if found is not None:
            found.outwaited = met.outwaited
            if met.spared or self._sheltered or found.mode.aim is not Aim.TAKE:
                found.heaps = {}  # the next search would not find the same
            return found
        if Aim.UNBOUNDED in self._best:
            met.withheld = min(met.denied, key=lambda each: (churn.until(each), each))
            met.wake = churn.until(met.withheld)
        return met
