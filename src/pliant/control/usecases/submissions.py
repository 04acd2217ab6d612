"""Use cases about submissions: checks, rehearses and accepts them."""

import secrets
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from pliant.control.decider.pieces import lean
from pliant.control.errors import NameTaken, Refused
from pliant.control.explain.rehearsal import Rehearsal, rehearse
from pliant.control.loop import Loop
from pliant.control.ports import Engine, Remembered
from pliant.control.state.draft import Draft
from pliant.control.state.imports import tasks_of
from pliant.control.state.limits import beginning, check_waiting, parked
from pliant.control.state.state import State
from pliant.control.submit.sequence import elements_of, held
from pliant.control.submit.submission import Accepted, Checked, Submission, check_name
from pliant.control.submit.workload import apart, check, seal
from pliant.control.usecases.priorities import valued
from pliant.control.usecases.tenancy import Tenancy
from pliant.model.event import EventKind
from pliant.model.origin import Owner
from pliant.model.tenancy import Project
from pliant.model.topology import Topology
from pliant.model.workload import Phase, Workload
from pliant.sched.plan import Plan

Answered = Callable[[Accepted], tuple[int, str]]
"""Renders the answer to a submission, so that the same answer can be given again for the same key."""


PATIENCE = 60.0
"""Seconds to wait for an answer."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A submission under way; it is accepted once `answer` is set."""

    answer: "Future[Accepted]"
    take_back: Callable[[], None]  # drops what was sealed for it; to be called if it is refused


class Submissions(Tenancy):
    """The part of the service that takes work in."""

    def __init__(self, loop: Loop, engines: Mapping[str, Engine]) -> None:
        super().__init__(loop)
        self._engines = engines

    def check(self, ask: Submission) -> Checked:
        """The workload that this would become, not yet submitted. Raises BadRequest."""
        return check(valued(ask, self.board.priorities), next(iter(self._engines.values())))

    def submit(self, checked: Checked, user: str) -> Accepted:
        """Accept a workload."""
        run, take_back = self._prepared(checked, user, None)
        try:
            return self._loop.call(run)
        except Refused:
            take_back()
            raise

    def send(
        self,
        checked: Checked,
        user: str,
        *,
        owner: Owner | None = None,
        key: str = "",
        fingerprint: str = "",
        render: Answered | None = None,
    ) -> Sent:
        """`submit` without waiting. With `key`, the answer that `render` makes is remembered with it."""
        run, take_back = self._prepared(checked, user, owner, key, fingerprint, render)
        return Sent(self._loop.submit(run), take_back)

    def _prepared(
        self,
        checked: Checked,
        user: str,
        owner: Owner | None,
        key: str = "",
        fingerprint: str = "",
        render: Answered | None = None,
    ) -> tuple[Callable[[Draft], Accepted], Callable[[], None]]:
        """(what the loop is to run, what drops the variables that were sealed for it)."""
        engine = next(iter(self._engines.values()))
        others = len(checked.asked.start.indexes) - 1
        array = str(uuid.uuid4()) if checked.asked.start.indexes else ""
        identities = [checked.workload.id, *(str(uuid.uuid4()) for _ in range(others))]
        for identity in identities:
            seal(checked, engine, identity)

        def run(draft: Draft) -> Accepted:
            placed, made = self._placed(checked, draft.now)
            placed = replace(placed, user=user, owner=owner)
            if made is not None:
                draft.put(made)
            rows = self._sequenced(
                elements_of(placed, checked.asked.start, identities, array), checked, draft.now
            )
            for at, row in enumerate(rows):
                self._loop.state.serial += 1
                row = replace(row, phase_since=draft.now, serial=self._loop.state.serial)
                rows[at] = row
                draft.put(row)
                for task in tasks_of(row):
                    draft.put(task)
                words = f"{user} submitted {row.name} to {self._project(row.project).name}."
                draft.event(row.id, EventKind.SUBMITTED, words, who=user)
            workload = rows[0]
            accepted = Accepted(workload, elements=tuple(row.name for row in rows if row.element is not None))

            def conclude(whole: Draft, plan: Plan) -> None:
                accepted.reason = self._loop.state.verdicts.reason(workload.id)
                if key and render is not None:
                    status, body = render(accepted)
                    whole.put(Remembered(key, fingerprint, status, body, whole.now))

            draft.when_decided.append(conclude)
            return accepted

        def take_back() -> None:
            for identity in identities:
                engine.seal(identity, {})

        return run, take_back

    def remembered(self, key: str) -> Remembered | None:
        """The answer that was given to this `Idempotency-Key`; None: there is none."""
        return self._loop.store.remembered(key)

    def remember(self, key: str, fingerprint: str, status: int, body: str) -> None:
        """Remember the answer to another request; a submission's is recorded in its own transaction."""
        self._loop.call(lambda draft: draft.put(Remembered(key, fingerprint, status, body, draft.now)))

    def rehearse(self, checked: Checked, user: str) -> Rehearsal:
        """What the scheduler would do with it now, if that user submitted it. Nothing is recorded."""
        now = self._loop.clock.now()

        def guest_of(state: State) -> Workload:
            guest, made = self._placed(checked, now)
            guest = self._sequenced([replace(guest, user=user)], checked, now)[0]
            within = guest.within if made is None else None  # the world does not have that topology yet
            return replace(guest, within=within, serial=state.serial + 1)

        guest = self._loop.look(guest_of)
        work = partial(rehearse, guest=lean(guest), tasks=tasks_of(guest), now=now)
        return replace(self._loop.question(work), workload=guest)

    def _placed(self, checked: Checked, now: int) -> tuple[Workload, Topology | None]:
        """(the workload with its project and name, a topology to create for it). On the loop's thread."""
        project = self._project(checked.asked.project)
        for pool in checked.asked.pools:
            self._pool(pool)
        within, made = self._nearness(project, checked.asked, checked.workload)
        name = self._free_name(project, checked.asked)
        groups = apart(
            checked.workload.groups,
            checked.asked.card_owner,
            self._loop.state.settings.share_across_users,
            project.id,
        )
        placed = replace(
            checked.workload, name=name, within=within, project=project.id, groups=groups, created=now,
            phase=Phase.PENDING,
        )  # fmt: skip
        return placed, made

    def _sequenced(self, rows: list[Workload], checked: Checked, now: int) -> list[Workload]:
        """Each with its dependencies and its hold. On the loop's thread."""
        present = self._loop.world.workloads
        taken = self._taken(rows[0].project)
        for row in rows:
            if row.element is not None and check_name(row.name) in taken:
                raise NameTaken(f"A workload named {row.name!r} already exists.", "Choose another name.")
        made = [held(row, checked.asked.start, present, now) for row in rows]
        check_waiting(made, self._loop.state)
        if len(made) == 1:
            return [beginning(made[0], self._loop.state, now)]
        return [parked(row, self._loop.state) for row in made]

    def _taken(self, project: str) -> Collection[str]:
        """Names of the workloads and arrays of a project."""
        return self._loop.state.names.get(project, ())

    def _free_name(self, project: Project, ask: Submission) -> str:
        taken = self._taken(project.id)
        if ask.name is not None and ask.name_base is None:
            if ask.name in taken:
                raise NameTaken(
                    f"A workload named {ask.name!r} already exists in project {project.name}.",
                    "Delete it first, or choose another name.",
                    field="name",
                )
            return ask.name
        base = check_name(ask.name_base or ask.kind.value.lower(), "workload's prefix")
        if not ask.name_index:
            return check_name(f"{base}-{secrets.token_hex(6)}")
        index = 0
        while f"{base}-{index}" in taken:
            index += 1
        return check_name(f"{base}-{index}")
