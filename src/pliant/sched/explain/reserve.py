"""Finds nodes on which a booking is short at no time, and what keeps it from more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.model.booking import Booking
from pliant.sched.placement.booked import Books, overlapping, room
from pliant.sched.world.state import World


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a request for GPUs."""

    places: tuple[tuple[str, int], ...]  # (node, GPUs of it); less than asked for if there are too few
    total: int  # GPUs of the nodes that were looked at
    bookings: tuple[str, ...] = ()  # ids of those that are in the way
    workloads: tuple[str, ...] = ()  # ids of non-preemptible work in the way, the longest first

    @property
    def gpus(self) -> int:
        return sum(count for _, count in self.places)


def reserve(world: World, now: int, booking: Booking, names: Sequence[str], gpus: int) -> Found:
    """Places on as few of these nodes as possible, for maintenance on all; if too few, what is in the way."""
    rooms = {name: room(world, now, booking, name) for name in sorted(names)}
    total = sum(world.nodes[name].usable for name in rooms)
    if booking.maintenance:
        free = tuple((name, world.nodes[name].usable) for name, count in rooms.items() if count)
        return _told(world, now, booking, names, free, total, len(free) < len(rooms))
    one = min(((count, name) for name, count in rooms.items() if count >= gpus), default=None)
    if one is not None:
        return Found(((one[1], gpus),), total)
    places: list[tuple[str, int]] = []
    left = gpus
    for name in sorted(rooms, key=lambda name: (-rooms[name], name)):
        if (count := min(left, rooms[name])) > 0:
            places.append((name, count))
            left -= count
    return _told(world, now, booking, names, tuple(sorted(places)), total, left > 0)


def _told(
    world: World,
    now: int,
    booking: Booking,
    names: Sequence[str],
    places: tuple[tuple[str, int], ...],
    total: int,
    short: bool,
) -> Found:
    if not short:
        return Found(places, total)
    others: dict[str, None] = {}
    stay: dict[str, int] = {}
    books = Books(world, now, [replace(booking, places=tuple((name, 1) for name in names))])
    begins = max(now, booking.start)
    for name in names:
        others.update((it.id, None) for it in overlapping(world, now, booking, name))
        for key in sorted(world.nodes[name].tasks):
            row, claim = world.workloads.get(key[0]), world.claim_of(key)
            if row is None or claim is None or claim.node != name:
                continue
            if row.project != booking.project and books.stays(world.tasks[key], row, claim, begins):
                end = books.ends(world.tasks[key], row, claim)
                stay[row.id] = max(stay.get(row.id, 0), 1 << 62 if end is None else end)
    order = sorted(stay, key=lambda wid: (-stay[wid], wid))
    return Found(places, total, tuple(others), tuple(order))
