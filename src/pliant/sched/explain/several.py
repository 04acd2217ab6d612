"""If no single change is enough: raises machines, limits and quotas together, each as little as possible."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pliant.model.quantity import GPU
from pliant.model.reason import Cure
from pliant.model.tenancy import Department, Project
from pliant.sched.explain.changes import amount_of, machine, raised
from pliant.sched.explain.remedies import Remedy
from pliant.sched.explain.trial import Change, Trial, apply, started, together
from pliant.sched.placement import eligibility
from pliant.sched.shares.naming import queue_named


@dataclass(frozen=True, slots=True)
class Dial:
    """Something that can be raised in steps."""

    most: int
    change: Callable[[int], Change]  # of so many steps, made for the world as it is when it is called
    cure: Cure  # of one step


def at_once(trial: Trial, workload: str, unit: int) -> Remedy | None:
    """The smallest set of raises with which the workload starts; None if none is found."""
    world = trial.world
    row, chunk = world.workloads[workload], world.need(workload).chunk
    if chunk is None or row.project not in world.projects:
        return None
    for pool in eligibility.choices(world, row):
        dials = _dials(trial, workload, pool, unit)
        counts = [dial.most for dial in dials]
        if not _works(trial, workload, dials, counts):
            continue
        for at, dial in enumerate(dials):
            low, high = -1, dial.most
            while high - low > 1:
                middle = (low + high) // 2
                if _works(trial, workload, dials, [*counts[:at], middle, *counts[at + 1 :]]):
                    high = middle
                else:
                    low = middle
            counts[at] = high
        less = [[*counts[:at], count - 1, *counts[at + 1 :]] for at, count in enumerate(counts) if count]
        if trial.tries <= 0 or any(_works(trial, workload, dials, fewer) for fewer in less):
            return None
        steps = [
            Remedy(replace(dial.cure, count=count * dial.cure.unit))
            for dial, count in zip(dials, counts, strict=True)
            if count
        ]
        changes = tuple(_change(trial, dials, fewer) for fewer in less)
        total = _change(trial, dials, counts)
        return replace(steps[-1], change=total, less=changes, after=tuple(steps[:-1]))
    return None


def _dials(trial: Trial, workload: str, pool: str, unit: int) -> list[Dial]:
    """The dials of its queues, then that of the machines: each is minimized in this order."""
    world = trial.world
    row, chunk = world.workloads[workload], world.need(workload).chunk
    assert chunk is not None
    asked = sum(max(1, part.request.devices) for part in chunk.parts)
    others = [world.need(wid).lacks.gpu for wid in world.wanting]
    much = 2 * asked + sum(others) // GPU
    found: list[Dial] = []
    for key in world.path(row.project):
        queue = world.queue_of(key)
        assert isinstance(queue, Project | Department)
        for kind in ("limit",) if row.preemptible else ("limit", "quota"):
            before = amount_of(world, queue, pool, kind, "gpu")
            if before < 0 or (kind == "quota" and isinstance(queue, Department) and queue.derived):
                continue
            cure = Cure(kind, unit, unit, before, "gpu", pool, whom=(queue_named(queue),))
            found.append(Dial(much * GPU // unit, _raised(trial, key, pool, kind, unit), cure))

    def more(count: int) -> Change:
        return Change((machine(world, row, chunk, pool, count),) if count else ())

    return [*found, Dial(much, more, Cure("machines", GPU, GPU, where=pool))]


def _raised(trial: Trial, key: str, pool: str, kind: str, unit: int) -> Callable[[int], Change]:
    def change(count: int) -> Change:
        queue = trial.world.queue_of(key)
        assert isinstance(queue, Project | Department)
        return raised(trial.world, (queue,), pool, kind, "gpu", unit)(count) if count else Change()

    return change


def _change(trial: Trial, dials: list[Dial], counts: list[int]) -> Change:
    """The changes of all dials together; each is made in the world that those before it have changed."""
    made: list[Change] = []
    undo: list[Change] = []
    for dial, count in zip(dials, counts, strict=True):
        made.append(dial.change(count))
        undo.append(apply(trial.world, made[-1]))
    for change in reversed(undo):
        apply(trial.world, change)
    return together(made)


def _works(trial: Trial, workload: str, dials: list[Dial], counts: list[int]) -> bool:
    if trial.tries <= 0:
        return False
    return started(trial.world, trial.decide(_change(trial, dials, counts)), workload)
