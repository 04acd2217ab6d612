"""Compares a store with the tasks that run: tasks that it does not know are adopted or ended only on request.

Each start leaves with its order the rows that it follows from. An empty store is filled again from these.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pliant.control.left import Left
from pliant.control.ports import Batch, Engine, Saved, Store, Stranger
from pliant.control.submit.variables import Variables
from pliant.model.machine import Placement
from pliant.model.order import Start
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Attempt, AttemptId, Workload
from pliant.sched.world.state import World
from pliant.store.adoption import Adoption
from pliant.store.archive import restore
from pliant.store.codec import FORMAT, Codec
from pliant.store.database import peek
from pliant.store.errors import StoreError
from pliant.store.folder import StateFolder
from pliant.store.schema import UNSEALED

REFUSE, ADOPT, END = "refuse", "adopt", "end"
"""What to do with live tasks that the store does not know."""


class Unknown(StoreError):
    """Tasks run that the store does not know. Nothing was changed."""


Look = Callable[[frozenset[AttemptId]], Sequence[Stranger]]
"""Live attempts other than the known ones, which are given by id."""

End = Callable[[Sequence[Stranger]], None]
"""Ends attempts; returns when none of them lives."""


def remember(start: Start, world: World, cluster: str) -> dict[str, Any]:
    """The rows that a start follows from, so that an empty store can take in its attempt."""
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
    """The store's rows after a comparison with the live attempts. Raises Unknown, StoreError.

    `above`: the highest epoch seen where the attempts run; an older or a new store may not know it.
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
    return take_in(store, Left(found), saved, now)


def take_in(store: Store, left: Left, saved: Saved, now: int) -> Saved:
    """Writes what another server left into the store; returns the store's rows. Raises StoreError."""
    taken = Adoption(saved, now).of(left)
    store.commit(store.lead(), Batch(taken.rows, events=taken.events))
    return store.load()


def newest(saved: Saved) -> int:
    """The latest time in workloads and attempts; the clock may not start before it."""
    times = [0]
    for workload in saved.of(Workload):
        times += [workload.created, workload.phase_since]
    for attempt in saved.of(Attempt):
        times += [attempt.ordered, attempt.started or 0]
    return max(times)


def seal_old(engine: Engine, saved: Saved) -> None:
    """Seals the values that an older release kept in its rows and that a migration took out of them."""
    for workload, launches in json.loads(saved.settings.get(UNSEALED) or "{}").items():
        if not engine.sealed(workload):
            sealed = {group: Variables(tuple(env.items())) for group, env in launches.items()}
            engine.seal(workload, sealed)


def compare(source: Path, look: Look) -> dict[str, int]:
    """How many live attempts a backup knows, and how many it does not. Raises StoreError."""
    known = _ids(peek(source))
    unknown = len(look(known))
    return {"known": len(look(frozenset())) - unknown, "unknown": unknown}


def restore_backup(folder: StateFolder, source: Path) -> None:
    """Replaces the store by a backup; no server may use it. Raises StoreError."""
    folder.prepare()
    lock = folder.lock(take_over=False)
    try:
        restore(source, folder.address, overwrite=True)
    finally:
        os.close(lock)


def _ids(saved: Saved) -> frozenset[AttemptId]:
    return frozenset(row.id for row in saved.of(Attempt))


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
