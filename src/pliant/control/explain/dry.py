"""Dry runs: makes a change in a draft that is thrown away, and computes what the scheduler would do then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pliant.control.decider.pieces import lean
from pliant.control.decider.port import Known
from pliant.control.explain.questions import Supposed
from pliant.control.ports import Remembered, Row
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.workload import Desired, Workload
from pliant.sched.cycle import decide
from pliant.sched.explain.trial import Change, apply, gone
from pliant.sched.explain.what_if import what_if
from pliant.sched.settings import Settings
from pliant.sched.shares.naming import workload_named
from pliant.sched.world.rows import WORLD_ROWS, of_world

if TYPE_CHECKING:
    from pliant.control.loop import Loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trial:
    """What a change would have recorded."""

    put: tuple[Row, ...]
    drop: tuple[Row, ...]
    settings: Settings  # about scheduling, after the change
    said: tuple[str, ...]  # the messages of its events


class Tried(Exception):
    """Raised instead of making a change."""

    def __init__(self, trial: Trial) -> None:
        super().__init__("nothing was changed")
        self.trial = trial


def together(trials: Sequence[Trial]) -> Trial:
    """Several changes of different objects as one."""
    return Trial(
        tuple(row for trial in trials for row in trial.put),
        tuple(row for trial in trials for row in trial.drop),
        trials[-1].settings,
        tuple(text for trial in trials for text in trial.said),
    )


class DryLoop:
    """A loop that makes no change: a request for one raises Tried, or is refused as usual."""

    def __init__(self, loop: "Loop") -> None:
        self._real = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def call(self, run: Callable[[Draft], T], timeout: float = 60) -> T:
        """Raise Tried after a try between two cycles, which restores what the change set in memory."""
        raise Tried(self._real.look(partial(self._try, run), timeout))

    def _try(self, run: Callable[[Draft], Any], state: State) -> Trial:
        draft = Draft(self._real.clock.now())
        kept = state.settings, state.moved, state.serial, state.last_queue, state.last_role
        marks = dict(state.marks)
        try:
            run(draft)
            rows = tuple(row for row in draft.rows.values() if not isinstance(row, Remembered))
            said = tuple(event.message for event in draft.events)
            return Trial(rows, tuple(draft.dropped.values()), state.settings, said)
        finally:
            state.settings, state.moved, state.serial, state.last_queue, state.last_role = kept
            state.marks = marks

    def submit(self, run: Callable[[Draft], T]) -> T:
        return self.call(run)


def consequences(loop: "Loop", trial: Trial) -> Supposed:
    """What the scheduler would do differently, once all has settled."""
    change = Change(
        tuple(lean(row) for row in trial.put if of_world(row)),
        tuple(row for row in trial.drop if of_world(row)),
    )
    return loop.question(partial(_consequences, now=loop.clock.now(), change=change, settings=trial.settings))


def _consequences(state: Known, now: int, change: Change, settings: Settings) -> Supposed:
    world = state.world
    names = {wid: workload_named(world, wid) for wid in world.workloads}
    for row in change.puts:
        if isinstance(row, Workload) and row.desired is Desired.DELETED:
            change = change.and_then(gone(world, row.id))
    dropped = set(map(WORLD_ROWS.identity, change.drops))
    change = replace(
        change, puts=tuple(row for row in change.puts if WORLD_ROWS.identity(row) not in dropped)
    )
    found = what_if(world, now, state.settings, decide, change, settings)
    apply(world, change)  # so that new workloads have their names
    for row in change.puts:
        if isinstance(row, Workload):
            names[row.id] = workload_named(world, row.id)
    return Supposed(found, {it.workload: names[it.workload] for it in found.differences})
