"""Asks the core about changes with which a waiting workload would start, and keeps those that pass."""

from collections.abc import Callable
from dataclasses import replace

from pliant.model.quantity import GPU
from pliant.sched.explain.remedies import Remedy
from pliant.sched.explain.trial import Change, Decide, Trial, apply, started, together
from pliant.sched.settings import Settings
from pliant.sched.world.portions import whole
from pliant.sched.world.rows import WORLD_ROWS
from pliant.sched.world.state import World

UNITS = {"gpu": GPU, "cpu": 1000, "memory": 2**30}


class Search:
    """The search for one waiting workload: the remedies found so far, and the ways to try more."""

    def __init__(
        self,
        world: World,
        now: int,
        settings: Settings,
        decide: Decide,
        workload: str,
        *,
        tries: int = 400,
        enough: int = 20,
        deep: bool = False,
    ) -> None:
        # Here it matters only whether it starts, not how much others lose.
        self.trial = Trial(
            world, now, replace(settings, refine=False), decide, tries
        )  # tries: how often to ask
        self.world = world
        self.wid = workload
        self.enough = enough  # kinds of cures with which the search is done
        self.deep = deep  # many are before it and profit first from what ends: that is tried last
        self.found: list[Remedy] = []
        self.after: tuple[Remedy, ...] = ()  # changes kept in the world: they are needed in any case
        self._undo: list[Change] = []  # the changes that undo them

    def works(self, change: Change, now: int | None = None) -> bool:
        """True if the workload gets places, or starts on those that it has."""
        if self.trial.tries <= 0:
            return False
        return started(self.world, self.trial.decide(change, now), self.wid)

    def least(self, most: int, change: Callable[[int], Change], guess: int = 0) -> int:
        """A count from 1 to `most` that works while one less does not; 0 if even `most` does not work.

        `guess` is tried first. A count of 0 is known not to work.
        """
        low, high = 0, most
        if 0 < guess < most:
            if self.works(change(guess)):
                if guess == 1 or (not self.works(change(guess - 1)) and self.trial.tries > 0):
                    return guess
                high = guess - 1
            else:
                low = guess
        if high == most and (most <= low or not self.works(change(most))):
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            if self.works(change(middle)):
                high = middle
            else:
                low = middle
        return high if self.trial.tries > 0 else 0

    def unit(self, resource: str) -> int:
        """The step by which quotas and limits are raised; a tenth of it if a part of a GPU is requested."""
        groups = self.world.workloads[self.wid].groups
        coarse = all(whole(group.request) or not group.request.devices for group in groups)
        return UNITS[resource] if coarse else UNITS[resource] // 10

    def add(self, remedy: Remedy) -> None:
        """Add a remedy together with the kept changes, unless one of these is not needed with it."""
        if self.after:
            first = together(step.change for step in self.after)
            less = tuple(first.and_then(other) for other in remedy.less) or (first,)
            if not self._needed(remedy):
                return
            remedy = replace(remedy, change=first.and_then(remedy.change), less=less, after=self.after)
        if all(remedy.steps != other.steps for other in self.found):  # two ways may lead to one answer
            self.found.append(remedy)

    def _needed(self, remedy: Remedy) -> bool:
        """True if no kept change could be left out; one of a row that changes again is not tested."""
        undone = [apply(self.world, undo) for undo in reversed(self._undo)]
        try:
            for at, left in enumerate(self.after):
                touched = {WORLD_ROWS.identity(row) for row in left.change.puts}
                after = (row for step in (*self.after[at + 1 :], remedy) for row in step.change.puts)
                if not touched.isdisjoint(map(WORLD_ROWS.identity, after)):
                    continue
                rest = together(other.change for other in self.after if other is not left)
                if self.works(rest.and_then(remedy.change)):
                    return False
            return True
        finally:
            for done in reversed(undone):
                apply(self.world, done)

    def keep(self, remedy: Remedy) -> None:
        """Keep a change in the world for all further tries."""
        self._undo.append(apply(self.world, remedy.change))
        self.after = (*self.after, remedy)

    @property
    def done(self) -> bool:
        return len({remedy.kind for remedy in self.found}) >= self.enough or self.trial.tries <= 0

    def restore(self) -> None:
        """Undo the kept changes: the world is as it was."""
        while self._undo:
            apply(self.world, self._undo.pop())
        self.after = ()
