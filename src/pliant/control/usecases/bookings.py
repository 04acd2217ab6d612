"""Use cases about bookings: GPUs kept for a project, or nodes kept free for maintenance, for a time."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pliant.control.decider.port import Known
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.submit.submission import check_name
from pliant.model.booking import Booking, Stage
from pliant.model.event import EventKind
from pliant.model.quantity import GPU, counted, listed, plain, spell_gpus
from pliant.model.tenancy import UNLIMITED
from pliant.sched.explain.reserve import Found, reserve
from pliant.sched.placement.booked import room
from pliant.sched.shares.naming import workload_named
from pliant.sched.world.state import World

MOST = 1000
"""Most bookings at a time."""

NAMED = 3
"""Most bookings, and most workloads, that a refusal names as being in the way."""


class Bookings:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def book(
        self, wanted: Booking, *, gpus: int, pool: str, nodes: Sequence[str], within_quota: bool
    ) -> Booking:
        """Create a booking. `wanted` has no places yet: they are on these nodes, or without any on a pool's.

        `within_quota`: refuse more than its project's quota. Raises BadRequest, Conflict, NotFound.
        """
        check_name(wanted.name, "booking")
        _check_times(wanted, self._loop.clock.now())
        now = self._loop.clock.now()
        ask = partial(_reserved, now=now, wanted=wanted, gpus=gpus, pool=pool, names=tuple(nodes))
        found, refusal = self._loop.question(ask)
        if refusal:
            raise Conflict(refusal, "Choose another time, other nodes or fewer GPUs.")

        def run(draft: Draft) -> Booking:
            world = self._loop.world
            if any(row.name == wanted.name for row in world.bookings.values()):
                raise NameTaken(
                    f"A booking named {wanted.name!r} already exists.",
                    "Choose another name, or delete it: pliant booking delete NAME",
                    field="name",
                )
            if len(world.bookings) >= MOST:
                raise Conflict(f"{MOST} bookings exist already, the maximum.", "pliant booking delete NAME")
            if within_quota:
                _check_quota(world, wanted, gpus, draft.now)
            row = replace(
                wanted, id=str(uuid.uuid4()), places=found.places, created=draft.now, stage=Stage.PLANNED
            )
            for name, count in row.places:  # the node may have changed since the search
                if room(world, draft.now, row, name) < (1 if row.maintenance else count):
                    raise Conflict(f"Node {name} was used meanwhile.", "Try again.")
            draft.put(row)
            where = ", ".join(name if row.maintenance else f"{count} on {name}" for name, count in row.places)
            what = f"maintenance {row.name} of {where}" if row.maintenance else f"{row.name}: {where}"
            text = f"{row.user} booked {what}."
            draft.event(f"booking/{row.name}", EventKind.SUBMITTED, text, who=row.user)
            return row

        return self._loop.call(run)

    def cancel(self, key: str, user: str) -> None:
        """Cancel a booking; what it kept is free at once."""

        def run(draft: Draft) -> None:
            row = self.known(key)
            draft.drop(row)
            draft.event(
                f"booking/{row.name}", EventKind.DELETED, f"{user} deleted booking {row.name}.", who=user
            )

        self._loop.call(run)

    def known(self, key: str) -> Booking:
        """The booking with that id or name. Raises NotFound."""
        for row in self._loop.world.bookings.values():
            if key in (row.id, row.name):
                return row
        raise NotFound(f"There is no booking {key[:60]!r}.", "See them with: pliant booking list")


def _check_times(wanted: Booking, now: int) -> None:
    if wanted.end <= wanted.start:
        raise BadRequest("The booking ends before it starts.", "Give an end after the start.", field="end")
    if wanted.end <= now:
        raise BadRequest("The booking ends in the past.", "Give an end in the future.", field="end")
    if wanted.start < now - 60_000:
        raise BadRequest("The booking starts in the past.", "Start it now or later.", field="start")


def _check_quota(world: World, wanted: Booking, gpus: int, now: int) -> None:
    """Raise Conflict if its project's bookings at any instant exceed the quotas of all pools together."""
    project = world.projects[wanted.project]
    quotas = [quota.gpu for _, quota in project.quotas]
    if any(quota == UNLIMITED for quota in quotas) or project.derived:
        return
    others = [row for row in world.bookings.values() if row.project == wanted.project]
    begins = max(now, wanted.start)
    times = {begins, *(row.start for row in others if begins < row.start < wanted.end)}
    booked = max(sum(row.gpus for row in others if row.covers(at, now)) for at in times)
    if (booked + gpus) * GPU > sum(quotas):
        already = f" and has booked {counted(booked, 'GPU')} of it" if booked else ""
        raise Conflict(
            f"Project {project.name} has a quota of {spell_gpus(sum(quotas))}{already}: "
            f"{counted(gpus, 'GPU')} more cannot be booked.",
            "An administrator can book more than the quota.",
        )


def _reserved(
    state: Known, now: int, wanted: Booking, gpus: int, pool: str, names: Sequence[str]
) -> tuple[Found, str]:
    """(where it can be, why it cannot be; '' if it can)."""
    world = state.world
    if wanted.project and wanted.project not in world.projects:
        raise NotFound(f"There is no project {wanted.project!r}.", "See them with: pliant project list")
    if pool not in world.pools:
        raise NotFound(f"There is no node pool {pool!r}.", "See the pools with: pliant nodepool list")
    for name in names:
        if name not in world.nodes:
            raise NotFound(f"There is no node {name!r}.", "See the nodes with: pliant node list")
    chosen = names or sorted(name for name, node in world.nodes.items() if node.pool == pool and node.open)
    found = reserve(world, now, wanted, chosen, gpus)
    return found, _refusal(world, wanted, found, gpus, chosen)


def _refusal(world: World, wanted: Booking, found: Found, gpus: int, names: Sequence[str]) -> str:
    """Why so much cannot be booked there at that time; '' if it can."""
    if wanted.maintenance:
        got = {name for name, _ in found.places}
        lacks = [name for name in names if name not in got]
        said = f"Maintenance of {listed(lacks)} is not possible then" if lacks else ""
    elif found.total < gpus:
        return f"{counted(gpus, 'GPU')} cannot be booked: there are {found.total}."
    else:
        free = plain(found.gpus * GPU)
        said = f"Only {free} of {counted(gpus, 'GPU')} can be booked then" if found.gpus < gpus else ""
    if not said:
        return ""
    ways = [f"booking {world.bookings[it].name}" for it in found.bookings[:NAMED]]
    for wid in found.workloads[:NAMED]:
        ways.append(f"non-preemptible job {workload_named(world, wid).full}")
    left = len(found.bookings) + len(found.workloads) - len(ways)
    if left > 0:
        ways.append(f"{left} more")
    return f"{said}. In the way: {listed(ways)}." if ways else f"{said}."
