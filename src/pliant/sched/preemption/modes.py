"""Makes the attempts of a victim search in their order; all of them record their obstacles in one object."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from pliant.sched.preemption.attempt import FEW, Attempt, Obstacles, SearchMode
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.world.chunks import Step

Simulated = Callable[[Attempt], bool]  # True if the attempt is found; else the world is restored


class Modes:
    """The modes of one search in their order, each simulated in the world as it was before the search."""

    def __init__(self, policy: Policy, prices: PriceCache, simulated: Simulated) -> None:
        self._policy = policy
        self._world = policy.world
        self._prices = prices
        self._simulated = simulated
        self._each = len(policy.nodes.nodes) * len(policy.chunk.parts)  # refinements that an attempt costs
        self._mark = self._world.checkpoint()
        self._shown: Attempt | None = None  # the attempt applied to the world; None: it is as before
        self.met = Obstacles()

    def answer(self) -> Attempt | None:
        """The best attempt found, applied to the world; None: nothing is taken."""
        met, policy, churn = self.met, self._policy, self._policy.grounds.churn
        best = self._best(SearchMode())
        ideal = self._best(SearchMode(waited=True)) if met.spared else None
        if ideal is not None and self._waits(best, ideal):
            best = None
        elif best is None:
            # A core may be freed by evicting and moving together.
            relocates = policy.relocates and policy.chunk.step is Step.CORE and len(policy.nodes.nodes) > 1
            best = self._best(SearchMode(relocates=True)) if relocates else None
            free = SearchMode(unbounded=True, relocates=relocates)
            if best is None and met.denied and self._best(free) is not None:  # only a budget is in the way
                met.withheld = min(met.denied, key=lambda each: (churn.until(each), each))
                met.wake = churn.until(met.withheld)
        if best is not self._shown:
            self._back()
            self._world.replay(best.claims if best is not None else {})
        if best is not None and (best.mode != SearchMode() or churn.bounded):
            best.heaps = {}  # the next search would not find the same
        return best

    def _best(self, mode: SearchMode) -> Attempt | None:
        """The first attempt of this kind that is found, or a lighter one; None if none is found."""
        found = next(filter(None, map(self._tried, self._variants(mode))), None)
        return self._lightest(found) if found is not None else None

    def _waits(self, taken: Attempt | None, ideal: Attempt) -> bool:
        """True if waiting until minimum run times are over costs fewer cores or GPUs, or is the only way."""
        met = self.met
        if taken is not None and self._prices.of(taken.units)[:2] <= self._prices.of(ideal.units)[:2]:
            return False
        waited_for = {unit.workload for unit in ideal.units if unit.workload in met.spared}
        if waited_for:
            last = max(waited_for, key=lambda wid: (met.spared[wid], wid))
            met.protected = last, met.spared[last], self._policy.guarantee(self._world.workloads[last])
            met.wake = min(met.spared.values())  # an equally good victim may be unprotected earlier
        return bool(waited_for)

    # ------------------------------------------------------------------ simulate
    def _tried(self, mode: SearchMode) -> Attempt | None:
        """The attempt of a mode; None, and the world is as it was, if it is not found."""
        self._back()
        attempt = Attempt(self._world, mode, self.met)
        self._shown = attempt if self._simulated(attempt) else None
        return self._shown

    def _back(self) -> None:
        """Restore the world; the attempt keeps its claims, so that it can be replayed."""
        if self._shown is not None:
            self._shown.claims = self._world.since(self._mark)
            self._world.undo(self._mark)
            self._shown = None

    # ------------------------------------------------------------------ which modes
    def _variants(self, mode: SearchMode) -> Iterator[SearchMode]:
        """The mode itself, then with the policy's own bound first, then with each other workload first."""
        yield mode
        if self._policy.lacking() is not None:
            yield replace(mode, own_bound=True)
        for wid in self._others() if self._policy.in_turn else ():
            if not self._policy.grounds.effort.refine(self._each):
                break
            yield replace(mode, first=wid)

    def _lightest(self, best: Attempt) -> Attempt:
        """The attempt itself, or the lightest one found while the budget of refinements lasts."""
        policy, few = self._policy, 0 < len(best.units) <= FEW
        least = len(best.units) == 1 and best.units[0].gpu <= policy.adding.gpu  # no more than is requested
        worth = few and not least and not policy.moves and policy.grounds.places.settings.refine
        if not worth or self._policy.grounds.effort.refinements < self._each:
            return best
        tried: set[SearchMode] = set()
        self._back()
        others = self._others()
        while mode := next((it for it in self._lighter(best, others) if it not in tried), None):
            if not self._policy.grounds.effort.refine(self._each):
                break
            tried.add(mode)
            other = self._tried(mode)
            if other is not None and self._prices.of(other.units) < self._prices.of(best.units):
                best = other
        return best

    def _lighter(self, best: Attempt, others: dict[str, int]) -> Iterator[SearchMode]:
        """Modes that keep the core of one victim; then modes that begin with one that may suffice alone."""
        base = replace(best.mode, first="", keeps="")
        victims = {it.workload for it in best.units if it.step is Step.CORE and it.again is None}
        for wid in sorted(victims, key=self._prices.rank, reverse=True):
            yield replace(base, keeps=wid)
        price = self._prices.of(best.units)[:2]
        for wid, gpu in others.items() if price[0] else ():
            if wid not in victims and (1, gpu) <= price:
                yield replace(base, first=wid)

    def _others(self) -> dict[str, int]:
        """Other workloads and the milli-GPUs that they hold, the largest first.

        Empty for a policy with `in_turn` while another project holds bonus or GPUs given in this cycle: these
        are lost before any core, and with them the project only seems to be above its due.
        """
        world, own = self._world, self._policy.chunk.workload
        loose = {wid for wid, _ in world.changed() if world.gpu_of(wid) and world.given_now(wid)}
        loose |= {wid for wid in world.stretched if world.need(wid).bonus_gpu}
        if self._policy.in_turn and any(world.workloads[wid].project != own.project for wid in loose):
            return {}
        holders = chain(*(it for project, it in world.holders.items() if project in world.projects))
        found = [(-world.gpu_of(wid), self._prices.rank(wid), wid) for wid in holders if wid != own.id]
        return {wid: -gpu for gpu, _, wid in sorted(found) if gpu}
