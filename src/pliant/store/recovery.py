"""A store and what lives beside it: tasks that it does not know are adopted or ended, and never by accident.

A start leaves the rows that it follows from with its order. From these an emptied store is filled again.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pliant.control.ports import Batch, Engine, Row, Saved, Store, Stranger
from pliant.control.state.imports import tasks_of
from pliant.control.submit.variables import Variables
from pliant.model.event import Event, EventKind
from pliant.model.machine import Cluster, Placement, Share
from pliant.model.order import Start
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Attempt, AttemptId, Desired, Phase, Task, Workload
from pliant.sched.world.state import World
from pliant.store.archive import restore
from pliant.store.codec import FORMAT, Codec, CodecError
from pliant.store.database import peek
from pliant.store.errors import StoreError
from pliant.store.folder import StateFolder
from pliant.store.schema import UNSEALED

REFUSE, ADOPT, END = "refuse", "adopt", "end"
"""What to do with tasks that live and are not known."""


class Unknown(StoreError):
    """Tasks run of which the store knows nothing. Nothing was changed."""


Look = Callable[[frozenset[AttemptId]], Sequence[Stranger]]
"""Living attempts besides the known ones, by their ids."""

End = Callable[[Sequence[Stranger]], None]
"""Returns when nothing of them lives."""


def remember(start: Start, world: World, cluster: str) -> dict[str, Any]:
    """What a start follows from, so that an empty store can take its attempt in."""
    project = world.projects.get(start.workload.project)
    chain: list[str] = []
    above = project.department if project is not None else ""
    while (department := world.departments.get(above)) is not None and len(chain) < 10:
        chain.append(Codec(Department).encode(department))
        above = department.parent
    return {
        "format": FORMAT,
        "cluster": cluster,
        "departments": chain,
        "project": Codec(Project).encode(project) if project is not None else None,
        "workload": Codec(Workload).encode(start.workload),
        "placement": Codec(Placement).encode(start.placement),
    }


def reconcile(store: Store, look: Look, end: End, what: str, *, above: int, now: int) -> Saved:
    """The store's rows, after what lives was compared with them. Raises Unknown, StoreError.

    `above`: the highest epoch that was seen where the attempts are; an older or a new store may not know it.
    """
    store.outrank(above)
    saved = store.load()
    found = look(_ids(saved))
    if not found:
        return saved
    if what == END:
        end(found)
        return saved
    if what != ADOPT:
        raise Unknown(_sentence(found))
    return take_in(store, found, saved, now)


def take_in(store: Store, found: Iterable[Stranger], saved: Saved, now: int) -> Saved:
    """The store's rows, once these attempts are in it. Raises StoreError."""
    taken = adopted(found, saved, now)
    store.commit(store.lead(), Batch(taken, events=[*_events(taken, now)]))
    return store.load()


def newest(saved: Saved) -> int:
    """The latest time that any row names: the clock may not start before it."""
    times = [0]
    for workload in saved.of(Workload):
        times += [workload.created, workload.phase_since]
    for attempt in saved.of(Attempt):
        times += [attempt.ordered, attempt.started or 0]
    return max(times)


def seal_old(engine: Engine, saved: Saved) -> None:
    """Values that an older release kept in its rows; the migration has taken them out of there."""
    for workload, launches in json.loads(saved.settings.get(UNSEALED) or "{}").items():
        if not engine.sealed(workload):
            sealed = {group: Variables(tuple(env.items())) for group, env in launches.items()}
            engine.seal(workload, sealed)


def compare(source: Path, look: Look) -> dict[str, int]:
    """How many of the living attempts a backup knows, and how many it does not. Raises StoreError."""
    known = _ids(peek(source))
    unknown = len(look(known))
    return {"known": len(look(frozenset())) - unknown, "unknown": unknown}


def restore_backup(folder: StateFolder, source: Path) -> None:
    """Put a backup in the place of what no server uses now. Raises StoreError."""
    folder.prepare()
    lock = folder.lock(take_over=False)
    try:
        restore(source, folder.address, overwrite=True)
    finally:
        os.close(lock)


def _ids(saved: Saved) -> frozenset[AttemptId]:
    return frozenset(row.id for row in saved.of(Attempt))


def adopted(found: Iterable[Stranger], saved: Saved, now: int) -> list[Row]:
    """The rows of a store in which these attempts run. Raises StoreError for one that cannot be read."""
    departments = {row.id: row for row in saved.of(Department)}
    projects = {row.id: row for row in saved.of(Project)}
    workloads = {row.id: row for row in saved.of(Workload)}
    clusters = {row.uuid: row for row in saved.of(Cluster)}
    tasks: dict[tuple[str, str], Task] = {row.key: row for row in saved.of(Task)}
    attempts = []
    for one in sorted(found, key=lambda stranger: stranger.id):
        rows = one.order.get("rows")
        if not isinstance(rows, dict):
            raise StoreError(
                f"{one.id} was started by an older release and cannot be adopted. "
                "End what runs with `pliant up --end`, or restore a backup."
            )
        try:
            format = int(rows["format"])
            if not clusters:
                clusters[rows["cluster"]] = Cluster(rows["cluster"], created=now)
            for text in rows["departments"]:
                department = Codec(Department).decode(text, format)
                departments.setdefault(department.id, department)
            if rows["project"] is not None:
                project = Codec(Project).decode(rows["project"], format)
                projects.setdefault(project.id, project)
            workload = Codec(Workload).decode(rows["workload"], format)
            owner = projects.get(workload.project)
            if workload.id != one.id.workload or (owner is not None and not one.allows(owner.name)):
                raise StoreError(f"the order of {one.id} is about another workload or project")
            place = _place(Codec(Placement).decode(rows["placement"], format), one.gpus)
        except (KeyError, TypeError, CodecError) as error:
            raise StoreError(f"the order of {one.id} cannot be read: {error}") from error
        if workload.id not in workloads:
            fresh = replace(workload, desired=Desired.RUNNING, phase=Phase.PENDING, phase_since=now)
            workloads[workload.id] = fresh
            tasks |= {task.key: task for task in tasks_of(fresh)}
        key = (one.id.workload, one.id.task)
        known = tasks.get(key) or Task(workload.id, one.id.task, *_index(one.id.task))
        tasks[key] = replace(known, attempt=one.id.number - 1, retry_at=None).ordered(place)
        order = one.order
        attempts.append(
            Attempt(one.id, place, int(order["epoch"]), str(order["cause"]), int(order["ordered_ms"]))
        )
    tables: tuple[dict[Any, Any], ...] = (clusters, departments, projects, workloads, tasks)
    there = frozenset(saved.rows)
    return [*(row for table in tables for row in table.values() if row not in there), *attempts]


def _index(task: str) -> tuple[str, int]:
    group, _, index = task.rpartition("-")
    return group, int(index)


def _place(start: Placement, gpus: Sequence[str]) -> Placement:
    """Where it is now: what it began with, and what it was given since."""
    first = start.shares[0] if start.shares else Share("")
    more = (replace(first, gpu=gpu) for gpu in gpus if gpu not in start.uuids)
    less = (share for share in start.shares if not gpus or share.gpu in gpus)
    return replace(start, shares=(*less, *more))


def _events(rows: Sequence[Row], now: int) -> Iterable[Event]:
    names = {row.id: row.name for row in rows if isinstance(row, Workload)}
    for identity, name in names.items():
        words = f"{name} was found running and adopted by a store that did not know it."
        yield Event(identity, now, "server", EventKind.UPDATED, words)


def _sentence(found: Sequence[Stranger]) -> str:
    names = sorted({str(one.order.get("name") or one.id) for one in found})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    run = "1 task runs here" if len(found) == 1 else f"{len(found)} tasks run here"
    them = "it" if len(found) == 1 else "them"
    return (
        f"{run} ({shown}), but the server's database knows nothing of {them}. Nothing was stopped. "
        f"`pliant restore FILE` brings back a backup, `pliant up --adopt` keeps {them} running, "
        f"`pliant up --end` stops {them}."
    )
