"""Drains nodes: moves what can move without taking from others; the rest runs to its end or is stopped."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pliant.model.workload import TaskKey
from pliant.sched.explain.trial import Change, Decide, apply
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

GENTLE = ("allocate", "shrink", "allocate")
"""The actions of a cycle that take nothing from other work but bonus."""


@dataclass(frozen=True, slots=True)
class Draining:
    """What happens to the workloads (by id) on the nodes, and the rows that do it."""

    moves: tuple[str, ...]  # there is room for them elsewhere
    waits: tuple[str, ...]  # they run to their end where they are
    stops: tuple[str, ...]  # they are stopped and wait
    change: Change


def drained(
    world: World, now: int, settings: Settings, decide: Decide, nodes: Sequence[str], *, stop: bool
) -> Draining:
    """How the nodes are drained. Non-preemptible work moves only with `stop`. The world is left as it was."""
    shut = Change(tuple(replace(world.nodes[name].row, draining=True) for name in nodes))
    undo = apply(world, shut)
    try:
        seated = _seated(world, nodes)
        able = {wid: keys for wid, keys in seated.items() if stop or world.workloads[wid].preemptible}
        moves = _movable(world, partial(decide, world, now, replace(settings, actions=GENTLE)), able)
    finally:
        apply(world, undo)
    rest = [wid for wid in seated if wid not in moves]
    leave = moves + (rest if stop else [])
    freed = _released(world, [key for wid in leave for key in seated[wid]])
    return Draining(
        tuple(moves), () if stop else tuple(rest), tuple(rest) if stop else (), shut.and_then(freed)
    )


def _seated(world: World, nodes: Iterable[str]) -> dict[str, list[TaskKey]]:
    """Workload -> its tasks with places there; the largest workload first."""
    found: dict[str, list[TaskKey]] = {}
    for name in nodes:
        for key in sorted(world.nodes[name].tasks):
            claim = world.claim_of(key)
            if claim is not None and claim.node == name and key[0] in world.workloads:
                found.setdefault(key[0], []).append(key)
    return {wid: found[wid] for wid in sorted(found, key=lambda wid: (-world.gpu_of(wid), wid))}


def _movable(world: World, plan_of: Callable[[], Plan], seated: dict[str, list[TaskKey]]) -> list[str]:
    """The workloads whose tasks all get a place elsewhere, all at the same time."""
    chosen = list(seated)
    while chosen:
        undo = apply(world, _released(world, [key for wid in chosen for key in seated[wid]]))
        plan = plan_of()
        placed = {task.key for task in plan.tasks if task.claims is not None}
        apply(world, undo)
        stay = [wid for wid in chosen if not placed.issuperset(seated[wid])]
        if not stay:
            break
        chosen = [wid for wid in chosen if wid not in stay]
    return chosen


def _released(world: World, keys: Iterable[TaskKey]) -> Change:
    return Change(tuple(replace(world.tasks[key], claims=None) for key in keys))
