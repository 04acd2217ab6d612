"""How a node looks to the one who orders nodes: equal ones stand together in an index."""

from collections.abc import Iterable
from typing import NamedTuple

from pliant.model.quantity import GPU
from pliant.sched.world.device import Device


class Look(NamedTuple):
    """What decides about the place of a node in the order of nodes, besides what it has to spare."""

    free: int  # devices nobody claims
    usable: int  # devices in all
    room: int  # unclaimed thousandths of all its devices together
    rests: tuple[int, ...]  # unclaimed thousandths of each device claimed in part, sorted
    capacity: int  # all its millicores, or all its bytes of memory
    by_memory: bool  # of memory it has less than of cores, measured by what work asks for
    kind: str  # its node type; empty: none


def rests_of(devices: Iterable[Device]) -> tuple[int, ...]:
    """What nobody claims of each device that is claimed in part."""
    return tuple(sorted(GPU - it.claimed for it in devices if 0 < it.claimed < GPU and not it.gpu.foreign))
