"""Decides when a held workload may compete, by dependencies, begin times, array limits and user limits.

Belongs to the loop's thread. A dependency that was met stays met, and the end of a workload is seen in the
cycle in which it ends. So nothing depends on how long its row is kept.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pliant.control.state.draft import Draft
from pliant.control.state.limits import Turns
from pliant.control.state.state import SCHEDULER, State
from pliant.model.event import EventKind
from pliant.model.hold import ARRAY_LIMIT, BEGIN_TIME, DEPENDENCY, USER_LIMIT, Dependency, When
from pliant.model.workload import Desired, Phase, Workload


class Holds:
    def __init__(self, state: State) -> None:
        self._state = state
        self.wake: int | None = None  # ms; the next begin time

    def look(self, draft: Draft) -> None:
        """Release what may compete and cancel what never can, until no more is cancelled."""
        while self._turn(draft):
            self._state.renew_phases(draft)

    def _turn(self, draft: Draft) -> bool:
        """Do one pass; True if it cancelled a workload, on which others may depend."""
        world, cancelled = self._state.world, False
        waiting = sorted((world.workloads[it] for it in self._state.waiting), key=_order)
        going = self._going(waiting)
        begins: list[int] = []
        turns = Turns(self._state, draft.now)
        for row in waiting:
            after = tuple(self._seen(self._again(row, one)) for one in row.after)
            if row.held == DEPENDENCY and (failed := self._hopeless(row, after)) is not None:
                self._cancel(row, failed, draft)
                cancelled = True
                continue
            held = hold(row if after == row.after else replace(row, after=after), draft.now)
            element = row.element
            limited = None
            if held == ARRAY_LIMIT and element is not None and going[element.array] < element.at_once:
                held = ""
            if not held and (limited := turns.over(row)) is not None:
                held = USER_LIMIT
            if not held and element is not None and element.at_once:
                going[element.array] += 1
            if held == BEGIN_TIME and row.begin is not None:
                begins.append(row.begin)
            if (held, after, limited) != (row.held, row.after, row.limited):
                self._state.put(draft, replace(row, held=held, after=after, limited=limited))
        self.wake = min([*begins, *([turns.wake] if turns.wake is not None else [])], default=None)
        return cancelled

    def _going(self, waiting: Iterable[Workload]) -> Counter[str]:
        """Number of elements that compete or run, for each array in which some wait for their turn."""
        limited = {row.element.array for row in waiting if row.element is not None and row.element.at_once}
        return Counter(
            row.element.array
            for row in (self._state.world.workloads.values() if limited else ())
            if row.element is not None and row.element.array in limited
            if not (row.held or row.phase.final) and row.desired is not Desired.DELETED
        )

    def _again(self, row: Workload, one: Dependency) -> Dependency:
        """The dependency, moved to the job of the same name that was submitted after the first one failed."""
        rows = self._state.world.workloads
        if not row.keep_pending or one.met or not _over(rows.get(one.workload)) or self._met(one):
            return one
        later = (
            other.id
            for other in rows.values()
            if other.name == one.name and other.project == row.project and other.id != one.workload
            if other.desired is not Desired.DELETED
        )
        return replace(one, workload=next(later, one.workload))

    def _seen(self, one: Dependency) -> Dependency:
        return one if one.met else replace(one, met=self._met(one))

    def _met(self, one: Dependency) -> bool:
        row = self._state.world.workloads.get(one.workload)
        over = _over(row)
        match one.when:
            case When.AFTER:
                begun = any(
                    task.first_started is not None for task in self._state.world.tasks_of(one.workload)
                )
                return over or begun
            case When.ANY:
                return over
            case When.OK:
                return _succeeded(row)
            case When.NOT_OK:
                return over and not _succeeded(row)

    def _hopeless(self, row: Workload, after: Sequence[Dependency]) -> Dependency | None:
        """A dependency that can never be met and that it cannot start without; None: there is none."""
        if row.keep_pending:
            return None
        world = self._state.world.workloads
        failed = [one for one in after if not one.met and _over(world.get(one.workload))]
        if row.after_any and len(failed) < len(after):
            return None
        return failed[0] if failed else None

    def _cancel(self, row: Workload, failed: Dependency, draft: Draft) -> None:
        how = ending_of(self._state.world.workloads.get(failed.workload))
        words = f"Dependency {failed.name} {how}."
        self._state.last_words[row.id] = words
        self._state.put(draft, replace(row, desired=Desired.STOPPED, cancelled_by=SCHEDULER))
        draft.event(row.id, EventKind.CANCELLED, f"Cancelled {row.name}: {words}", who="server")


def _order(row: Workload) -> tuple[int, int]:
    """The sort key of waiting workloads: higher priority first, then older."""
    return (-row.priority, row.serial)


def hold(row: Workload, now: int) -> str:
    """Code of what keeps it from competing, by its own row; '': nothing. Array turns are not checked."""
    met = [one.met for one in row.after]
    if met and not (any(met) if row.after_any else all(met)):
        return DEPENDENCY
    if row.begin is not None and row.begin > now:
        return BEGIN_TIME
    return ARRAY_LIMIT if row.element is not None and row.element.at_once else ""


def ending_of(row: Workload | None) -> str:
    """'succeeded', 'failed', 'was cancelled', 'was deleted'."""
    if row is None or (row.desired is Desired.DELETED and row.ended_as is None):
        return "was deleted"
    if row.cancelled_by:
        return "was cancelled"
    return "succeeded" if _succeeded(row) else "failed"


def _over(row: Workload | None) -> bool:
    return row is None or row.phase.final or row.desired is Desired.DELETED


def _succeeded(row: Workload | None) -> bool:
    return row is not None and (row.ended_as or row.phase) is Phase.COMPLETED
