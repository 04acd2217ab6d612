"""Churn: how often the work of a project may be disrupted for other work, and how often it was."""

from collections.abc import Iterable

from pliant.model.ledger import Disruptions
from pliant.model.reason import GaveWay, Shrunk
from pliant.model.workload import Workload
from pliant.sched.plan import Decision, Verb
from pliant.sched.preemption.attempt import Unit
from pliant.sched.settings import Settings
from pliant.sched.world.chunks import Step
from pliant.sched.world.state import World

TAKING = ("consolidate", "reclaim", "preempt")
"""Actions that disrupt work for other work. Returned bonus GPUs and background work do not count."""


class Churn:
    """The budgets of one cycle. A decision counts against the project of the workload that it disrupts."""

    def __init__(self, world: World, now: int, settings: Settings) -> None:
        self._world = world
        self._now = now
        self.budget = settings.churn_budget
        self.bounded = self.budget >= 0
        self.window = settings.churn_window
        self._counts: dict[str, int] = {}  # decisions of this cycle by project

    def left(self, project: str) -> int:
        """How many disruptive decisions may still be made against a project. Only valid if `bounded`."""
        return self.budget - len(self._past(project)) - self._counts.get(project, 0)

    def allows(self, victim: Workload, taken: Iterable[Unit]) -> bool:
        """True if a search that has taken these units may disrupt this workload, too."""
        world = self._world
        rows = (world.workloads[unit.workload] for unit in taken if unit.step is not Step.BONUS)
        mine = (row for row in rows if row.project == victim.project)
        counted = {row.id for row in mine if not (row.background or world.given_now(row.id))}
        free = victim.id in counted or world.given_now(victim.id)
        return free or len(counted) < self.left(victim.project)

    def until(self, project: str) -> int:
        """When (ms) the oldest counted decision leaves the window; one window from now if none is counted."""
        return min(self._past(project), default=self._now) + self.window

    def _past(self, project: str) -> tuple[int, ...]:
        row = self._world.disruptions.get(project)
        return tuple(at for at in row.times if at > self._now - self.window) if row is not None else ()

    def note(self, decision: Decision) -> None:
        if self.bounded and (project := self._disturbed(decision)):
            self._counts[project] = self._counts.get(project, 0) + 1

    def rows(self, decisions: Iterable[Decision]) -> tuple[Disruptions, ...]:
        """The rows to store: for each disrupted project, the earlier decisions that still count and these."""
        counts: dict[str, int] = {}
        for decision in decisions if self.bounded else ():
            if project := self._disturbed(decision):
                counts[project] = counts.get(project, 0) + 1
        return tuple(
            Disruptions(project, (*self._past(project), *[self._now] * count))
            for project, count in sorted(counts.items())
        )

    def _disturbed(self, decision: Decision) -> str:
        """The project whose work a decision disrupts; empty if it disrupts none."""
        takes = decision.action in TAKING and decision.verb in (Verb.EVICT, Verb.SHRINK, Verb.MOVE)
        if not takes or isinstance(decision.reason, Shrunk | GaveWay):
            return ""
        if self._world.given_now(decision.workload):
            return ""
        return self._world.workloads[decision.workload].project
