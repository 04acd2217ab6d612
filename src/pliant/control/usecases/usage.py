"""Use cases about what users held, and about their limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.control.errors import NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.state.limits import counts, live, spent, waiting
from pliant.control.state.state import State
from pliant.control.state.usage import Busy, UsageBook, going, with_going, within
from pliant.model.event import EventKind
from pliant.model.hold import USER_LIMIT
from pliant.model.identity import Allowance
from pliant.model.ledger import Usage


@dataclass(frozen=True, slots=True)
class Standing:
    """A limit, and what a user uses of it now."""

    limit: Allowance
    running: int = 0  # milli-GPUs
    waiting: int = 0  # workloads
    gpu_ms: int = 0  # milli-GPU-ms within the window


class Usages:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    # -- what was held ------------------------------------------------------------------------------

    def of(self, since: int, until: int) -> list[Usage]:
        """Usage of the days from `since` to before `until` (ms), running attempts included."""
        now = self._loop.clock.now()
        rows, living = self._loop.look(lambda state: ([*state.usages.values()], going(state)))
        return within(with_going(rows, now, living), since, until)

    def sample(self, busy: Busy, ms: int) -> None:
        """Count `ms` during which these GPUs (by uuid) were busy for the given percent of the time."""
        self._loop.call(lambda draft: UsageBook(self._loop.state).sample(busy, ms, draft))

    def forget(self) -> None:
        """Drop usage that is too old."""
        self._loop.call(lambda draft: UsageBook(self._loop.state).forget(draft))

    # -- limits -------------------------------------------------------------------------------------

    def limit(self, change: Allowance, by: str) -> Allowance:
        """Set a user's limit; a change without values removes it."""

        def run(draft: Draft) -> Allowance:
            state = self._loop.state
            if change.project and change.project not in state.world.projects:
                raise NotFound(
                    f"There is no project {change.project!r}.", "See them with: pliant project list"
                )
            none = (change.running, change.waiting, change.gpu_ms) == (None, None, None)
            known = state.access.seen.allowances.get((change.subject, change.project))
            if none and known is None:
                raise NotFound("There is no such limit.", "See them with: pliant limit list")
            if none:
                draft.drop(change)
            else:
                draft.put(change)
            bounded = (change.running, change.gpu_ms) != (None, None)
            for row in state.world.workloads.values() if bounded else ():
                concerned = change.subject in ("", row.user) and change.project in ("", row.project)
                if concerned and counts(row) and not live(state, row):
                    draft.put(replace(row, held=USER_LIMIT))  # this cycle checks who may begin
            whose = change.subject or "everybody"
            draft.event(
                f"project/{change.project}" if change.project else "cluster",
                EventKind.UPDATED,
                f"{by} {'took away' if none else 'set'} the limit of {whose}.",
                who=by,
            )
            return change

        return self._loop.call(run)

    def standings(self, user: str) -> Sequence[Standing]:
        """All limits, each with what its user uses; one for everybody with what `user` uses."""
        now = self._loop.clock.now()

        def run(state: State) -> list[Standing]:
            found = []
            for row in sorted(
                state.access.seen.allowances.values(), key=lambda row: (row.project, row.subject)
            ):
                who, scope = row.subject or user, row.project
                held = sum(one.gpu for one in going(state) if one.user == who and scope in ("", one.project))
                spending = sum(spent(state, who, scope, now)) if row.gpu_ms is not None else 0
                found.append(Standing(row, held, waiting(state, who, scope), spending))
            return found

        return self._loop.look(run)
