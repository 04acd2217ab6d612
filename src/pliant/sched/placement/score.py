"""Which node is best: the order in which nodes of a class are tried. docs/reference/scheduling/packing.md

Nodes that look alike stand together, by the cores they have left; inside such a row both what a task would
strand and what it would leave follow from that number, so a row is searched by halving, never walked.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from pliant.model.machine import NodePool, Strategy
from pliant.model.quantity import GPU
from pliant.model.workload import Request
from pliant.sched.world import device_share
from pliant.sched.world.asked import Rates
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import Look, NodeState
from pliant.sched.world.portions import whole

STEP = 50
"""Milli-GPUs: growths of what is stranded that differ by less count as equal."""

Entry = tuple[int, str]
Key = tuple[int, tuple[int, ...], int, str]
"""Growth of what is stranded, rank of the look, cores left (or the part that is taken), name."""


class Taste(NamedTuple):
    """What, besides the request, makes one node better than another."""

    rates: Rates = (0, 0)
    spared: Container[str] = ()  # node types that are kept for those who can use few


PLAIN = Taste()


def tiers(
    cls: NodeClass, request: Request, pool: NodePool, most: int, taste: Taste
) -> Iterator[Iterable[NodeState]]:
    """Nodes that may have room, in order, made while they are looked at: often the first one is taken.

    Nodes that can give `most` devices come in the first tier.
    """
    least = request.devices
    portion = _portion(cls, request)
    looks = [look for look in cls.looks if least <= look.free + _joinable(look, portion)]
    if most <= least:
        yield _ordered(cls, looks, request, portion, pool, taste)
        return
    yield _ordered(cls, [it for it in looks if it.free >= most], request, portion, pool, taste)
    for count in sorted({it.free for it in looks if it.free < most}, reverse=True):
        yield _ordered(cls, [it for it in looks if it.free == count], request, portion, pool, taste)


def _portion(cls: NodeClass, request: Request) -> int:
    """Thousandths of a device that it takes; of memory, on the largest device: no node is left out."""
    if request.gpu_memory:
        return min(GPU, device_share.portion_of(request.gpu_memory, cls.largest[1]))
    return request.portion


def _joinable(look: Look, portion: int) -> int:
    """Devices used in part that have so much left."""
    return len(look.rests) - bisect_left(look.rests, portion) if look.rests else 0


def _ordered(
    cls: NodeClass, looks: list[Look], request: Request, portion: int, pool: NodePool, taste: Taste
) -> Iterator[NodeState]:
    """All nodes of these looks, the best first."""
    ranks: dict[tuple[int, ...], list[Look]] = {}
    for look in looks:
        ranks.setdefault(_rank(look, request, portion, pool, taste), []).append(look)
    if any(taste.rates):  # what is stranded comes before all ranks
        rows = [
            _row(cls, look, rank, request, portion, pool, taste) for rank in ranks for look in ranks[rank]
        ]
        for key in merge(*rows):
            yield cls.nodes[key[-1]]
        return
    for rank in sorted(ranks):
        alike = ranks[rank]
        rows = [_row(cls, look, rank, request, portion, pool, taste) for look in alike]
        for key in merge(*rows) if len(rows) > 1 else rows[0]:
            yield cls.nodes[key[-1]]


def _row(
    cls: NodeClass,
    look: Look,
    rank: tuple[int, ...],
    request: Request,
    portion: int,
    pool: NodePool,
    taste: Taste,
) -> Iterator[Key]:
    """The nodes of one look with their keys, best first."""
    spread = (pool.gpu_strategy if request.devices else pool.cpu_strategy) is Strategy.SPREAD
    entries = cls.looks[look]
    need = request.memory if look.by_memory else request.cpu
    for growth, low, high in _runs(look, entries, request.devices * portion, need, taste.rates):
        if not spread:
            for at in range(low, high):
                yield growth, rank, *entries[at]
        while spread and low < high:  # the largest part of its cores left first, equal ones by name
            amount = entries[high - 1][0]
            since = bisect_left(entries, (amount,), low, high)
            for at in range(since, high):
                share = (amount << 32) // max(1, look.capacity)
                yield max(0, growth), rank, -share, entries[at][1]
            high = since


def _rank(look: Look, request: Request, portion: int, pool: NodePool, taste: Taste) -> tuple[int, ...]:
    """What decides between nodes on which a task would strand the same."""
    spared = look.kind in taste.spared
    if not request.devices:
        return spared, look.usable > 0
    if pool.gpu_strategy is Strategy.SPREAD:
        joins = not (whole(request) or look.rests)
        return spared, joins, -(look.free << 32) // max(1, look.usable)
    return spared, _left(look, request, portion, pool), look.free, look.usable


def _left(look: Look, request: Request, portion: int, pool: NodePool) -> int:
    """What is left now of the device that a fraction would join: less is better; GPU: it would break one."""
    if whole(request) or not look.rests:
        return 0 if whole(request) else GPU
    if pool.device_strategy is Strategy.SPREAD:
        return 0  # which device, says the node
    at = bisect_left(look.rests, portion)
    return look.rests[at] if at < len(look.rests) else GPU


def _runs(
    look: Look, entries: list[Entry], gpu: int, need: int, rates: Rates
) -> Iterator[tuple[int, int, int]]:
    """(growth of what is stranded, in steps, and from where to where among the entries), the least first.

    GPUs are stranded where their node has fewer cores left than what is asked for with so many GPUs. A task
    that asks for more than its GPUs' part of them adds less to that the more are left; another one adds more.
    """
    low, high = bisect_left(entries, (need,)), len(entries)
    rate = rates[look.by_memory]
    if not rate:
        if low < high:
            yield 0, low, high
        return
    room, per_step = look.room, STEP * rate

    def growth(entry: Entry) -> int:
        free = entry[0]
        after = max(0, (room - gpu) * rate - (free - need) * GPU)
        return (after - max(0, room * rate - free * GPU)) // per_step

    if need * GPU <= gpu * rate:
        while low < high:
            steps = growth(entries[low])
            end = bisect_right(entries, steps, low, high, key=growth)
            yield steps, low, end
            low = end
    else:
        while low < high:
            steps = growth(entries[high - 1])
            since = bisect_left(entries, -steps, low, high, key=lambda entry: -growth(entry))
            yield steps, since, high
            high = since
