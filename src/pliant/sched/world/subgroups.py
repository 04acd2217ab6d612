"""A workload as a tree of task groups and sub-groups; each level needs so many of these at their minimum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pliant.model.topology import Within
from pliant.model.workload import SubGroup, TaskGroup, Workload

PortionOf = Callable[[TaskGroup], int]
"""Tasks that a group at its minimum would take next; 0: none."""


@dataclass(frozen=True, slots=True)
class Level:
    """The workload itself or one of its sub-groups."""

    name: str  # empty: the workload
    least: int  # so many of its children must be at their minimum
    within: Within | None
    children: tuple["Level | TaskGroup", ...]  # sub-groups first, in the workload's order


@dataclass(slots=True)
class Stock:
    """Tasks by group: `have` are placed or succeeded, `idle` could be given a place."""

    priority: int = 0  # of the workload: that of groups without their own
    have: dict[str, int] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)


def least(group: TaskGroup) -> int:
    """Tasks without which a group is of no use; an elastic one is a single task."""
    return 1 if group.elastic else group.min


def tree(workload: Workload) -> Level:
    """The tree of a workload. A sub-group under an unknown one, or under itself, counts as at the top."""
    if not workload.subgroups:
        return _level("", workload.min_groups, workload.within, workload.groups)
    known = {sub.name: sub for sub in workload.subgroups}
    under: dict[str, list[SubGroup]] = {}
    for sub in workload.subgroups:
        under.setdefault("" if _astray(sub, known) else sub.parent, []).append(sub)

    def children(name: str) -> tuple[Level | TaskGroup, ...]:
        levels = [_level(sub.name, sub.min, sub.within, children(sub.name)) for sub in under.get(name, ())]
        groups = [it for it in workload.groups if (it.parent if it.parent in known else "") == name]
        return (*levels, *groups)

    return _level("", workload.min_groups, workload.within, children(""))


def constrained(workload: Workload) -> bool:
    """True if a topology constraint holds for any of its tasks."""
    if workload.within is not None:
        return True
    for group in workload.groups:
        if group.within is not None:
            return True
    return any(sub.within is not None for sub in workload.subgroups) if workload.subgroups else False


def _level(
    name: str, least: int | None, within: Within | None, children: tuple[Level | TaskGroup, ...]
) -> Level:
    needed = len(children) if least is None else min(least, len(children))
    return Level(name, needed, within, children)


def _astray(sub: SubGroup, known: Mapping[str, SubGroup]) -> bool:
    now, seen = sub, set()
    while now.parent in known and now.name not in seen:
        seen.add(now.name)
        now = known[now.parent]
    return sub.parent not in known or (now.name in seen and now.name == sub.name)


def groups_of(child: Level | TaskGroup) -> tuple[TaskGroup, ...]:
    """Its task groups, in order."""
    if isinstance(child, TaskGroup):
        return (child,)
    return tuple(group for each in child.children for group in groups_of(each))


def met(child: Level | TaskGroup, have: Mapping[str, int]) -> bool:
    """True if it is at its minimum with so many tasks in each group."""
    if isinstance(child, TaskGroup):
        return have.get(child.name, 0) >= least(child)
    return _met_children(child, have) >= child.least


def _met_children(level: Level, have: Mapping[str, int]) -> int:
    return sum(1 for child in level.children if met(child, have))


def core_met(workload: Workload, have: Mapping[str, int]) -> bool:
    """True if the core of the workload is complete with so many tasks in each group."""
    if len(workload.groups) == 1 and not workload.subgroups:
        only = workload.groups[0]
        enough = have.get(only.name, 0) >= least(only)
        return enough or (workload.min_groups is not None and workload.min_groups < 1)
    return met(tree(workload), have)


def core_size(workload: Workload) -> int:
    """The fewest tasks that make its core."""
    return _size(tree(workload))


def _size(child: Level | TaskGroup) -> int:
    if isinstance(child, TaskGroup):
        return least(child)
    return sum(sorted(_size(each) for each in child.children)[: child.least])


def missing(child: Level | TaskGroup, stock: Stock) -> list[tuple[TaskGroup, int]] | None:
    """Tasks by group that bring it to its minimum; [] if it is there, None if it cannot get there.

    Children of a level that have some tasks already come first, then those of higher priority.
    """
    if isinstance(child, TaskGroup):
        lacks = least(child) - stock.have.get(child.name, 0)
        if lacks <= 0:
            return []
        return [(child, lacks)] if stock.idle.get(child.name, 0) >= lacks else None
    found = [(each, missing(each, stock)) for each in child.children]
    needed = child.least - sum(1 for _, lacks in found if lacks == [])
    if needed <= 0:
        return []
    able = [(each, lacks) for each, lacks in found if lacks]
    able.sort(key=lambda entry: (not _started(entry[0], stock), -_priority(entry[0], stock)))
    if len(able) < needed:
        return None
    return [entry for _, lacks in able[:needed] for entry in lacks]


def _started(child: Level | TaskGroup, stock: Stock) -> bool:
    return any(stock.have.get(group.name, 0) for group in groups_of(child))


def portion(level: Level, stock: Stock, more: PortionOf) -> list[tuple[TaskGroup, int]]:
    """What a level at its minimum takes next: what its worst served child lacks, or one portion of it.

    Children of higher priority come first. Empty if no child can take anything.
    """
    for child in sorted(level.children, key=lambda each: (-_priority(each, stock), _served(each, stock))):
        lacks = missing(child, stock)
        if lacks:
            return lacks
        if lacks is None:
            continue
        if isinstance(child, Level):
            found = portion(child, stock, more)
        else:
            count = more(child)
            found = [(child, count)] if count else []
        if found:
            return found
    return []


def _priority(child: Level | TaskGroup, stock: Stock) -> int:
    """The highest priority of its groups."""
    own = (group.priority for group in groups_of(child))
    return max((stock.priority if each is None else each for each in own), default=stock.priority)


def _served(child: Level | TaskGroup, stock: Stock) -> int:
    """How much it has of what it needs, in thousandths."""
    if isinstance(child, TaskGroup):
        return stock.have.get(child.name, 0) * 1000 // max(1, least(child))
    return _met_children(child, stock.have) * 1000 // max(1, child.least)


def surplus(level: Level, name: str, have: Mapping[str, int]) -> tuple[TaskGroup, ...]:
    """The task groups of the smallest branch around group `name` that its level can do without.

    Empty if there is none: all of it is core.
    """
    for child in level.children:
        if all(group.name != name for group in groups_of(child)):
            continue
        inner = surplus(child, name, have) if isinstance(child, Level) else ()
        if inner:
            return inner
        others = sum(1 for each in level.children if each is not child and met(each, have))
        return groups_of(child) if others >= level.least else ()
    return ()


def spares(workload: Workload, root: Level, have: Mapping[str, int]) -> bool:
    """True if it has some sub-group or group beyond those that its core needs."""
    if not workload.subgroups and workload.min_groups is None:
        return False
    return any(count and surplus(root, name, have) for name, count in have.items())
