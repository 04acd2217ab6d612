"""Use cases about who owns quota and about machines: departments, projects, node pools, nodes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pliant.control.draft import Draft
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.submission import check_name
from pliant.control.view import Board
from pliant.model.event import EventKind
from pliant.model.machine import DEFAULT_POOL, NodePool, Strategy
from pliant.model.quantity import format_gpus
from pliant.model.tenancy import UNLIMITED, AnyQueue, Department, Project, Quota, TimeLimits, with_quota
from pliant.model.workload import Desired

DEFAULT = "default"
"""Name of the department and of the project that always exist."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What to set on a project or department; None: leave it as it is."""

    name: str | None = None
    quotas: tuple[tuple[str, "QuotaChange"], ...] = ()  # per pool name
    limits: TimeLimits | None = None
    description: str | None = None
    department: str | None = None  # id or name; projects only
    default_pools: tuple[str, ...] | None = None
    interactive_node_types: tuple[str, ...] | None = None
    training_node_types: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What to set of a quota; None: leave it as it is. Units as in Quota."""

    gpu: int | None = None
    gpu_limit: int | None = None
    weight: int | None = None
    rank: int | None = None
    cpu: int | None = None
    cpu_limit: int | None = None
    memory: int | None = None
    memory_limit: int | None = None

    def over(self, quota: Quota) -> Quota:
        """`quota` with these changes; refused if it contradicts itself."""
        changed = replace(
            quota, **{name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        )
        for name, value in (
            ("quota", changed.gpu),
            ("limit", changed.gpu_limit),
            ("weight", changed.weight or 0),
        ):
            if value < 0 and value != UNLIMITED:
                raise BadRequest(f"A {name} of {format_gpus(value)} is not possible.", "Give 0 or more.")
        if changed.gpu_limit != UNLIMITED and (changed.gpu == UNLIMITED or changed.gpu_limit < changed.gpu):
            raise BadRequest(
                f"The limit of {format_gpus(changed.gpu_limit)} GPUs is below the quota.",
                "Raise the limit or lower the quota.",
            )
        return changed


class Tenancy:
    """The part of the service that is about quotas and machines."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @property
    def board(self) -> Board:
        return self._loop.board

    def bootstrap(self) -> None:
        """Make sure that the default pool, department and project exist."""

        def run(draft: Draft) -> None:
            world = self._loop.world
            if DEFAULT_POOL not in world.pools:
                draft.put(NodePool("1", DEFAULT_POOL))
            department = next((row for row in world.departments.values() if row.name == DEFAULT), None)
            if department is None:
                department = Department(self._next_id(), DEFAULT, created=draft.now, derived=True)
                draft.put(department)
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
        world = self._loop.world
        return str(1 + max((int(key) for key in (*world.departments, *world.projects)), default=0))

    # -- departments and projects -------------------------------------------------------------------

    def create_project(self, change: QueueChange, user: str) -> Project:
        def run(draft: Draft) -> Project:
            name = check_name(change.name or "", "project")
            if any(row.name == name for row in self._loop.world.projects.values()):
                raise NameTaken(
                    f"A project named {name!r} already exists.", "Choose another name or update it."
                )
            department = self._department(change.department or DEFAULT)
            fresh = Project(
                self._next_id(), name, created=draft.now, department=department.id, namespace=f"runai-{name}"
            )
            project = self._changed(fresh, change)
            draft.put(project)
            draft.event(
                f"project/{project.id}", EventKind.SUBMITTED, f"{user} created project {name}.", who=user
            )
            return project

        return self._loop.call(run)

    def update_project(self, key: str, change: QueueChange, user: str) -> Project:
        def run(draft: Draft) -> Project:
            old = self._project(key)
            if change.department is not None:
                old = replace(old, department=self._department(change.department).id)
            project = self._changed(old, change)
            self._check_fixed_use(project)
            draft.put(project)
            draft.event(
                f"project/{project.id}",
                EventKind.UPDATED,
                f"{user} changed project {project.name}.",
                who=user,
            )
            return project

        return self._loop.call(run)

    def delete_project(self, key: str, user: str) -> None:
        def run(draft: Draft) -> None:
            project = self._project(key)
            if project.name == DEFAULT:
                raise Conflict("The project 'default' cannot be deleted.", "Set its quota to 0 instead.")
            names = sorted(
                row.name for row in self._loop.world.workloads.values() if row.project == project.id
            )
            if names:
                raise Conflict(
                    f"Project {project.name} still has workloads: {', '.join(names[:5])}.",
                    "Delete them first.",
                )
            draft.drop(project)
            draft.event(
                f"project/{project.id}", EventKind.DELETED, f"{user} deleted {project.name}.", who=user
            )

        self._loop.call(run)

    def create_department(self, change: QueueChange, user: str) -> Department:
        def run(draft: Draft) -> Department:
            name = check_name(change.name or "", "department")
            if any(row.name == name for row in self._loop.world.departments.values()):
                raise NameTaken(
                    f"A department named {name!r} already exists.", "Choose another name or update it."
                )
            department = self._changed(Department(self._next_id(), name, created=draft.now), change)
            draft.put(department)
            draft.event(
                f"department/{department.id}", EventKind.SUBMITTED, f"{user} created {name}.", who=user
            )
            return department

        return self._loop.call(run)

    def update_department(self, key: str, change: QueueChange, user: str) -> Department:
        def run(draft: Draft) -> Department:
            department = self._changed(self._department(key), change)
            self._check_fixed_use(department)
            draft.put(department)
            draft.event(
                f"department/{department.id}",
                EventKind.UPDATED,
                f"{user} changed {department.name}.",
                who=user,
            )
            return department

        return self._loop.call(run)

    def delete_department(self, key: str, user: str) -> None:
        def run(draft: Draft) -> None:
            department = self._department(key)
            names = sorted(
                row.name for row in self._loop.world.projects.values() if row.department == department.id
            )
            if department.name == DEFAULT or names:
                why = f"it has projects: {', '.join(names[:5])}" if names else "it is the default one"
                raise Conflict(
                    f"Department {department.name} cannot be deleted: {why}.", "Move or delete them."
                )
            draft.drop(department)
            draft.event(f"department/{department.id}", EventKind.DELETED, f"{user} deleted it.", who=user)

        self._loop.call(run)

    def _changed(self, queue: AnyQueue, change: QueueChange) -> AnyQueue:
        """The row with everything that the change names."""
        for pool, quota in change.quotas:
            queue = with_quota(queue, self._pool(pool).name, quota.over(queue.quota(pool)))
            if quota.gpu is not None:
                queue = replace(queue, derived=False)
        fields = {
            name: value for name in ("limits", "description") if (value := getattr(change, name)) is not None
        }
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
        """A quota may not be below what non-preemptible work uses: that could never be stopped."""
        if queue.derived:
            return
        for pool, quota in queue.quotas:
            used = self._loop.world.usage(queue.id, pool)[1].gpu
            if quota.gpu != UNLIMITED and quota.gpu < used:
                raise Conflict(
                    f"{queue.name} uses {format_gpus(used)} GPUs of pool {pool} for non-preemptible work;"
                    f" its quota cannot be {format_gpus(quota.gpu)}.",
                    "Delete or suspend some of that work first.",
                )

    def _project(self, key: str) -> Project:
        """By id or name."""
        for project in self._loop.world.projects.values():
            if key in (project.id, project.name):
                return project
        raise NotFound(f"There is no project {key!r}.", "See the projects with: pliant project list")

    def _department(self, key: str) -> Department:
        for department in self._loop.world.departments.values():
            if key in (department.id, department.name):
                return department
        raise NotFound(f"There is no department {key!r}.", "See the departments with: pliant department list")

    # -- machines -----------------------------------------------------------------------------------

    def _pool(self, key: str) -> NodePool:
        for pool in self._loop.world.pools.values():
            if key in (pool.id, pool.name):
                return pool
        raise NotFound(f"There is no node pool {key!r}.", "See the pools with: pliant nodepool list")

    def create_pool(
        self, name: str, label: tuple[str, str], strategy: Strategy | None, min_runtime: int | None, user: str
    ) -> NodePool:
        def run(draft: Draft) -> NodePool:
            check_name(name, "node pool")
            world = self._loop.world
            if name in world.pools:
                raise NameTaken(
                    f"A node pool named {name!r} already exists.", "Choose another name or update it."
                )
            if not all(label):
                raise BadRequest("A node pool needs the label of its nodes.", "Give --label KEY=VALUE.")
            numbers = [int(pool.id) for pool in world.pools.values() if pool.id.isdigit()]
            identity = str(1 + max(numbers, default=1))
            pool = NodePool(
                identity, name, *label, strategy or Strategy.PACK, strategy or Strategy.PACK, min_runtime or 0
            )
            draft.put(pool)
            draft.event(f"pool/{name}", EventKind.SUBMITTED, f"{user} created node pool {name}.", who=user)
            return pool

        return self._loop.call(run)

    def update_pool(self, key: str, change: Callable[[NodePool], NodePool], user: str) -> NodePool:
        def run(draft: Draft) -> NodePool:
            old = self._pool(key)
            pool = replace(change(old), id=old.id, name=old.name)
            if old.name == DEFAULT_POOL and pool.label_key:
                raise Conflict(
                    "The pool 'default' takes every node that no other pool wants; it has no label."
                )
            if pool.min_runtime < 0:
                raise BadRequest("A minimum run time cannot be negative.", "Give 0 or more, such as 2m.")
            draft.put(pool)
            draft.event(
                f"pool/{pool.name}", EventKind.UPDATED, f"{user} changed node pool {pool.name}.", who=user
            )
            return pool

        return self._loop.call(run)

    def delete_pool(self, key: str, user: str) -> None:
        def run(draft: Draft) -> None:
            pool = self._pool(key)
            if pool.name == DEFAULT_POOL:
                raise Conflict("The pool 'default' cannot be deleted.")
            users = sorted(
                row.name
                for row in self._loop.world.workloads.values()
                if pool.name in row.pools and row.desired is not Desired.DELETED
            )
            projects = sorted(
                row.name for row in self._loop.world.projects.values() if pool.name in row.default_pools
            )
            if projects:
                raise Conflict(
                    f"Pool {pool.name} is a default pool of {', '.join(projects[:5])}.",
                    "Give them other default pools first.",
                )
            if users:
                raise Conflict(
                    f"Workloads ask for pool {pool.name}: {', '.join(users[:5])}.", "Delete them first."
                )
            draft.drop(pool)
            draft.event(
                f"pool/{pool.name}", EventKind.DELETED, f"{user} deleted node pool {pool.name}.", who=user
            )

        self._loop.call(run)

    def cordon(self, name: str, draining: bool, user: str) -> None:
        """Keep a node from taking anything new, or let it take again."""

        def run(draft: Draft) -> None:
            node = self._loop.state.node(name)
            if node is None:
                raise NotFound(f"There is no node {name!r}.", "See the nodes with: pliant node list")
            draft.put(replace(node, draining=draining))
            word = "cordoned" if draining else "uncordoned"
            draft.event(f"node/{name}", EventKind.UPDATED, f"{user} {word} node {name}.", who=user)

        self._loop.call(run)
