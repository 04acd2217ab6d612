"""The use cases of the API, the console and tests. Changes go through the loop, reads come from the board."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import cast

from pliant.control.board.outcome import Outcome, outcome_of
from pliant.control.errors import BadRequest, Conflict, NotFound
from pliant.control.explain.dry import DryLoop, Trial, consequences
from pliant.control.explain.questions import Questions, Supposed
from pliant.control.fractions import TaskUse
from pliant.control.loop import Loop
from pliant.control.ports import Engine, Load
from pliant.control.state.draft import Draft
from pliant.control.state.imports import tasks_of
from pliant.control.state.limits import beginning
from pliant.control.submit.submission import Checked
from pliant.control.submit.workload import changed
from pliant.control.usecases.assets import Assets
from pliant.control.usecases.bookings import Bookings
from pliant.control.usecases.files import Files
from pliant.control.usecases.identities import Identities
from pliant.control.usecases.jobs import Jobs
from pliant.control.usecases.logouts import Logouts
from pliant.control.usecases.notices import Notices
from pliant.control.usecases.priorities import Priorities
from pliant.control.usecases.refit import Fitting, refit
from pliant.control.usecases.roles import Roles
from pliant.control.usecases.series import Series
from pliant.control.usecases.streams import Streams
from pliant.control.usecases.tuning import Tuning
from pliant.control.usecases.usage import Usages
from pliant.model.audit import AuditRecord
from pliant.model.event import Event, EventKind
from pliant.model.origin import Origin
from pliant.model.reason import Reason
from pliant.model.sample import MINUTE
from pliant.model.workload import AttemptId, Desired, Task, TaskPhase, Workload


class Service(Streams, Tuning):
    """The use cases. Every method that changes something returns once the change is on disk."""

    def __init__(self, loop: Loop, engines: Mapping[str, Engine]) -> None:
        super().__init__(loop, engines)
        self.questions = Questions(loop)
        self.jobs = Jobs(loop, self._engine)
        self.priorities = Priorities(loop)
        self.assets = Assets(loop)
        self.identities = Identities(loop)
        self.logouts = Logouts(loop)
        self.roles = Roles(loop)
        self.files = Files(loop, engines)
        self.usages = Usages(loop)
        self.notices = Notices(loop)
        self.bookings = Bookings(loop)
        self.series = Series(loop)

    def dry(self) -> "Service":
        """A service that only tries each change: it raises Tried, or is refused as usual."""
        return Service(cast(Loop, DryLoop(self._loop)), self._engines)

    def consequences(self, trial: Trial) -> Supposed:
        """What would be different, once all has settled, if that change were made."""
        return consequences(self._loop, trial)

    # -- reading ------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """What stops all scheduling, for people; '' if nothing does."""
        return self._loop.trouble

    def history(self, identity: str, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Event]]:
        """Its events, oldest first, with sequence numbers."""
        return self._loop.store.events(identity, after=after, limit=limit)

    def happened(
        self, since: int, before: int | None = None, limit: int = 500
    ) -> Sequence[tuple[int, Event]]:
        """Events of all subjects since `since` (ms), numbered below `before`, newest first."""
        return self._loop.store.happened(since, before=before, limit=limit)

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        """What living tasks use of their shares of GPUs, as last observed."""
        return {attempt: use for engine in self._engines.values() for attempt, use in engine.uses().items()}

    def measure(self) -> None:
        """Once a minute: add how busy the GPUs are to the usage sums, and take a sample of everything.

        Raises StaleEpoch, StoreError.
        """
        load = self.load()
        busy = {uuid: it.busy for uuid, it in load.gpus.items()}
        if busy:  # without a driver's numbers there is nothing to add
            self.usages.sample(busy, MINUTE)
        self.series.take(load, self.uses())

    def load(self) -> Load:
        """What living tasks, and what all processes together, use of the nodes now."""
        loads = [engine.load() for engine in self._engines.values()]
        return Load(
            {attempt: load for each in loads for attempt, load in each.tasks.items()},
            {uuid: load for each in loads for uuid, load in each.gpus.items()},
        )

    def ended(self) -> Sequence[Workload]:
        """Deleted workloads that are still remembered, newest first."""
        return self._loop.store.ended()

    def now(self) -> int:
        """Ms since the epoch, by the server's own clock."""
        return self._loop.clock.now()

    def note_audit(self, record: AuditRecord) -> "Future[None]":
        """Record a request that changed no rows."""
        return self._loop.submit(lambda draft: draft.audit.append(record))

    def audited(
        self, since: int, until: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, AuditRecord]]:
        """Audit records from `since` to before `until` (ms), oldest first, with sequence numbers."""
        return self._loop.store.audited(since, until, after=after, limit=limit)

    # -- workloads ----------------------------------------------------------------------------------

    def suspend(self, identity: str, user: str) -> None:
        """Stop it and keep it; its GPUs are free once its tasks have ended."""

        def run(draft: Draft) -> None:
            workload = self._own(identity)
            if workload.phase.final:
                raise Conflict(
                    f"{workload.name} has ended ({workload.phase.value}).", "There is nothing to suspend."
                )
            if workload.desired is Desired.RUNNING:
                draft.put(replace(workload, desired=Desired.STOPPED))
                draft.event(identity, EventKind.SUSPENDED, f"{user} suspended {workload.name}.", who=user)

        self._loop.call(run)

    def change(self, identity: str, checked: Checked, user: str) -> Workload:
        """Change a suspended workload to what the submission asks for. Its variables, data, ports and name
        stay.
        """

        def run(draft: Draft) -> Workload:
            old = self._own(identity)
            tasks = self._loop.world.tasks_of(identity)
            if old.phase.final:
                raise Conflict(f"{old.name} has ended ({old.phase.value}).", "Submit another one.")
            if old.desired is not Desired.STOPPED or any(task.phase.live for task in tasks):
                raise Conflict(
                    f"{old.name} is {old.phase.value}: only a suspended inference can be changed.",
                    "Suspend it, wait until it is Stopped, change it and resume it.",
                )
            for pool in checked.asked.pools:
                self._pool(pool)
            made = changed(old, checked, self._loop.state.settings.share_across_users)
            if made == old:
                return old
            draft.put(made)
            self._recount(made, tasks, draft)
            draft.event(identity, EventKind.UPDATED, f"{user} changed {made.name}.", who=user)
            return made

        return self._loop.call(run)

    def refit(self, identity: str, fitting: Fitting, user: str) -> Workload:
        """Change its CPU cores and memory; running tasks continue with the new amounts."""
        return self._loop.call(
            lambda draft: refit(self._loop.state, self._own(identity), fitting, user, draft)
        )

    def _recount(self, made: Workload, tasks: Iterable[Task], draft: Draft) -> None:
        """Add and drop tasks to match its groups. A task that comes back continues its attempt numbers."""
        there = {task.name: task for task in tasks}
        wanted = {task.name: task for task in tasks_of(made)}
        for name in there.keys() - wanted.keys():
            draft.drop(there[name])
        if added := wanted.keys() - there.keys():
            last = {row.id.task: row.id.number for row in self.attempts(made.id)}
            for name in sorted(added):
                draft.put(replace(wanted[name], attempt=last.get(name, 0)))

    def share(self, identity: str, others: Sequence[str], user: str) -> Workload:
        """Let `project`, or `user:NAME`, read its log and files besides its owner."""
        for other in others:
            kind, _, name = other.partition(":")
            if other != "project" and (kind != "user" or not name.isprintable() or not name or " " in name):
                raise BadRequest(
                    f"A job cannot be shared with {other[:60]!r}.",
                    "Use project or user:NAME.",
                    field="sharedWith",
                )

        def run(draft: Draft) -> Workload:
            workload = self._live(identity)
            shared = tuple(sorted(set(others)))
            if shared != workload.shared:
                workload = replace(workload, shared=shared)
                draft.put(workload)
                words = f"{user} shares its log and files with {', '.join(shared) or 'no one'}."
                draft.event(identity, EventKind.UPDATED, words, who=user)
            return workload

        return self._loop.call(run)

    def cancel(self, identity: str, user: str, *, now: bool = False) -> Workload:
        """End it for good and keep its record, log and files; `now` leaves its processes no grace period.

        Returns the workload as it was: one that had ended stays as it is.
        """

        def run(draft: Draft) -> Workload:
            workload = self._own(identity)
            if workload.phase.final or workload.cancelled_by:
                return workload
            ending = replace(workload, desired=Desired.STOPPED, cancelled_by=user)
            draft.put(without_grace(ending) if now else ending)
            draft.event(identity, EventKind.CANCELLED, f"{user} cancelled {workload.name}.", who=user)
            return workload

        return self._loop.call(run)

    def outcome(self, identity: str) -> Outcome:
        """How the workload ended, or that it has not; also of a deleted one that is still remembered."""
        view = self.board.workloads.get(identity)
        workload = view.workload if view is not None else None
        if workload is None:
            workload = next((row for row in self.ended() if row.id == identity), None)
        if workload is None:
            raise NotFound(f"There is no workload {identity!r}.", "List them first.")
        return outcome_of(workload, self.attempts(identity), self.now())

    def past(
        self,
        *,
        project: str | None = None,
        since: int = 0,
        limit: int = 500,
        of: Callable[[Workload], bool] = lambda _: True,
    ) -> list[tuple[Workload, Outcome]]:
        """Workloads that were submitted since `since` (ms), newest first, with deleted ones that are still
        remembered; `project` by id or name.
        """
        chosen = self._project(project).id if project is not None else None
        living = (view.workload for view in self.board.workloads.values())
        rows = [
            row
            for row in (*living, *self.ended())
            if row.created >= since and (chosen is None or row.project == chosen) and of(row)
        ]
        rows.sort(key=lambda row: -row.serial)
        now = self.now()
        return [(row, outcome_of(row, self.attempts(row.id), now)) for row in rows[:limit]]

    def resume(self, identity: str, user: str) -> None:
        """Let a suspended workload compete again."""

        def run(draft: Draft) -> None:
            workload = self._own(identity)
            if workload.phase.final or workload.cancelled_by:
                raise Conflict(
                    f"{workload.name} has ended ({workload.phase.value}).",
                    "Submit it again under a new name.",
                )
            if workload.desired is Desired.STOPPED:
                again = replace(workload, desired=Desired.RUNNING, running_ms=0)
                draft.put(beginning(again, self._loop.state, draft.now))
                for task in self._loop.world.tasks_of(identity):
                    if task.phase is TaskPhase.WAITING:
                        draft.put(
                            replace(task, failures=0, last_code=None, ooms=0, retry_at=None, short_runs=0)
                        )
                draft.event(identity, EventKind.RESUMED, f"{user} resumed {workload.name}.", who=user)

        self._loop.call(run)

    def delete(
        self, identity: str, user: str, *, purge: bool = False, origin: Origin | None = None
    ) -> Workload:
        """End it and forget it; its name is free at once. With `purge` its files are removed as well.
        `origin`: its maker, if the maker has deleted it.
        """
        return self._loop.call(lambda draft: self._deleted(draft, identity, user, purge, origin))

    def delete_all(self, identities: Sequence[str], user: str) -> dict[str, NotFound]:
        """`delete` many in one transaction; an error for each that does not exist."""

        def run(draft: Draft) -> dict[str, NotFound]:
            missing = {}
            for identity in identities:
                try:
                    self._deleted(draft, identity, user, purge=False)
                except NotFound as error:
                    missing[identity] = error
            return missing

        return self._loop.call(run)

    def _deleted(
        self, draft: Draft, identity: str, user: str, purge: bool, origin: Origin | None = None
    ) -> Workload:
        known = self._live(identity)
        workload = known if origin is not None and known.origin == origin else self._own(identity)
        workload = replace(workload, desired=Desired.DELETED, purge=purge)
        draft.put(workload)
        how = " with its files" if purge else ""
        draft.event(identity, EventKind.DELETED, f"{user} deleted {workload.name}{how}.", who=user)
        return workload

    def _own(self, identity: str) -> Workload:
        """The workload, if it may be changed here. Raises Conflict if it has a maker elsewhere."""
        workload = self._live(identity)
        if (origin := workload.origin) is not None:
            named = f"{origin.kind.lower()}/{origin.name}"
            what = "pod NAME..., with all pods of the group" if origin.kind == "PodGroup" else named
            how = f"kubectl delete --namespace {origin.namespace} {what}"
            raise Conflict(
                f"{workload.name} is {origin} on the cluster and is ended there: {how}.",
                "Pliant does not change objects that it did not create.",
            )
        return workload

    def _live(self, identity: str) -> Workload:
        workload = self._loop.world.workloads.get(identity)
        if workload is None or workload.desired is Desired.DELETED:
            raise NotFound(f"There is no workload {identity!r}.", "It may have been deleted already.")
        return workload

    def reason(self, identity: str) -> Reason | None:
        return self.workload(identity).reason


def without_grace(workload: Workload) -> Workload:
    """The workload with a grace period of 0 for all of its tasks."""
    return replace(
        workload,
        launch=replace(workload.launch, grace=0),
        groups=tuple(
            replace(group, launch=replace(group.launch, grace=0)) if group.launch is not None else group
            for group in workload.groups
        ),
    )
