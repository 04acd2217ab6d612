"""Bookings: how much of each node others may use, now and when later bookings begin.

A project that booked c devices of a node uses these first; while it uses fewer, the rest of c stays
unclaimed. So at every instant t, with u usable devices,

    devices claimed at t  +  sum over bookings of max(0, c - devices that only its project claims at t)  <=  u

and the same for the cores and the memory that go with the devices. Maintenance leaves room for nothing. For
the present, all claims count. For the begin of a later booking, only work that cannot be evicted counts:
non-preemptible work, unless its maximum runtime is over by then.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pliant.model.booking import Booking, Stage
from pliant.model.machine import Placement, Share
from pliant.model.quantity import GPU
from pliant.model.workload import Task, TaskKey, TaskPhase, Workload
from pliant.sched.world.claims import KEPT, Claims
from pliant.sched.world.nodes import Device, NodeState

Slack = tuple[int, int, int, int]
"""Devices, millicores, bytes and (for maintenance) tasks that are left; below 0: so much is lacking."""


class Kept(NamedTuple):
    """What one booking keeps of one node."""

    booking: Booking
    gpus: int
    cpu: int
    memory: int


class Books:
    """The bookings of one cycle. Placeholders claim what is kept, except while it is opened()."""

    def __init__(self, world: Claims, now: int, bookings: Iterable[Booking]) -> None:
        self._world = world
        self._now = now
        self._of: dict[str, list[Kept]] = {}  # by node
        self._active: dict[str, dict[str, None]] = {}  # project -> nodes; '' is maintenance
        self._open: set[str] = set()  # projects that may use what is kept for them just now
        self._keys: dict[tuple[str, str], TaskKey] = {}  # (node, project) -> its placeholder
        for booking in sorted(bookings, key=lambda it: (it.start, it.id)):
            known = booking.maintenance or booking.project in world.projects
            if booking.stage_at(now) is Stage.ENDED or not known:
                continue
            for name, count in booking.places:
                node = world.nodes.get(name)
                if node is None:
                    continue
                self._of.setdefault(name, []).append(kept(booking, node, count))
                if booking.covers(now, now):
                    self._active.setdefault(booking.project, {})[name] = None

    def __bool__(self) -> bool:
        return bool(self._of)

    # ------------------------------------------------------------------ how much is left
    def slack(self, node: NodeState, at: int, lasting: bool = False) -> Slack:
        """What is left of a node at an instant, now or later, if each project has what it booked.

        `lasting`: for the present, too, only work that stays counts.
        """
        world, later = self._world, lasting or at > self._now
        users: dict[str, set[str]] = {}  # device -> projects
        cpu, memory, tasks = node.row.cpu, node.row.memory, 0
        own: dict[str, list[int]] = {}  # project -> devices that it alone claims, millicores, bytes
        for key in node.tasks:
            claim = world.claim_of(key)
            if claim is None or claim.node != node.row.name or key[0] == KEPT:
                continue
            row = world.workloads.get(key[0])
            if later and (row is None or not self.stays(world.tasks[key], row, claim, at)):
                continue
            tasks += 1
            cpu, memory = cpu - claim.cpu, memory - claim.memory
            project = row.project if row is not None else ""
            mine = own.setdefault(project, [0, 0, 0])
            mine[1] += claim.cpu
            mine[2] += claim.memory
            for uuid in claim.uuids:
                if uuid in node.devices and not node.devices[uuid].gpu.foreign:
                    users.setdefault(uuid, set()).add(project)
        for projects in users.values():
            if len(projects) == 1:
                own[next(iter(projects))][0] += 1
        gpus, closed = node.usable - len(users), False
        booked: dict[str, list[int]] = {}
        for it in self._of.get(node.row.name, ()):
            if it.booking.covers(at, self._now):
                if it.booking.maintenance:
                    closed = True
                else:
                    sums = booked.setdefault(it.booking.project, [0, 0, 0])
                    for at_, more in enumerate((it.gpus, it.cpu, it.memory)):
                        sums[at_] += more
        if closed:
            return gpus - node.usable, cpu - node.row.cpu, memory - node.row.memory, -tasks
        left = [gpus, cpu, memory]
        for project, sums in booked.items():
            for at_, used in enumerate(own.get(project, (0, 0, 0))):
                left[at_] -= max(0, sums[at_] - used)
        return left[0], left[1], left[2], 0

    def stays(self, task: Task, row: Workload, claim: Placement, at: int) -> bool:
        """True if the task cannot be evicted and its maximum runtime is not over at that instant."""
        if row.preemptible:
            return False
        end = self.ends(task, row, claim)
        return end is None or end > at

    def ends(self, task: Task, row: Workload, claim: Placement) -> int | None:
        """When (ms) its claim is free again at the latest, by its maximum runtime; None if not known."""
        if row.max_runtime is None:
            return None
        goes_on = task.carries is not None and set(claim.uuids) <= set(task.carries.uuids)
        if task.phase is TaskPhase.RUNNING and task.started is not None and goes_on:
            return task.started + row.max_runtime
        node = self._world.nodes.get(claim.node)
        late = node is None or any(
            device.promised for uuid in claim.uuids if (device := node.devices.get(uuid)) is not None
        )
        return None if late else self._now + row.max_runtime

    # ------------------------------------------------------------------ who may claim
    def admits(self, key: TaskKey, place: Placement) -> bool:
        """True if no booking is short of more with this claim than without it."""
        world, node = self._world, self._world.nodes.get(place.node)
        if node is None or place.node not in self._of:
            return True
        times = [self._now]
        row = world.workloads.get(key[0])
        if row is not None and not row.preemptible:
            begins = (it.booking.start for it in self._of[place.node])
            times += sorted({at for at in begins if at > self._now})
        before = [self.slack(node, at) for at in times]
        mark = world.checkpoint()
        world.claim(key, place)
        after = [self.slack(node, at) for at in times]
        world.undo(mark)
        return not any(_worse(*it) for it in zip(before, after, strict=True))

    def fills(self, key: TaskKey, project: str) -> bool:
        """True if the task uses what is booked for its project: a chunk of another may not take it."""
        row, claim = self._world.workloads.get(key[0]), self._world.claim_of(key)
        if row is None or claim is None or row.project == project or not claim.shares:
            return False
        if claim.node not in self._active.get(row.project, ()):
            return False
        booked = sum(
            it.gpus
            for it in self._of[claim.node]
            if it.booking.project == row.project and it.booking.covers(self._now, self._now)
        )
        # The search takes an elastic task device by device, and asks again for each.
        taken = 1 if row.group(self._world.tasks[key].group).elastic else len(claim.shares)
        return self._used(self._world.nodes[claim.node], row.project) - taken < booked

    def _used(self, node: NodeState, project: str) -> int:
        return len(self._own(node, project))

    def _own(self, node: NodeState, project: str) -> list[str]:
        """Devices of a node that only this project claims."""
        users: dict[str, set[str]] = {}
        for key in node.tasks:
            claim, row = self._world.claim_of(key), self._world.workloads.get(key[0])
            if claim is not None and claim.node == node.row.name and row is not None:
                for uuid in claim.uuids:
                    users.setdefault(uuid, set()).add(row.project)
        return [uuid for uuid, projects in users.items() if projects == {project}]

    def sort(self, workload: Workload) -> tuple[object, ...]:
        """Equal for workloads that may claim the same places."""
        return workload.project, workload.preemptible, workload.max_runtime

    # ------------------------------------------------------------------ placeholders
    @contextmanager
    def opened(self, project: str) -> Iterator[None]:
        """Within this context what is kept for a project is free."""
        if project in self._open or project not in self._active:
            yield
            return
        self._open.add(project)
        self._lift(project)
        yield
        self._open.discard(project)
        self._hold(project)

    def hold(self) -> None:
        """Keep free what is booked and not used."""
        for project in self._active:
            self._hold(project)

    def lift(self) -> None:
        """Release all placeholders, at the end of the cycle."""
        for project in self._active:
            self._lift(project)

    def _lift(self, project: str) -> None:
        for name in self._active[project]:
            if (key := self._keys.get((name, project))) is not None:
                self._world.claim(key, None)

    def _hold(self, project: str) -> None:
        self._lift(project)
        for name in self._active[project]:
            node = self._world.nodes[name]
            place = self._missing(node, project)
            if place is None:
                continue
            key = self._keys.get((name, project))
            if key is None:
                self._keys[name, project] = self._world.keep_free(place)
            else:
                self._world.claim(key, place)

    def _missing(self, node: NodeState, project: str) -> Placement | None:
        """The free part of a project's unused bookings on a node; for maintenance all that is free."""
        free = [device.whole() for device in node.devices.values() if device.free]
        rests: list[Share] = []
        gpus, cpu, memory = len(free), node.free_cpu, node.free_memory
        if project:
            mine = [
                it
                for it in self._of[node.row.name]
                if it.booking.project == project and it.booking.covers(self._now, self._now)
            ]
            claims = [
                claim
                for key in node.tasks
                if (claim := self._world.claim_of(key)) is not None
                and claim.node == node.row.name
                and (row := self._world.workloads.get(key[0])) is not None
                and row.project == project
            ]
            booked, own = sum(it.gpus for it in mine), self._own(node, project)
            gpus = min(gpus, max(0, booked - len(own)))
            rests = [rest for uuid in own if (rest := _rest(node.devices[uuid])) is not None]
            rests = rests[: max(0, booked - len(own) + len(rests))]
            cpu = min(cpu, max(0, sum(it.cpu for it in mine) - sum(claim.cpu for claim in claims)))
            memory = min(memory, max(0, sum(it.memory for it in mine) - sum(it.memory for it in claims)))
        if not (gpus or rests or cpu > 0 or memory > 0):
            return None
        return Placement(node.row.name, (*free[:gpus], *rests), max(0, cpu), max(0, memory))

    # ------------------------------------------------------------------ looking
    def short(self) -> list[str]:
        """Nodes on which some booking that has begun lacks something, by name."""
        names = dict.fromkeys(name for names in self._active.values() for name in names)
        return sorted(name for name in names if min(self.slack(self._world.nodes[name], self._now)) < 0)

    def active_on(self, name: str) -> list[Booking]:
        """The bookings that have begun on a node."""
        return [it.booking for it in self._of.get(name, ()) if it.booking.covers(self._now, self._now)]

    def blocking(self, row: Workload, name: str) -> Booking | None:
        """The booking that keeps a workload off a node's free part: one that has begun, else the first."""
        mine = [it.booking for it in self._of.get(name, ()) if it.booking.project != row.project]
        return next((it for it in mine if it.covers(self._now, self._now)), mine[0] if mine else None)

    def wakes(self) -> Iterator[int]:
        """When (ms) bookings begin and end next."""
        for found in self._of.values():
            for it in found:
                if (at := it.booking.changes_at(self._now)) is not None:
                    yield at


def _rest(device: Device) -> Share | None:
    """What is unclaimed of a device that is claimed in part."""
    if not 0 < device.claimed < GPU:
        return None
    owner = next(iter(device.claimed_by), "")
    return Share(device.gpu.uuid, GPU - device.claimed, device.gpu.memory - device.claimed_memory, owner)


def kept(booking: Booking, node: NodeState, count: int) -> Kept:
    """What a booking of `count` devices keeps: these devices with their part of cores and memory."""
    size = max(1, node.usable)
    return Kept(booking, count, node.row.cpu * count // size, node.row.memory * count // size)


def _worse(before: Slack, after: Slack) -> bool:
    return any(now < 0 and now < was for was, now in zip(before, after, strict=True))


def room(world: Claims, now: int, booking: Booking, name: str) -> int:
    """The most devices of a node that a new booking may have without making the node short at any time.

    For maintenance: 1 if the node is available, else 0.
    """
    node = world.nodes.get(name)
    others = overlapping(world, now, booking, name)
    if node is None or any(booking.maintenance or it.maintenance for it in others):
        return 0
    for count in range(1 if booking.maintenance else node.usable, 0, -1):
        books = Books(world, now, [*world.bookings.values(), booking_on(booking, name, count)])
        begins = (it.start for it in world.bookings.values())
        times = {max(now, booking.start), *(at for at in begins if booking.start < at < booking.end)}
        if all(min(books.slack(node, at, lasting=True)) >= 0 for at in times if at >= now):
            return count
    return 0


def overlapping(world: Claims, now: int, booking: Booking, name: str) -> list[Booking]:
    """The bookings of a node in the world that overlap this one in time and have not ended."""
    return [
        it
        for it in sorted(world.bookings.values(), key=lambda it: (it.start, it.id))
        if it.start < booking.end
        and booking.start < it.end
        and it.stage_at(now) is not Stage.ENDED
        and any(place[0] == name for place in it.places)
    ]


def booking_on(booking: Booking, name: str, count: int) -> Booking:
    """The same on one node alone."""
    return Booking(booking.id, booking.name, booking.start, booking.end, ((name, count),), booking.project)
