"""Asks the core about changes with which a waiting workload would start, and keeps those that pass."""

from collections.abc import Callable
from dataclasses import replace

from pliant.model.quantity import GPU
from pliant.sched.explain.remedies import Remedy
from pliant.sched.explain.trial import Change, Trial, started, together
from pliant.sched.settings import Settings
from pliant.sched.world.portions import whole
from pliant.sched.world.rows import WORLD_ROWS
from pliant.sched.world.state import World

UNITS = {"gpu": GPU, "cpu": 1000, "memory": 2**30}


class Search:
    """What is known of one waiting workload, and the ways to ask for more."""

    def __init__(
        self,
        world: World,
        now: int,
        settings: Settings,
        workload: str,
        *,
        tries: int = 400,
        enough: int = 20,
        deep: bool = False,
    ) -> None:
        # Who else loses how much does not matter here: only whether it starts.
        self.trial = Trial(world, now, replace(settings, refine=False), tries)  # tries: how often to ask
        self.world = world
        self.wid = workload
        self.enough = enough  # kinds of answer with which to be content
        self.deep = deep  # many are before it: what ends serves them first, so that comes last
        self.found: list[Remedy] = []
        self.after: tuple[Remedy, ...] = ()  # changes that are made in the world, for they are needed anyhow
        self._undo: list[Change] = []  # what takes them back

    def works(self, change: Change, now: int | None = None) -> bool:
        """True if the workload gets places, or starts on those that it has."""
        if self.trial.tries <= 0:
            return False
        return started(self.world, self.trial.decide(change, now), self.wid)

    def least(self, most: int, change: Callable[[int], Change], guess: int = 0) -> int:
        """The smallest count from 1 to `most` of which one less does not do; 0 if even `most` does not.

        `guess` is tried first. That a count of 0 does not do is known.
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
        """In which steps quotas and limits are raised: finer ones where a part of a GPU is asked for."""
        groups = self.world.workloads[self.wid].groups
        coarse = all(whole(group.request) or not group.request.devices for group in groups)
        return UNITS[resource] if coarse else UNITS[resource] // 10

    def add(self, remedy: Remedy) -> None:
        """Take it, together with what has to be changed besides."""
        if self.after:
            first = together(step.change for step in self.after)
            less = tuple(first.and_then(other) for other in remedy.less) or (first,)
            if not self._needed(remedy):
                return
            remedy = replace(remedy, change=first.and_then(remedy.change), less=less, after=self.after)
        if all(remedy.steps != other.steps for other in self.found):  # two ways may lead to one answer
            self.found.append(remedy)

    def _needed(self, remedy: Remedy) -> bool:
        """True if no change before it could be left out; one of a row that changes again is kept."""
        undone = [self.trial.apply(undo) for undo in reversed(self._undo)]
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
                self.trial.apply(done)

    def keep(self, remedy: Remedy) -> None:
        """Make a change for all that is tried from now on."""
        self._undo.append(self.trial.apply(remedy.change))
        self.after = (*self.after, remedy)

    @property
    def done(self) -> bool:
        return len({remedy.kind for remedy in self.found}) >= self.enough or self.trial.tries <= 0

    def restore(self) -> None:
        """Take back what was kept: the world is as it was."""
        while self._undo:
            self.trial.apply(self._undo.pop())
        self.after = ()
