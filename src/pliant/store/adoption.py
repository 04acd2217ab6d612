"""Restores the rows of a lost database from what its server left where its tasks run."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pliant.control.left import GONE, Left, Remnant
from pliant.control.ports import Row, Saved, Stranger
from pliant.control.state.imports import free_name, tasks_of, valued
from pliant.control.submit.grouping import MOST_TASKS
from pliant.model.event import Event, EventKind
from pliant.model.hold import PASSING, USER_LIMIT
from pliant.model.machine import Cluster, NodePool, Placement, Share
from pliant.model.priority import PriorityClass
from pliant.model.quantity import GPU
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Attempt, Desired, Phase, Task, TaskKey, Workload
from pliant.store.codec import FORMAT, Codec
from pliant.store.errors import StoreError

log = logging.getLogger(__name__)

Q = TypeVar("Q", NodePool, Department, Project)

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (NodePool, Department, Project, Workload)}
"""The kinds that objects show, in the order in which rows refer to one another."""

DIGITS = 18
"""Most digits of a queue's number: all such numbers are below 2**63."""


def kept(row: Row) -> dict[str, Any]:
    """What of a row its object records, for an empty store. Fields that only the server changes in passing
    are reset, so the record is written once, and again only when somebody changes the row."""
    if isinstance(row, Workload):
        held = row.held if row.held in PASSING and row.held != USER_LIMIT else ""
        row = replace(
            row,
            held=held,
            limited=None,
            phase=Phase.PENDING,
            phase_since=row.created,
            phase_message="",
            completed=None,
            deleted=None,
            ended_as=None,
            pending_ms=0,
            running_ms=0,
        )
    return {"format": FORMAT, "row": Codec(type(row)).encode(row)}


@dataclass(frozen=True, slots=True)
class Taken:
    """New rows, in an order in which they can be put, and the first events of their history."""

    rows: Sequence[Row]
    events: Sequence[Event]


class Unsound(ValueError):
    """A record is invalid."""


class Adoption:
    """Adds rows to those of one store; used once."""

    def __init__(self, saved: Saved, now: int) -> None:
        self._saved, self._now = saved, now
        self._clusters = {row.uuid: row for row in saved.of(Cluster)}
        self._pools = {row.name: row for row in saved.of(NodePool)}
        self._departments = {row.id: row for row in saved.of(Department)}
        self._projects = {row.id: row for row in saved.of(Project)}
        self._workloads = {row.id: row for row in saved.of(Workload)}
        self._tasks: dict[TaskKey, Task] = {row.key: row for row in saved.of(Task)}
        self._classes = {row.name: row for row in saved.of(PriorityClass)}
        self._attempts: list[Attempt] = []
        self._shown: dict[str, list[tuple[Workload, Remnant]]] = {}  # by id: as recorded, the oldest first
        self._applied: list[Remnant] = []  # projects that a user has applied
        self._events: list[Event] = []
        self._portions: Counter[str] = Counter()  # thousandths of each device that tasks have
        for task in self._tasks.values():
            self._hold(task.carries)

    def of(self, left: Left) -> Taken:
        """The rows to add. Raises StoreError for an unreadable attempt; logs an unreadable object."""
        if left.cluster and not self._clusters:
            self._clusters[left.cluster] = Cluster(left.cluster, created=self._now)
        for kind in KINDS:
            for one in left.objects:
                if one.kind == kind:
                    self._object(one)
        for stranger in sorted(left.attempts, key=lambda each: each.id):
            self._attempt(stranger)
        for row, one in (it for each in self._shown.values() for it in each):
            if row.id not in self._workloads and one.phase not in GONE:
                self._told(one, partial(self._waiting, row, one))
        for workload, attempts in left.found:
            self._found(workload, attempts)
        there = frozenset(self._saved.rows)
        self._number()
        tables: tuple[dict[Any, Any], ...] = (
            self._clusters, self._departments, self._projects, self._pools, self._workloads, self._tasks
        )  # fmt: skip
        new = [row for table in tables for row in table.values() if row not in there]
        return Taken([*new, *self._attempts], self._events)

    # ---- objects ----

    def _object(self, one: Remnant) -> None:
        if one.spec is not None:
            if one.kind == Project.__name__:
                self._applied.append(one)
            return
        self._told(one, lambda: self._keep(one, self._read(one)))

    def _told(self, one: Remnant, take: Callable[[], None]) -> None:
        """Takes in a record; logs a failure with its remedy."""
        try:
            take()
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            log.warning("%s %s is not taken in: %s. %s", one.kind, one.name, error, one.cure)

    def _read(self, one: Remnant) -> Any:
        if not {"row", "format"} <= one.row.keys():
            raise Unsound("nothing of its row can be read there")
        row = Codec(KINDS[one.kind]).decode(one.row["row"], int(one.row["format"]))
        if row.name != one.name:
            raise Unsound(f"it is about {row.name:.60}")
        return row

    def _keep(self, one: Remnant, row: Any) -> None:
        match row:
            case NodePool():
                if row.id.isdigit():
                    _numbered(row)
                _free(row, self._pools.values())
                self._pools[row.name] = row
            case Department():
                _free(_numbered(row), self._departments.values())
                self._departments[row.id] = row
            case Project():
                _free(_numbered(row), self._projects.values())
                self._projects[row.id] = row
            case Workload():
                _sound(row)
                if row.id != one.identity or row.origin is not None:
                    raise Unsound("it is about another workload")
                self._shown.setdefault(row.id, []).append((row, one))

    def _owned(self, one: Remnant, project: str) -> None:
        """Checks that the object may be about the project with that id, and restores an applied project."""
        applied = next((each for each in self._applied if one.allows(each.name)), None)
        if project not in self._projects and applied is not None:
            spec = dict(applied.spec or {})
            above = (it.id for it in self._departments.values() if it.name == spec["department"])
            made = Project(project, applied.name, **{**spec, "department": next(above, "")})
            _free(_numbered(made), self._projects.values())
            self._projects[project] = made
        if project not in self._projects:
            raise Unsound("its project is not there")
        if not one.allows(self._projects[project].name):
            raise Unsound("it is about another project")

    def _waiting(self, row: Workload, one: Remnant) -> None:
        """Takes in a workload of which only its object is left."""
        self._owned(one, row.project)
        self._put(self._begun(row, one.phase))
        words = (
            f"{row.name} did not run when the database was lost, and was taken in from its object Workload."
        )
        self._events.append(Event(row.id, self._now, "server", EventKind.UPDATED, words))

    def _begun(self, row: Workload, phase: str) -> Workload:
        """The workload as it continues: one that was over or being deleted does not start again."""
        desired = row.desired
        if phase in (Phase.COMPLETED, Phase.FAILED):
            desired = Desired.STOPPED
        elif phase == Phase.DELETING:
            desired = Desired.DELETED
        return replace(row, desired=desired, phase=Phase.PENDING, phase_since=self._now)

    # ---- attempts ----

    def _attempt(self, one: Stranger) -> None:
        rows = one.order.get("rows")
        if not isinstance(rows, dict):
            raise StoreError(
                f"{one.id} was started by an older release and cannot be adopted. "
                "End what runs with `pliant up --end`, or restore a backup."
            )
        order, format = one.order, rows.get("format", 0)
        try:
            workload = self._tenancy(one, rows, int(format))
            place = _place(Codec(Placement).decode(rows["placement"], int(format)), one.gpus)
            when = int(order["epoch"]), str(order["cause"]), int(order["ordered_ms"])
            workload.group(_index(one.id.task)[0])
        except (KeyError, TypeError, ValueError, RecursionError, StopIteration) as error:
            raise StoreError(f"the order of {one.id} cannot be read: {error}") from error
        if workload.id not in self._workloads:
            owner = self._projects.get(workload.project)
            own = (
                (row, it.phase)
                for row, it in self._shown.get(workload.id, ())
                if owner is not None and it.allows(owner.name)
            )
            row, phase = next(own, (replace(workload, desired=Desired.RUNNING), ""))
            self._put(self._begun(replace(row, project=workload.project), phase))
            words = f"{workload.name} was found running and adopted by a store that did not know it."
            self._events.append(Event(workload.id, self._now, "server", EventKind.UPDATED, words))
        self._ordered(Attempt(one.id, place, *when), over=one.over)

    def _tenancy(self, one: Stranger, rows: dict[str, Any], format: int) -> Workload:
        """Its workload, with its cluster, departments and project. What an object records is newer."""
        if not self._clusters:
            self._clusters[rows["cluster"]] = Cluster(rows["cluster"], created=self._now)
        workload = Codec(Workload).decode(rows["workload"], format)
        _sound(workload)
        names = {row.name for row in self._departments.values()}
        for text in rows["departments"]:
            department = Codec(Department).decode(text, format)
            if _numbered(department).id not in self._departments and department.name not in names:
                self._departments[department.id] = department
        owner = self._projects.get(workload.project)
        if owner is None and rows["project"] is not None:
            owner = _numbered(Codec(Project).decode(rows["project"], format))
            if owner.id != workload.project:
                raise Unsound("its project is another one")
            other = next((row for row in self._projects.values() if row.name == owner.name), owner)
            self._projects[other.id] = other
            workload = replace(workload, project=other.id)
        if workload.id != one.id.workload or (owner is not None and not one.allows(owner.name)):
            raise StoreError(f"the order of {one.id} is about another workload or project")
        return workload

    def _ordered(self, attempt: Attempt, *, over: bool) -> None:
        """Adds the attempt. An ended one holds nothing; its engine reports how it ended."""
        place = Placement(attempt.placement.node) if over else attempt.placement
        identity = attempt.id
        known = self._tasks.get((identity.workload, identity.task)) or Task(
            identity.workload, identity.task, *_index(identity.task)
        )
        self._tasks[known.key] = replace(known, attempt=identity.number - 1, retry_at=None).ordered(place)
        self._attempts.append(replace(attempt, placement=place))
        self._hold(place)

    def _hold(self, place: Placement | None) -> None:
        for share in place.shares if place is not None else ():
            self._portions[share.gpu] += share.portion

    # ---- what others gave to the engine ----

    def _found(self, row: Workload, attempts: Sequence[tuple[Attempt, bool]]) -> None:
        project = next((it for it in self._projects.values() if it.name == row.project), None)
        if project is None:
            cure = f"pliant project create {row.project} --quota 0, pliant down, pliant up --adopt"
            log.warning("%s is not taken in: there is no project %s. %s", row.origin, row.project, cure)
            return
        asked: Counter[str] = Counter()
        for attempt, over in attempts:
            for share in () if over else attempt.placement.shares:
                asked[share.gpu] += share.portion
        if full := [gpu for gpu, portion in asked.items() if self._portions[gpu] + portion > GPU]:
            log.warning("%s is not taken in: another task has GPU %s", row.origin, full[0])
            return
        if row.id not in self._workloads:
            last = max((each.serial for each in self._workloads.values()), default=0)
            taken = {it.name for it in self._workloads.values() if it.project == project.id}
            row = valued(row, self._classes.get(row.priority_class))
            named = replace(row, name=free_name(row.name, row.id, taken), project=project.id)
            now = self._now
            self._put(replace(named, phase=Phase.PENDING, phase_since=now, created=now, serial=last + 1))
            words = f"{row.origin} was found running and taken into project {project.name} again."
            self._events.append(Event(row.id, self._now, "engine", EventKind.UPDATED, words))
        for attempt, over in attempts:
            self._ordered(attempt, over=over)

    # ---- rows ----

    def _put(self, row: Workload) -> None:
        self._workloads[row.id] = row
        self._tasks |= {task.key: task for task in tasks_of(row)}

    def _number(self) -> None:
        """Gives each new workload a serial number of its own."""
        before = {row.id for row in self._saved.of(Workload)}
        last = max((row.serial for row in self._workloads.values() if row.id in before), default=0)
        fresh = (row for row in self._workloads.values() if row.id not in before)
        for row in sorted(fresh, key=lambda each: (each.serial, each.id)):
            last = max(last + 1, row.serial)
            self._workloads[row.id] = replace(row, serial=last)


def _numbered(row: Q) -> Q:
    """Raises Unsound unless the row's id is a number, from which the next id is made."""
    if not (row.id.isascii() and row.id.isdecimal() and len(row.id) <= DIGITS):
        raise Unsound(f"{row.id!r:.40} is no id")
    return row


def _free(row: Q, others: Iterable[Q]) -> None:
    """Raises Unsound if another row has its id or its name."""
    if any(row.id == other.id or row.name == other.name for other in others):
        raise Unsound("another one has its id or its name")


def _sound(row: Workload) -> None:
    """Raises Unsound if the workload has more than MOST_TASKS tasks."""
    if sum(max(group.max, group.at_once) for group in row.groups) > MOST_TASKS:
        raise Unsound(f"it has more than {MOST_TASKS} tasks")


def _index(task: str) -> tuple[str, int]:
    group, _, index = task.rpartition("-")
    return group, int(index)


def _place(start: Placement, gpus: Sequence[str]) -> Placement:
    """The current placement: the shares of the start, plus those gained and minus those lost since."""
    first = start.shares[0] if start.shares else Share("")
    more = (replace(first, gpu=gpu) for gpu in gpus if gpu not in start.uuids)
    less = (share for share in start.shares if not gpus or share.gpu in gpus)
    return replace(start, shares=(*less, *more))
