"""Use cases about who owns quota: departments and projects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound, Outdated, Refused
from pliant.control.state.draft import Draft
from pliant.control.state.limits import EVERYBODY
from pliant.control.state.promises import check_promises
from pliant.control.state.state import LAST_QUEUE
from pliant.control.submit.submission import check_name
from pliant.control.usecases.changes import QueueChange, revision
from pliant.control.usecases.machines import Machines, check_origin
from pliant.model.asset import Scope
from pliant.model.event import EventKind
from pliant.model.identity import Allowance
from pliant.model.machine import DEFAULT_POOL, Cluster, NodePool
from pliant.model.quantity import spell_gpus
from pliant.model.tenancy import (
    UNLIMITED,
    AnyQueue,
    Department,
    Project,
    Queue,
    with_quota,
)
from pliant.model.workload import Desired

Done = TypeVar("Done")

DEFAULT = "default"
"""Name of the department and of the project that always exist."""


class Tenancy(Machines):
    """The part of the service that is about quotas."""

    def bootstrap(
        self, waiting: int = 0, cluster: Cluster | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create the default pool, department and project if missing; record `cluster` and `settings`.
        `waiting`: the limit on pending jobs for everybody, set only if the department is new; 0: no limit.
        """

        def run(draft: Draft) -> None:
            world = self._loop.world
            if cluster is not None:
                draft.put(cluster)
            draft.settings |= settings or {}
            if DEFAULT_POOL not in world.pools:
                draft.put(NodePool("1", DEFAULT_POOL))
            department = next((row for row in world.departments.values() if row.name == DEFAULT), None)
            if department is None:
                department = Department(self._next_id(), DEFAULT, created=draft.now, derived=True)
                draft.put(department)
                if waiting:
                    draft.put(Allowance(EVERYBODY, "", waiting=waiting))
            if not any(row.name == DEFAULT for row in world.projects.values()):
                identity = str(int(self._next_id()) + 1)
                draft.put(
                    Project(
                        identity,
                        DEFAULT,
                        created=draft.now,
                        department=department.id,
                        derived=True,
                        namespace=f"runai-{DEFAULT}",
                    )
                )

        self._loop.call(run)

    def _next_id(self) -> str:
        """An id that no department or project had before: rules, usage and the audit log refer to ids."""
        state = self._loop.state
        named = [row.project for row in state.usages.values()]
        for rule in state.access.seen.rules.values():
            named += [rule.scope.department, rule.scope.project]
        known = (*state.world.departments, *state.world.projects, *filter(None, named))
        return str(1 + max([state.last_queue, *map(int, known)]))

    # -- projects -----------------------------------------------------------------------------------

    def create_project(self, change: QueueChange, user: str) -> Project:
        def run(draft: Draft) -> Project:
            name = check_name(change.name or "", "project")
            if any(row.name == name for row in self._loop.world.projects.values()):
                raise NameTaken(
                    f"A project named {name!r} already exists.",
                    "Choose another name or update it.",
                    field="name",
                )
            department = self._department(change.department or DEFAULT)
            fresh = Project(
                self._next_id(), name, created=draft.now, department=department.id, namespace=f"runai-{name}"
            )
            fresh = replace(fresh, origin=change.origin or "")
            made = self._put(draft, self._changed(fresh, change), user, EventKind.SUBMITTED, "created")
            return self._kept(draft, made)

        return self._loop.call(run)

    def update_project(self, key: str, change: QueueChange, user: str) -> Project:
        return self._loop.call(
            lambda draft: self._kept(draft, self._update_project(draft, key, change, user))
        )

    def _kept(self, draft: Draft, done: Done) -> Done:
        """`done`. Raises Conflict if quotas promise more than there is and the settings refuse that."""
        check_promises(self._loop.state, draft)
        return done

    def _update_project(self, draft: Draft, key: str, change: QueueChange, user: str) -> Project:
        old = self._project(key)
        _check_revision(old, change)
        check_origin("project", old, change.origin)
        if change.department:
            old = replace(old, department=self._department(change.department).id)
        project = self._changed(old, change)
        if change.origin is not None and project == self._project(key):
            return project
        self._check_fixed_use(project)
        return self._put(draft, project, user, EventKind.UPDATED, "changed")

    def update_projects(self, changes: Sequence[tuple[str, QueueChange]], user: str) -> list[Project]:
        """Make all of the changes or none."""
        return self._loop.call(
            lambda draft: self._kept(draft, _all_or_none(changes, partial(self._update_project, draft), user))
        )

    def delete_project(self, key: str, user: str, origin: str | None = None) -> None:
        def run(draft: Draft) -> None:
            project = self._project(key)
            check_origin("project", project, origin)
            if project.name == DEFAULT:
                raise Conflict("The project 'default' cannot be deleted.", "Set its quota to 0 instead.")
            own = [row for row in self._loop.world.workloads.values() if row.project == project.id]
            kept = sorted(row.name for row in own if row.desired is not Desired.DELETED)
            if kept:
                raise Conflict(
                    f"Project {project.name} still has workloads: {', '.join(kept[:5])}.",
                    "Delete them first.",
                )
            if own:
                ending = ", ".join(sorted(row.name for row in own)[:5])
                raise Conflict(
                    f"Workloads of project {project.name} were deleted and are still ending: {ending}.",
                    "Try again in a moment: they have until the end of their grace period.",
                )
            for booking in self._loop.world.bookings.values():
                if booking.project == project.id:
                    draft.drop(booking)
            for allowance in self._loop.state.access.seen.allowances.values():
                if allowance.project == project.id:
                    draft.drop(allowance)
            self._drop(draft, project)
            draft.event(
                f"project/{project.id}", EventKind.DELETED, f"{user} deleted {project.name}.", who=user
            )

        self._loop.call(run)

    # -- departments --------------------------------------------------------------------------------

    def create_department(self, change: QueueChange, user: str) -> Department:
        def run(draft: Draft) -> Department:
            name = check_name(change.name or "", "department")
            if any(row.name == name for row in self._loop.world.departments.values()):
                raise NameTaken(
                    f"A department named {name!r} already exists.",
                    "Choose another name or update it.",
                    field="name",
                )
            fresh = Department(self._next_id(), name, created=draft.now, origin=change.origin or "")
            fresh = self._below(fresh, change.department)
            made = self._put(draft, self._changed(fresh, change), user, EventKind.SUBMITTED, "created")
            return self._kept(draft, made)

        return self._loop.call(run)

    def update_department(self, key: str, change: QueueChange, user: str) -> Department:
        return self._loop.call(
            lambda draft: self._kept(draft, self._update_department(draft, key, change, user))
        )

    def _update_department(self, draft: Draft, key: str, change: QueueChange, user: str) -> Department:
        old = self._department(key)
        _check_revision(old, change)
        check_origin("department", old, change.origin)
        department = self._changed(self._below(old, change.department), change)
        if change.origin is not None and department == old:
            return department
        self._check_fixed_use(department)
        return self._put(draft, department, user, EventKind.UPDATED, "changed")

    def update_departments(self, changes: Sequence[tuple[str, QueueChange]], user: str) -> list[Department]:
        """Make all of the changes or none."""
        return self._loop.call(
            lambda draft: self._kept(
                draft, _all_or_none(changes, partial(self._update_department, draft), user)
            )
        )

    def delete_department(self, key: str, user: str, origin: str | None = None) -> None:
        def run(draft: Draft) -> None:
            department = self._department(key)
            check_origin("department", department, origin)
            world = self._loop.world
            projects = [row.name for row in world.projects.values() if row.department == department.id]
            inner = [row.name for row in world.departments.values() if row.parent == department.id]
            why = (
                "it is the default one"
                if department.name == DEFAULT and not projects
                else f"it has projects: {', '.join(sorted(projects)[:5])}"
                if projects
                else f"departments belong to it: {', '.join(sorted(inner)[:5])}"
                if inner
                else ""
            )
            if why:
                raise Conflict(
                    f"Department {department.name} cannot be deleted: {why}.", "Move or delete them."
                )
            self._drop(draft, department)
            draft.event(f"department/{department.id}", EventKind.DELETED, f"{user} deleted it.", who=user)

        self._loop.call(run)

    def _below(self, department: Department, parent: str | None) -> Department:
        """The department below another one (id or name); '': at the top; None: unchanged."""
        if parent is None:
            return department
        if not parent:
            return replace(department, parent="")
        above = self._department(parent)
        if department.name == DEFAULT:
            raise Conflict("The department 'default' is always at the top.")
        step: Department | None = above
        while step is not None:
            if step.id == department.id:
                raise Conflict(
                    f"Department {department.name} cannot be below {above.name}, which is below it.",
                    "Choose one that does not belong to it.",
                    field="parentId",
                )
            step = self._loop.world.departments.get(step.parent)
        return replace(department, parent=above.id)

    # -- both ---------------------------------------------------------------------------------------

    def _drop(self, draft: Draft, queue: AnyQueue) -> None:
        """Drop it with its assets and the access rules for it."""
        state, project = self._loop.state, isinstance(queue, Project)
        scope = Scope.PROJECT if project else Scope.DEPARTMENT
        for asset in state.assets.values():
            if (asset.scope, asset.scope_id) == (scope, queue.id):
                draft.drop(asset)
        for rule in state.access.seen.rules.values():
            if queue.id == (rule.scope.project if project else rule.scope.department) and (
                project or not rule.scope.project
            ):
                draft.drop(rule)
        state.last_queue = max(state.last_queue, int(queue.id))
        draft.settings[LAST_QUEUE] = str(state.last_queue)
        draft.drop(queue)

    def _put(self, draft: Draft, queue: AnyQueue, user: str, kind: EventKind, did: str) -> AnyQueue:
        what = type(queue).__name__.lower()
        draft.put(queue)
        draft.event(f"{what}/{queue.id}", kind, f"{user} {did} {what} {queue.name}.", who=user)
        return queue

    def _changed(self, queue: AnyQueue, change: QueueChange) -> AnyQueue:
        """The row with everything that the change names."""
        for pool, quota in change.quotas:
            queue = with_quota(queue, self._pool(pool).name, quota.over(queue.quota(pool)))
            if quota.gpu is not None:
                queue = replace(queue, derived=False)
        fields: dict[str, Any] = {
            name: value for name in ("description", "origin") if (value := getattr(change, name)) is not None
        }
        if change.limits is not None:
            fields["limits"] = replace(queue.limits, **change.limits)
        if isinstance(queue, Project):
            if change.default_pools is not None:
                change = replace(
                    change, default_pools=tuple(self._pool(key).name for key in change.default_pools)
                )
            fields |= {
                name: value
                for name in ("default_pools", "interactive_node_types", "training_node_types")
                if (value := getattr(change, name)) is not None
            }
        return replace(queue, **fields)

    def _check_fixed_use(self, queue: Department | Project) -> None:
        """Raise Conflict if a quota is below what non-preemptible work uses, which could never be stopped."""
        if queue.derived:
            return
        for pool, quota in queue.quotas:
            used = self._loop.world.usage(queue.id, pool)[1].gpu
            if quota.gpu != UNLIMITED and quota.gpu < used:
                raise Conflict(
                    f"{queue.name} uses {spell_gpus(used)} of pool {pool} for non-preemptible work;"
                    f" its quota cannot be {spell_gpus(quota.gpu)}.",
                    "Delete or suspend some of that work first.",
                    field="resources.gpu.deserved",
                )

    def _project(self, key: str) -> Project:
        """The project with that id or name. Raises NotFound."""
        for project in self._loop.world.projects.values():
            if key in (project.id, project.name):
                return project
        raise NotFound(
            f"There is no project {key!r}.", "See the projects with: pliant project list", field="projectId"
        )

    def _department(self, key: str) -> Department:
        for department in self._loop.world.departments.values():
            if key in (department.id, department.name):
                return department
        raise NotFound(
            f"There is no department {key!r}.",
            "See the departments with: pliant department list",
            field="parentId",
        )


def _check_revision(queue: Queue, change: QueueChange) -> None:
    if change.only_if and revision(queue) not in change.only_if:
        raise Outdated(
            f"{queue.name} was changed since you read it.", "Read it again, then send your change."
        )


def _all_or_none(
    changes: Sequence[tuple[str, QueueChange]],
    update: Callable[[str, QueueChange, str], AnyQueue],
    user: str,
) -> list[AnyQueue]:
    """Make each change in turn; the error names the first that is refused, and then none is made."""
    done: list[AnyQueue] = []
    for number, (key, change) in enumerate(changes):
        try:
            queue = update(key, change, user)
        except Refused as error:
            field = f"entries[{number}]" + (f".{error.field}" if error.field else "")
            message = f"Entry {number + 1} ({key}): {error.message}"
            raise type(error)(message, f"{error.hint} Nothing was changed.".strip(), field=field) from error
        if any(queue.id == other.id for other in done):
            field = f"entries[{number}].id"
            raise BadRequest(f"{queue.name} is named twice.", "Name each once.", field=field)
        done.append(queue)
    return done
