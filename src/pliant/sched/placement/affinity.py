"""Of the nodes of a class those that suit a task: by labels and taints, best liked first, some kept apart."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pliant.model.affinity import Taint
from pliant.model.workload import Request, Workload
from pliant.sched.world import node_affinity
from pliant.sched.world.node_affinity import ANYWHERE, Apart, Where, liking, place_of
from pliant.sched.world.node_classes import PLAIN, spec_of
from pliant.sched.world.nodes import NodeClass, NodeState, TaskKey

if TYPE_CHECKING:
    from pliant.sched.world.portions import Chunk
    from pliant.sched.world.state import World

Bars = tuple[tuple[str, frozenset[str]], ...]
"""(label key, values that are taken by others): nodes that a task must not share."""


def wheres_of(world: "World", workload: Workload) -> tuple[Where, ...]:
    """What its groups ask for, each once."""
    asked = world.demands(workload.id)
    return tuple(dict.fromkeys(demand.where for demand in asked.values())) if asked else PLAIN.wheres


def for_task(world: "World", cls: NodeClass, key: TaskKey) -> NodeClass:
    """Those nodes of a class that suit this task."""
    demand = world.demand(key)
    if demand is None:
        return cls
    return world.narrowed(cls, spec_of(cls)._replace(wheres=(demand.where,)))


def best_first(world: "World", classes: Sequence[NodeClass], key: TaskKey) -> Iterator[NodeClass]:
    """The classes narrowed to what suits a task, by how it likes their nodes, then in their order."""
    demand = world.demand(key)
    where = demand.where if demand is not None else ANYWHERE
    if demand is not None:
        classes = [for_task(world, cls, key) for cls in classes]
    if not where.preferred and not world.shunned:
        yield from classes
        return
    found = [(score, cls) for cls in classes for score in _scores(world, cls, where)]
    for score, cls in sorted(found, key=lambda entry: -entry[0]):
        yield world.narrowed(cls, spec_of(cls)._replace(wheres=(where,), liked=score))


def _scores(world: "World", cls: NodeClass, where: Where) -> tuple[int, ...]:
    """How its nodes are liked, each value once, the best first."""
    key = (cls.pool, cls.types, spec_of(cls), where)
    found = world.likings.get(key)
    if found is None:
        scores = {liking(where, node.row) for node in cls.nodes.values()}
        found = world.likings[key] = tuple(sorted(scores, reverse=True))
    return found


# ---------------------------------------------------------------- apart
def bars(world: "World", key: TaskKey) -> Bars:
    """What others of its workload keep from a task now."""
    demand = world.demand(key)
    if demand is None or not demand.apart:
        return ()
    return tuple((apart.key, frozenset(taken(world, apart, key[0], key))) for apart in demand.apart)


def taken(world: "World", apart: Apart, wid: str, but: TaskKey | None = None) -> set[str]:
    """Values of the label where such tasks of a workload are."""
    found = set()
    for other in world.keys_of(wid):
        claim = world.claim_of(other) if other != but else None
        if claim is None or claim.node not in world.nodes:
            continue
        if not apart.group or world.tasks[other].group == apart.group:
            found.add(place_of(apart.key, world.nodes[claim.node].row))
    return found


def left(world: "World", key: TaskKey, node: NodeState) -> bool:
    """False while a task from which this one must lie apart still runs where that would be too near."""
    demand = world.demand(key)
    for apart in demand.apart if demand is not None else ():
        value = place_of(apart.key, node.row)
        for other in world.keys_of(key[0]):
            row = world.tasks[other]
            near = other != key and (not apart.group or row.group == apart.group)
            at = world.nodes.get(row.carries.node) if near and row.carries is not None else None
            if at is not None and place_of(apart.key, at.row) == value:
                return False
    return True


def allowed(node: NodeState, taken_by_others: Bars) -> bool:
    for key, values in taken_by_others:
        value = place_of(key, node.row)
        if not value or value in values:
            return False
    return True


def crowded(world: "World", chunk: "Chunk", cls: NodeClass, empty: bool) -> tuple[str, int, int, int] | None:
    """(key, tasks of the chunk, domains, those with room for one) where too few domains have room for one.

    None if there are enough, as far as counting tells. `empty`: as if nobody else claimed anything.
    """
    asked: dict[Apart, list[TaskKey]] = {}
    for part in chunk.parts:
        demand = world.demand(part.task)
        for apart in demand.apart if demand is not None and not part.extends else ():
            asked.setdefault(apart, []).append(part.task)
    requests = {part.task: part.request for part in chunk.parts}
    for apart, keys in asked.items():
        mine = taken(world, apart, chunk.workload.id)
        all_: set[str] = set()
        room: set[str] = set()
        for key in keys:
            request = requests[key]
            for node in for_task(world, cls, key).nodes.values():
                value = place_of(apart.key, node.row)
                if not value or value in mine:
                    continue
                all_.add(value)
                if request.devices <= (node.usable if empty else _open_devices(node, request)):
                    room.add(value)
            if len(room) >= len(keys):
                break
        if len(room) < len(keys):
            return apart.key, len(keys), len(all_), len(room)
    return None


def _open_devices(node: NodeState, request: Request) -> int:
    """Devices that may take a part of a request; not too few."""
    return node.free + node.partly if request.shared else node.free


# ---------------------------------------------------------------- why none suits
def ruled_out(
    world: "World", workload: Workload, cls: NodeClass
) -> tuple[int, int, int, Taint | None] | None:
    """(nodes of pool and types, those without the labels, those with such a taint, one of these taints).

    None if some node suits some of its tasks, or if there is no node at all.
    """
    plain = [node for node in world.nodes.values() if cls.reaches(node)]
    wheres = wheres_of(world, workload)
    if not plain or any(node_affinity.suits(where, node.row) for where in wheres for node in plain):
        return None
    like = [node for node in plain if any(node_affinity.alike(where, node.row) for where in wheres)]
    taints = [
        taint
        for node in sorted(like, key=lambda node: node.row.name)
        for where in wheres
        if (taint := node_affinity.blocking(where.tolerations, node.row)) is not None
    ]
    return len(plain), len(plain) - len(like), len(like), taints[0] if taints else None
