"""The order in which the nodes of a class are tried, the best first. docs/reference/scheduling/packing.md

Nodes that look alike form a row, sorted by the cores they have left. In a row this number determines
both what a task would strand and what it would leave, so a row is searched by bisection.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

from pliant.model.machine import NodePool, Strategy
from pliant.model.quantity import GPU
from pliant.model.workload import Request
from pliant.sched.world import device_share
from pliant.sched.world.asked import Rates
from pliant.sched.world.node_classes import Key, NodeClass
from pliant.sched.world.nodes import Look, NodeState
from pliant.sched.world.portions import whole
from pliant.sched.world.share_worth import UNITS, Worth

STEP = 50
"""Milli-GPUs: stranded amounts that grow by less than this count as equal."""

Entry = tuple[int, str]


class Taste(NamedTuple):
    """The preferences between nodes besides the request."""

    rates: Rates = (0, 0)
    spared: frozenset[str] = frozenset()  # node types that are kept for work that can use few types
    worth: Worth = ()  # of what is left of a device; only for requests of a share


PLAIN = Taste()


class Ask(NamedTuple):
    """All inputs of the order in which nodes are tried: equal asks have the same order."""

    devices: int
    portion: int  # thousandths of a device; for GPU memory, of the largest device
    whole: bool  # devices that it shares with no other
    cpu: int
    memory: int
    spread: bool  # over nodes
    device_spread: bool
    taste: Taste


def ask_for(cls: NodeClass, request: Request, pool: NodePool, taste: Taste) -> Ask:
    """The key by which a request chooses among the nodes of a class."""
    return Ask(
        request.devices,
        _portion(cls, request),
        whole(request),
        request.cpu,
        request.memory,
        (pool.gpu_strategy if request.devices else pool.cpu_strategy) is Strategy.SPREAD,
        pool.device_strategy is Strategy.SPREAD,
        taste,
    )


def tiers(
    cls: NodeClass, request: Request, pool: NodePool, most: int, taste: Taste
) -> Iterator[Iterable[NodeState]]:
    """Nodes that may have room, in order, generated lazily: often the first one is taken.

    Nodes that can give `most` devices come in the first tier.
    """
    least, ask = request.devices, ask_for(cls, request, pool, taste)
    if most <= least:
        yield _ordered(cls, cls.looks, ask)
        return
    yield _ordered(cls, [it for it in cls.looks if it.free >= most], ask)
    for count in sorted({it.free for it in cls.looks if it.free < most}, reverse=True):
        yield _ordered(cls, [it for it in cls.looks if it.free == count], ask)


def _portion(cls: NodeClass, request: Request) -> int:
    """Thousandths of a device; for GPU memory, of the largest device, so that no node is excluded."""
    if request.gpu_memory:
        return min(GPU, device_share.portion_of(request.gpu_memory, cls.largest[1]))
    return request.portion


def _joinable(look: Look, portion: int) -> int:
    """Devices used in part that have so much left."""
    return len(look.rests) - bisect_left(look.rests, portion) if look.rests else 0


def best(cls: NodeClass, looks: Iterable[Look], ask: Ask) -> Key | None:
    """The key of the best node of these looks that may have room; None without any.

    The best of each look is cached until a node of that look changes: an equal request after a placement
    compares cached values and searches only the rows where the node was and is now.
    """
    bests = cls.bests_for(ask)
    first: Key | None = None
    for look in looks:
        if look in bests:
            key = bests[look]
        else:
            key = bests[look] = _first(cls, look, ask)
        if key is not None and (first is None or key < first):
            first = key
    return first


def rival(cls: NodeClass, first: NodeState, ask: Ask) -> Key | None:
    """The key of the best node after `first`, which was best(); None without any."""
    bests, found = cls.bests_for(ask), None
    for look in cls.looks:
        key = bests[look]
        if look != first.look and key is not None and (found is None or key < found):
            found = key
    key = _first(cls, first.look, ask, after=1)
    return key if found is None or (key is not None and key < found) else found


def key_after(node: NodeState, ask: Ask, count: int) -> Key | None:
    """The key of a node after `count` more such tasks; None if it has too little room for another then.

    Only for whole devices, not spread.
    """
    by_memory, spare = node.scarcer(count * ask.cpu, count * ask.memory)
    need, free = ask.memory if by_memory else ask.cpu, node.free - count * ask.devices
    if ask.devices > free or need > spare:
        return None
    rate, room = ask.taste.rates[by_memory], node.room - count * ask.devices * GPU
    steps = _growth(room, spare, ask.devices * ask.portion, need, rate) if rate else 0
    return steps, _packed(node.kind, free, node.usable, ask), spare, node.row.name


def _ordered(cls: NodeClass, looks: Collection[Look], ask: Ask) -> Iterator[NodeState]:
    """All nodes of these looks that may have room, the best first."""
    first, bests = best(cls, looks, ask), cls.bests_for(ask)
    if first is None:
        return
    yield cls.nodes[first[-1]]
    for key in merge(*[_row(cls, look, ask) for look in looks if bests[look] is not None]):
        if key != first:
            yield cls.nodes[key[-1]]


def _first(cls: NodeClass, look: Look, ask: Ask, after: int = 0) -> Key | None:
    """Entry number `after` of _row(), from 0: the most frequent question, without loops where possible."""
    if ask.devices > look.free and ask.devices > look.free + _joinable(look, ask.portion):
        return None
    entries, need = cls.looks[look], ask.memory if look.by_memory else ask.cpu
    if ask.spread or entries[0][0] < need or entries[0][0] != entries[-1][0]:
        return next(islice(_row(cls, look, ask), after, None), None)
    if after >= len(entries):
        return None
    rate = ask.taste.rates[look.by_memory]
    steps = _growth(look.room, entries[0][0], ask.devices * ask.portion, need, rate) if rate else 0
    return steps, _rank(look, ask), *entries[after]


def _row(cls: NodeClass, look: Look, ask: Ask) -> Iterator[Key]:
    """The nodes of one look with their keys, best first; none where it has too few devices."""
    if ask.devices > look.free + _joinable(look, ask.portion):
        return
    rank = _rank(look, ask)
    entries = cls.looks[look]
    need = ask.memory if look.by_memory else ask.cpu
    for growth, low, high in _runs(look, entries, ask.devices * ask.portion, need, ask.taste.rates):
        if not ask.spread:
            for at in range(low, high):
                yield growth, rank, *entries[at]
        while ask.spread and low < high:  # the largest part of its cores left first, equal ones by name
            amount = entries[high - 1][0]
            since = bisect_left(entries, (amount,), low, high)
            for at in range(since, high):
                share = (amount << 32) // max(1, look.capacity)
                yield max(0, growth), rank, -share, entries[at][1]
            high = since


def _rank(look: Look, ask: Ask) -> tuple[int, ...]:
    """The key between nodes on which a task would strand equal amounts."""
    if ask.whole and not ask.spread:
        return _packed(look.kind, look.free, look.usable, ask)
    spared = look.kind in ask.taste.spared
    if not ask.devices:
        return spared, look.usable > 0
    if ask.spread:
        joins = not (ask.whole or look.rests)
        return spared, joins, -(look.free << 32) // max(1, look.usable)
    left = _left(look, ask)
    return spared, _loss(left, ask), left, look.free, look.usable


def _packed(kind: str, free: int, usable: int, ask: Ask) -> tuple[int, ...]:
    """_rank() for whole devices that are not spread: no part of a device is left."""
    return kind in ask.taste.spared, 0, 0, free, usable


def _left(look: Look, ask: Ask) -> int:
    """What is left of the device that a fraction would join: less is better; GPU: it needs a free device."""
    if not look.rests:
        return GPU
    if ask.device_spread:
        return 0  # the node chooses the device
    at = bisect_left(look.rests, ask.portion)
    return look.rests[at] if at < len(look.rests) else GPU


def _loss(left: int, ask: Ask) -> int:
    """The worth for other shares that a device with this much left loses by this share."""
    worth = ask.taste.worth
    if not worth or ask.device_spread:
        return 0
    return worth[left * UNITS // GPU] - worth[max(0, left - ask.portion) * UNITS // GPU]


def _runs(
    look: Look, entries: list[Entry], gpu: int, need: int, rates: Rates
) -> Iterator[tuple[int, int, int]]:
    """(growth of the stranded amount in steps, begin and end among the entries), the least growth first.

    GPUs are stranded if their node has fewer cores left than tasks with so many GPUs ask for. The more cores
    are left, the less a task adds to that if it asks for more cores per GPU than the rate, else the more.
    """
    low, high = bisect_left(entries, (need,)), len(entries)
    rate = rates[look.by_memory]
    if not rate:
        if low < high:
            yield 0, low, high
        return

    def growth(entry: Entry) -> int:
        return _growth(look.room, entry[0], gpu, need, rate)

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


def _growth(room: int, free: int, gpu: int, need: int, rate: int) -> int:
    """Steps by which the stranded amount grows on a node with this room and so many cores (or bytes) free."""
    before = room * rate - free * GPU
    after = before - gpu * rate + need * GPU
    return ((after if after > 0 else 0) - (before if before > 0 else 0)) // (STEP * rate)
