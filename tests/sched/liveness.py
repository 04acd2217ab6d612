"""Checks of a world at rest: no possible placement is left undone, and plans stay empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pliant.model.quantity import Resources
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import Desired, Task, TaskPhase, Workload
from tests.sched.ledger import Books, Key, missing
from tests.sched.room import core_fit, waiting, without_bonus
from tests.sched.ticker import Ticker


def rests(t: Ticker) -> None:
    """The plan stays empty while only time passes."""
    for later in (0, 1_000, 3_600_000):
        t.advance(later)
        plan = t.cycle()
        assert plan.empty, f"something changes {later} ms after the world came to rest: {plan.decisions}"


def works(t: Ticker) -> None:
    """No pending core fits into idle or bonus GPUs that it is allowed to have."""
    bare = without_bonus(t.scene, t.scene.tasks)
    for workload in waiting(t.scene, bare, t.now):
        found = core_fit(t.scene, bare, workload)
        assert found is None, f"{workload.name} waits though it fits: {t.verdict(workload.name).reason}"


def fills(t: Ticker) -> None:
    """No background core waits while it fits into idle GPUs."""
    tasks = {key: replace(task, claims=task.claims or task.carries) for key, task in t.scene.tasks.items()}
    for workload in t.scene.workloads.values():
        mine = [task for task in tasks.values() if task.workload == workload.id]
        shall = workload.background and workload.desired is Desired.RUNNING and not workload.phase.final
        if shall and missing(workload, mine) and not any(task.retry_at for task in mine):
            found = core_fit(t.scene, tasks, workload)
            assert found is None, f"{workload.name} waits though it fits: {t.verdict(workload.name).reason}"


def entitled(t: Ticker) -> None:
    """No pending core in quota waits if evicting one workload beyond its project's quota would be enough,
    and none waits if evicting one workload of its own project and of lower priority would be."""
    bare = without_bonus(t.scene, t.scene.tasks)
    books = Books.of(t.scene, bare.values())
    for workload in waiting(t.scene, bare, t.now):
        if any(task.claims for task in t.scene.tasks_of(workload.id)):
            continue
        for victim, rest in _single_victims(t, bare):
            if victim.id == workload.id:
                continue
            amount = core_fit(t.scene, rest, workload)
            if amount is None:
                continue
            lower = victim.project == workload.project and victim.priority < workload.priority
            lower = lower and _no_more(bare, books, workload, victim, amount)
            assert not lower, f"{workload.name} waits though it outranks {victim.name}"
            assert not _due(books, workload, victim, rest, bare, amount), (
                f"{workload.name} is in quota and waits though {victim.name} is beyond its own"
            )


def _no_more(
    bare: dict[Key, Task], books: Books, workload: Workload, victim: Workload, amount: Resources
) -> bool:
    """True if replacing the victim by it takes no queue further beyond its quota."""
    places = [task.claims for key, task in bare.items() if key[0] == victim.id and task.claims]
    grows = amount.gpu - sum(place.gpu for place in places)
    pool = books.pool(places[0].node)
    for queue in books.path(workload):
        deserved = books.deserved(queue, pool)
        if grows > 0 and deserved != UNLIMITED and books.used[queue, pool].gpu + grows > deserved:
            return False
    return True


def _single_victims(t: Ticker, bare: dict[Key, Task]) -> Iterator[tuple[Workload, dict[Key, Task]]]:
    """Running preemptible one-task workloads past their minimum run time; the tasks without their claims."""
    for key, task in bare.items():
        victim = t.scene.workloads[task.workload]
        whole = len(victim.groups) == 1 == victim.groups[0].max
        open_ = victim.preemptible and not victim.background
        if not (whole and open_ and task.claims and task.phase is TaskPhase.RUNNING):
            continue
        pool = t.scene.pool_of(t.scene.nodes[task.claims.node])
        safe = next((row.min_runtime for row in t.scene.pools.values() if row.name == pool), 0)
        if task.started is not None and t.now - task.started >= safe:
            yield victim, {**bare, key: replace(task, claims=None)}


def _due(
    books: Books,
    workload: Workload,
    victim: Workload,
    rest: dict[Key, Task],
    bare: dict[Key, Task],
    amount: Resources,
) -> bool:
    """True if with it its queues stay within quota and the victim's, where they differ, exceed theirs."""
    if victim.project == workload.project or not amount.gpu:
        return False
    (key,) = [key for key, task in bare.items() if task.claims and not rest[key].claims]
    place = bare[key].claims
    assert place is not None
    pool = books.pool(place.node)
    ours, theirs = books.path(workload), books.path(victim)
    for queue in ours:
        deserved = books.deserved(queue, pool)
        if deserved != UNLIMITED and books.used[queue, pool].gpu + amount.gpu > deserved:
            return False
    for mine, other in zip(ours, theirs, strict=True):
        deserved = books.deserved(other, pool)
        # What it holds above its core goes first; this may already be enough.
        have = books.used[other, pool].gpu - _surplus(victim, bare)
        if mine != other and (deserved == UNLIMITED or have <= deserved):
            return False
    return True


def _surplus(workload: Workload, tasks: dict[Key, Task]) -> int:
    """Milli-GPUs that it claims above its core."""
    total = 0
    for group in workload.groups:
        mine = [t for t in tasks.values() if (t.workload, t.group) == (workload.id, group.name)]
        places = [task.claims for task in mine if task.claims]
        if group.elastic:
            total += sum(place.gpu - place.shares[0].portion for place in places)
        else:
            total += sum(place.gpu for place in places[group.min :])
    return total
