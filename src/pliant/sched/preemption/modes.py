"""The attempts of a victim search in their order: each knows the obstacles that earlier ones found."""

from collections.abc import Iterator
from dataclasses import replace

from pliant.sched.preemption.attempt import Aim, Attempt, Cost, Effort, Obstacles, Rank, SearchMode
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.world.chunks import Step
from pliant.sched.world.node_classes import NodeClass

Other = tuple[int, Rank, str]  # one to be evicted first: minus its milli-GPUs, its rank, its id

FEW = 16  # units; with more no smaller set is looked for, and none is left out by placing everything again


class Modes:
    """The modes of one search: iterate, simulate the attempt of each, note it before asking for the next."""

    def __init__(self, policy: Policy, effort: Effort, prices: PriceCache, cls: NodeClass) -> None:
        self._policy = policy
        self._world = policy.world
        self._effort = effort
        self._prices = prices
        self._cls = cls
        self._each = len(cls.nodes) * len(policy.chunk.parts)  # refinements that one more attempt costs
        self._mark = self._world.checkpoint()
        self._best: dict[Aim, Attempt] = {}
        self._attempts = 0
        self._shown: Attempt | None = None  # the attempt that the world shows; None: it is as it was
        self.met = Obstacles()

    def attempt(self, mode: SearchMode) -> Attempt:
        """The next attempt, in the world as it was."""
        self._attempts += 1
        self._back()
        return Attempt(self._world, mode, self.met)

    def note(self, attempt: Attempt) -> None:
        """One that is not found has left the world as it was."""
        self._shown = attempt if attempt.found else None

    def _back(self) -> None:
        """Restore the world; what it shows can be repeated."""
        if self._shown is not None:
            self._shown.claims = self._world.since(self._mark)
            self._world.undo(self._mark)
            self._shown = None

    # ------------------------------------------------------------------ generate
    def __iter__(self) -> Iterator[SearchMode]:
        """The modes worth an attempt, in order, given the obstacles that earlier ones found."""
        for aim in Aim:
            for mode in self._of_aim(aim) if self._called_for(aim) else ():
                yield mode
                if self._shown is not None:
                    self._best[aim] = self._shown
                    break
            if aim in self._best:
                yield from self._lighter(aim)
            if self._best and not self.met.spared:
                return  # nothing could change the answer

    def _called_for(self, aim: Aim) -> bool:
        """True if an aim may still change the answer."""
        if aim is Aim.TAKE:
            return True
        if aim is Aim.WAIT:
            return bool(self.met.spared)
        if self.met.protected or self._best.keys() - {Aim.WAIT} or self._waits():
            return False
        return self._may_relocate() if aim is Aim.RELOCATE else bool(self.met.denied)

    def _may_relocate(self) -> bool:
        """True if a core may be freed by evicting and moving together."""
        policy = self._policy
        moves = policy.resettles and policy.grounds.places.settings.consolidation_victims != 0
        return moves and policy.chunk.step is Step.CORE and len(self._cls.nodes) > 1

    def _of_aim(self, aim: Aim) -> Iterator[SearchMode]:
        """In the default order, then by the policy's own bound, then beginning with each other workload."""
        policy = self._policy
        relocates = aim in (Aim.RELOCATE, Aim.UNBOUNDED) and self._may_relocate()
        mode = SearchMode(aim, relocates=relocates)
        yield mode
        if policy.lacking() is not None:
            yield replace(mode, own_bound=True)
        for _, _, wid in self._others() if policy.in_turn else ():
            if not self._effort.refine(self._each):
                break
            yield replace(mode, first=wid)

    def _lighter(self, aim: Aim) -> Iterator[SearchMode]:
        """While the budget lasts: without one victim, and beginning with one that may suffice alone."""
        policy, found = self._policy, self._best[aim]
        if policy.moves or not policy.grounds.places.settings.refine or not 0 < len(found.units) <= FEW:
            return
        if len(found.units) == 1 and found.units[0].gpu <= policy.adding.gpu:
            return  # one victim, and no more than is requested
        if self._effort.refinements < self._each:
            return
        base = replace(found.mode, own_bound=False, first="")
        tried: set[tuple[str, bool]] = set()
        self._back()
        others = self._others()
        while True:
            way = next((it for it in self._ways(self._best[aim], others) if it not in tried), None)
            if way is None or not self._effort.refine(self._each):
                break
            tried.add(way)
            yield replace(base, keeps=frozenset(way[:1])) if way[1] else replace(base, first=way[0])
            if self._shown is not None and self._price(self._shown) < self._price(self._best[aim]):
                self._best[aim] = self._shown

    def _ways(self, best: Attempt, others: list[Other]) -> Iterator[tuple[str, bool]]:
        """A workload whose core was taken, to be kept (True), or one to begin with that costs less."""
        victims = {it.workload for it in best.units if it.step is Step.CORE and it.again is None}
        for wid in sorted(victims, key=self._prices.rank, reverse=True):
            yield wid, True
        price = self._price(best)[:2]
        for gpu, _, wid in others if price[0] else ():
            if wid not in victims and (1, -gpu) <= price:
                yield wid, False

    def _price(self, attempt: Attempt) -> Cost:
        return self._prices.of(attempt.units)

    def _others(self) -> list[Other]:
        """Other workloads that hold GPUs, the largest first.

        Where the first victim decides which may follow there are none while another project holds GPUs that
        are lost before any core, bonus or those of this cycle: with them it only seems to be above its due.
        """
        world, own = self._world, self._policy.chunk.workload
        loose = {wid for wid, _ in world.changed() if world.gpu_of(wid) and world.given_now(wid)}
        loose |= {wid for wid in world.stretched if world.need(wid).bonus_gpu}
        if self._policy.in_turn and any(world.workloads[wid].project != own.project for wid in loose):
            return []
        return sorted(
            (-gpu, self._prices.rank(wid), wid)
            for project, holders in world.holders.items()
            if project in world.projects
            for wid in holders
            if wid != own.id and (gpu := world.gpu_of(wid))
        )

    # ------------------------------------------------------------------ the answer
    def _waits(self) -> bool:
        """True if waiting for the end of others' minimum run time would save GPUs."""
        met, taken, ideal = self.met, self._best.get(Aim.TAKE), self._best.get(Aim.WAIT)
        if ideal is None or (taken is not None and self._price(taken)[:2] <= self._price(ideal)[:2]):
            return False
        waited_for = {unit.workload for unit in ideal.units if unit.workload in met.spared}
        if waited_for:
            last = max(waited_for, key=lambda wid: (met.spared[wid], wid))
            rule = self._policy.guarantee(self._world.workloads[last])
            met.protected = last, met.spared[last], rule
            met.wake = min(met.spared.values())  # another, equally good one may be free to go earlier
        return bool(waited_for)

    def answer(self) -> Attempt | None:
        """The best attempt of the first aim that was reached, shown by the world; None: nothing is taken."""
        met, churn, chosen = self.met, self._policy.grounds.churn, self._best.get(Aim.TAKE)
        chosen = None if self._waits() else chosen or self._best.get(Aim.RELOCATE)
        if chosen is not self._shown:
            self._back()
            self._world.replay(chosen.claims if chosen is not None else {})
        if chosen is not None and (self._attempts > 1 or churn.bounded):
            chosen.heaps = {}  # the next search would not find the same
        if chosen is None and Aim.UNBOUNDED in self._best:
            met.withheld = min(met.denied, key=lambda each: (churn.until(each), each))
            met.wake = churn.until(met.withheld)
        return chosen
