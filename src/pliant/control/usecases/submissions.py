"""Use cases about submissions: what one would become, what would be done with it, and its acceptance."""

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from pliant.control.errors import BadRequest, NameTaken
from pliant.control.explain.aside import aside
from pliant.control.explain.rehearsal import Rehearsal, rehearse
from pliant.control.loop import Loop
from pliant.control.ports import Engine, Remembered
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.control.submit.groups import groups_of, leader_of
from pliant.control.submit.placing import check_placing
from pliant.control.submit.submission import (
    Accepted,
    Checked,
    Submission,
    backoff_of,
    check_image,
    check_name,
    check_ports,
    check_times,
    priority_of,
    request_of,
)
from pliant.control.usecases.priorities import valued
from pliant.control.usecases.tenancy import Tenancy
from pliant.model.event import EventKind
from pliant.model.tenancy import Project
from pliant.model.topology import Topology
from pliant.model.workload import Desired, Kind, Phase, Task, Workload
from pliant.sched.plan import Plan

Answered = Callable[[Accepted], tuple[int, str]]
"""Renders the answer to a submission, so that the same answer can be given again for the same key."""


class Submissions(Tenancy):
    """The part of the service that takes work in."""

    def __init__(self, loop: Loop, engines: Mapping[str, Engine]) -> None:
        super().__init__(loop)
        self._engines = engines

    def check(self, ask: Submission) -> Checked:
        """What this would become, not yet submitted. Raises BadRequest."""
        ask = valued(ask, self.board.priorities)
        launch = check_image(ask.launch)
        if ask.name is not None:
            check_name(ask.name)
        request = request_of(ask)
        groups = groups_of(ask, request)
        value, word, preemptible = priority_of(ask)
        placing = check_placing(ask.placing)
        engine = next(iter(self._engines.values()))
        for one in (launch, *(group.launch for group in groups if group.launch is not None)):
            if (refusal := engine.refuse(one)) is not None:
                raise BadRequest(refusal)
        notice = engine.notice(launch)
        serves = ask.kind is Kind.INFERENCE
        framework = ask.distribution.framework if ask.distribution is not None else ""
        workload = Workload(
            id=str(uuid.uuid4()),
            name=ask.name or "",
            project="",
            kind=ask.kind,
            launch=launch,
            groups=groups,
            priority=value,
            preemptible=preemptible,
            pools=ask.pools,
            affinity=placing.affinity,
            tolerations=placing.tolerations,
            apart=placing.apart,
            backoff_limit=backoff_of(ask),
            restart=ask.restart or serves,
            framework=framework,
            ports=check_ports(ask),
            slots=ask.distribution.slots if ask.distribution is not None else 1,
            subgroups=ask.distribution.levels if ask.distribution is not None else (),
            min_groups=ask.distribution.least_groups if ask.distribution is not None else None,
            ends_with=leader_of(ask),
            source=ask.source,
            category=ask.category
            or {Kind.WORKSPACE: "Build", Kind.INFERENCE: "Deploy"}.get(ask.kind, "Train"),
            priority_class=word,
            **ask.fields,
        )
        check_times(workload)
        return Checked(ask, workload, (notice,) if notice else ())

    def submit(
        self,
        checked: Checked,
        user: str,
        *,
        key: str = "",
        fingerprint: str = "",
        render: Answered | None = None,
    ) -> Accepted:
        """Accept a workload. With `key`, the answer that `render` gives is remembered with it."""

        def run(draft: Draft) -> Accepted:
            placed, made = self._placed(checked, draft.now)
            if made is not None:
                draft.put(made)
            self._loop.state.serial += 1
            workload = replace(placed, user=user, phase_since=draft.now, serial=self._loop.state.serial)
            draft.put(workload)
            for task in tasks_of(workload):
                draft.put(task)
            words = f"{user} submitted {workload.name} to {self._project(workload.project).name}."
            draft.event(workload.id, EventKind.SUBMITTED, words, who=user)
            accepted = Accepted(workload)

            def conclude(whole: Draft, plan: Plan) -> None:
                accepted.reason = next(
                    (verdict.reason for verdict in plan.verdicts if verdict.workload == workload.id), None
                )
                if key and render is not None:
                    status, body = render(accepted)
                    whole.put(Remembered(key, fingerprint, status, body, whole.now))

            draft.when_decided.append(conclude)
            return accepted

        return self._loop.call(run)

    def rehearse(self, checked: Checked) -> Rehearsal:
        """What the scheduler would do with it now. Nothing is recorded."""
        now = self._loop.clock.now()

        def run(state: State) -> Rehearsal:  # on a copy of all that self knows
            guest, made = self._placed(checked, now)
            if made is not None:  # one domain each: nothing known lies in any
                guest = replace(guest, within=None)
            return rehearse(state, guest, tasks_of(guest), now)

        return aside(self._loop, run)

    def _placed(self, checked: Checked, now: int) -> tuple[Workload, Topology | None]:
        """(the workload in its project, by its name; a topology to be made for it). On the loop's thread."""
        project = self._project(checked.asked.project)
        for pool in checked.asked.pools:
            self._pool(pool)
        within, made = self._nearness(project, checked.asked, checked.workload)
        name = self._free_name(project, checked.asked)
        placed = replace(
            checked.workload, name=name, within=within, project=project.id, created=now, phase=Phase.PENDING
        )
        return placed, made

    def _free_name(self, project: Project, ask: Submission) -> str:
        taken = {
            workload.name
            for workload in self._loop.world.workloads.values()
            if workload.project == project.id and workload.desired is not Desired.DELETED
        }
        if ask.name is not None and ask.name_base is None:
            if ask.name in taken:
                raise NameTaken(
                    f"A workload named {ask.name!r} already exists in project {project.name}.",
                    "Delete it first, or choose another name.",
                )
            return ask.name
        base = check_name(ask.name_base or ask.kind.value.lower(), "workload's prefix")
        if not ask.name_index:
            return check_name(f"{base}-{secrets.token_hex(6)}")
        index = 0
        while f"{base}-{index}" in taken:
            index += 1
        return check_name(f"{base}-{index}")


def tasks_of(workload: Workload) -> list[Task]:
    """The task rows of a new workload."""
    return [
        Task(workload.id, f"{group.name}-{index}", group.name, index)
        for group in workload.groups
        for index in range(group.at_once or group.max)
    ]
