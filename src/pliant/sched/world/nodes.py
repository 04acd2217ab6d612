"""Nodes and devices with what is claimed, carried and held on each.

All numbers are kept incrementally. `held` counts each task once, with the larger of what it claims and what
it carries: a device whose held is within its size can start everything that claims it at once.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from pliant.model.affinity import Effect
from pliant.model.machine import NODE_TYPE, Gpu, Node, Placement, Share, larger
from pliant.model.quantity import GPU
from pliant.model.workload import TaskKey

NOBODY: dict[str, int] = {}
ALL = {"": GPU}
"""The owners of a free device, and of one that one task has as a whole: shared by devices, never changed."""


class Device:
    """One GPU with sums over tasks, in thousandths of it and in bytes of its memory."""

    __slots__ = (
        "_whole", "carried", "carried_memory", "claimed", "claimed_by", "claimed_memory", "gpu", "held",
        "held_by", "held_memory", "stamp", "tasks",
    )  # fmt: skip

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._whole: Share | None = None  # made when first asked for
        self.claimed = self.claimed_memory = 0
        self.carried = self.carried_memory = 0
        self.held = self.held_memory = 0
        self.claimed_by: dict[str, int] = NOBODY  # owner of shares -> thousandths; one at most
        self.held_by: dict[str, int] = NOBODY
        self.tasks: dict[TaskKey, None] = {}  # that claim or carry any of it
        self.stamp = 0  # changes whenever one of them claims or carries something else of it

    def whole(self) -> Share:
        """The share of a task that takes all of it."""
        if self._whole is None:
            self._whole = Share(self.gpu.uuid, GPU, self.gpu.memory)
        return self._whole

    def is_whole(self, share: Share) -> bool:
        """True if the share is that of whole()."""
        return share.portion == GPU and share.memory == self.gpu.memory and not share.owner

    @property
    def releasing(self) -> int:
        """Thousandths that are carried but no longer claimed."""
        return self.held - self.claimed

    @property
    def promised(self) -> int:
        """Thousandths that are claimed but still carried by others."""
        return max(0, self.held - GPU)

    @property
    def free(self) -> bool:
        """True if none of it is claimed."""
        return not (self.claimed or self.claimed_memory or self.gpu.foreign)

    @property
    def idle(self) -> bool:
        """True if none of it is claimed or carried."""
        return not (self.held or self.held_memory or self.gpu.foreign)

    def others(self, share: Share) -> int:
        """Thousandths that other owners claim."""
        return self.claimed - self.claimed_by.get(share.owner, 0)

    def room(self, share: Share) -> bool:
        """True if so much of it is unclaimed, with no other owner's share beside it."""
        return self.takes(share.portion, share.memory, share.owner)

    def takes(self, portion: int, memory: int, owner: str) -> bool:
        """room() for thousandths and bytes of an owner."""
        return (
            self.claimed + portion <= GPU
            and self.claimed_memory + memory <= self.gpu.memory
            and not self.gpu.foreign
            and (not self.claimed or self.claimed == self.claimed_by.get(owner, 0))
        )

    def room_now(self, share: Share) -> bool:
        """True if so much of it is neither claimed nor carried, and none of it by another owner."""
        return self.takes_now(share.portion, share.memory, share.owner)

    def takes_now(self, portion: int, memory: int, owner: str) -> bool:
        """room_now() for thousandths and bytes of an owner."""
        return (
            self.held + portion <= GPU
            and self.held_memory + memory <= self.gpu.memory
            and not self.gpu.foreign
            and (not self.held or self.held == self.held_by.get(owner, 0))
        )

    def fill(self, key: TaskKey | None) -> None:
        """Set the one task that claims all of it, if no other claims or carries any; None: no task."""
        self.stamp += 1
        self.claimed = self.held = 0 if key is None else GPU
        self.claimed_memory = self.held_memory = 0 if key is None else self.gpu.memory
        self.claimed_by = self.held_by = NOBODY if key is None else ALL
        self.tasks = {} if key is None else {key: None}

    def numbers(self) -> tuple[object, ...]:
        return (
            self.claimed, self.claimed_memory, self.carried, self.carried_memory, self.held, self.held_memory,
            *sorted(self.claimed_by.items()), *sorted(self.held_by.items()),
        )  # fmt: skip


class Look(NamedTuple):
    """What decides the place of a node in the order of nodes, besides its spare cores or memory."""

    free: int  # unclaimed devices
    usable: int  # devices in all
    room: int  # unclaimed thousandths of all its devices together
    rests: tuple[int, ...]  # unclaimed thousandths of each device claimed in part, sorted
    capacity: int  # all its millicores, or all its bytes of memory
    by_memory: bool  # measured by what work asks for, less memory is left than cores
    kind: str  # its node type; empty: none


class Listener:
    """An index over nodes that is updated when one of them changes."""

    __slots__ = ("late", "room")

    def __init__(self) -> None:
        self.room = 0  # unclaimed thousandths of all devices of its nodes together
        self.late: dict[NodeState, None] = {}  # nodes that changed; they report it in tell_classes()

    def remove(self, node: "NodeState") -> None:
        """Remove a node from the index."""
        raise NotImplementedError

    def moved(self, node: "NodeState", was: "Look", spare: int, idle: int) -> None:
        """Update a node that changed; `was`, `spare` and `idle` are its former values."""
        raise NotImplementedError


class NodeState:
    """A node row with everything that sits on it."""

    __slots__ = (
        "carried_cpu", "carried_memory", "claimants", "claimed_cpu", "claimed_memory",
        "classes", "devices", "free", "held_cpu", "held_memory", "idle", "kind", "late", "look", "open",
        "partly", "pool", "rates", "room", "row", "spare", "stamp", "tainted", "tasks", "told_idle", "usable",
    )  # fmt: skip

    def __init__(self, row: Node, pool: str) -> None:
        self.row = row
        self.pool = pool
        self.devices = {gpu.uuid: Device(gpu) for gpu in sorted(row.gpus, key=attrgetter("index"))}
        self.usable = len([it for it in self.devices.values() if not it.gpu.foreign])
        self.free = self.usable  # unclaimed devices
        self.idle = self.usable  # devices that are neither claimed nor carried
        self.room = self.usable * GPU  # unclaimed thousandths of all its devices together
        self.partly = 0  # devices claimed in part: those that another fraction may join
        self.claimed_cpu = self.claimed_memory = 0
        self.carried_cpu = self.carried_memory = 0
        self.held_cpu = self.held_memory = 0
        self.tasks: dict[TaskKey, None] = {}  # that claim or carry anything here
        self.stamp = 0  # changes whenever anything here does
        self.claimants = 0  # tasks that claim anything here
        self.open = row.ready and not row.draining  # takes new claims
        self.tainted = any(it.effect is not Effect.PREFER_NO_SCHEDULE for it in row.taints)  # not from all
        self.classes: list[Listener] = []
        self.kind = row.label(NODE_TYPE) or ""
        self.rates = (0, 0)  # see weigh()
        # What its classes know of it, and whether that is out of date: see tell_classes().
        self.look, self.spare = self.looks_now()
        self.told_idle = self.idle
        self.late = False

    def weigh(self, cpu: int, memory: int) -> None:
        """Set how many millicores and bytes work asks for per GPU."""
        if self.rates != (cpu, memory):
            self.rates = cpu, memory
            self._changed(self.room)

    def looks_now(self) -> tuple[Look, int]:
        """(its Look now, its unclaimed cores, or memory if Look.by_memory)."""
        row, (by_memory, spare) = self.row, self.scarcer(0, 0)
        rests = tuple(sorted(self._rests())) if self.partly else ()
        capacity = row.memory if by_memory else row.cpu
        return Look(self.free, self.usable, self.room, rests, capacity, by_memory, self.kind), spare

    def scarcer(self, cores: int, bytes_: int) -> tuple[bool, int]:
        """(Look.by_memory, unclaimed cores or memory) once so much more of both is claimed."""
        (cpu, memory), free_cpu, free_memory = self.rates, self.free_cpu - cores, self.free_memory - bytes_
        by_memory = free_memory * cpu < free_cpu * memory
        return by_memory, free_memory if by_memory else free_cpu

    def _rests(self) -> Iterator[int]:
        """The unclaimed thousandths of each device that is claimed in part."""
        for it in self.devices.values():
            if 0 < it.claimed < GPU and not it.gpu.foreign:
                yield GPU - it.claimed

    @property
    def free_cpu(self) -> int:
        return self.row.cpu - self.claimed_cpu

    @property
    def free_memory(self) -> int:
        return self.row.memory - self.claimed_memory

    @property
    def suspect(self) -> bool:
        """True if some claim on it may have become void."""
        leaves = any(taint.effect is Effect.NO_EXECUTE for taint in self.row.taints)
        return leaves or not self.open or self.usable < len(self.devices)

    def account(self, key: TaskKey, claim: Placement | None, carry: Placement | None, sign: int) -> bool:
        """Add (sign 1) or remove (-1) one task's claim and carry, as far as they are on this node.

        False if some device of theirs is unknown; such a part is left out.
        """
        self.stamp += 1
        before = self.room
        place = claim or carry
        if place is None or not (claim is carry or claim is None or carry is None or claim == carry):
            known = self._add(key, claim, carry, sign)
        else:
            known = self._shift(key, place, sign, claim is not None, carry is not None, True)
        self._changed(before)
        return known

    def exchange(
        self, key: TaskKey, old: Placement | None, new: Placement | None, carry: Placement | None
    ) -> tuple[bool, bool]:
        """Replace a task's claim; returns whether all devices (before, after) are known."""
        self.stamp += 1
        before = self.room
        only = old or new
        same = carry is None or carry is only or carry == only
        if same and only is not None and (old is None or new is None):
            known = self._shift(key, only, -1 if new is None else 1, True, False, carry is None)
            self._changed(before)
            return known or (carry is None and old is None), known or (carry is None and new is None)
        both = self._add(key, old, carry, -1), self._add(key, new, carry, 1)
        self._changed(before)
        return both

    def take(self, key: TaskKey, devices: Iterable[Device]) -> None:
        """Claim whole devices that no task has, for a task that has nothing. took() updates the sums."""
        self.tasks[key] = None
        for device in devices:
            device.fill(key)

    def give(self, key: TaskKey, place: Placement) -> bool:
        """Undo take(); False, with nothing changed, if the task is not alone there."""
        devices = self.held_alone(place)
        if devices is None:
            return False
        del self.tasks[key]
        for device in devices:
            device.fill(None)
        return True

    def took(self, tasks: int, devices: int, cpu: int, memory: int) -> None:
        """Count what so many tasks took together; negative: what they gave back."""
        self.stamp += 1
        self.claimants += tasks
        self.claimed_cpu += cpu
        self.held_cpu += cpu
        self.claimed_memory += memory
        self.held_memory += memory
        self.free -= devices
        self.idle -= devices
        self.room -= devices * GPU
        self._changed(self.room + devices * GPU)

    def held_alone(self, place: Placement) -> list[Device] | None:
        """The devices of a place, all whole, if only its task claims them and none carries any; else None."""
        found: list[Device] = []
        for share in place.shares:
            device = self.devices.get(share.gpu)
            if device is None or device.carried or len(device.tasks) != 1:
                return None
            if not share.portion == GPU == device.held == device.claimed:
                return None
            found.append(device)
        return found

    def _shift(
        self, key: TaskKey, place: Placement, sign: int, claimed: bool, carried: bool, held: bool
    ) -> bool:
        """Add or remove one place as what a task claims, carries and (the larger of both) holds."""
        cpu, memory = sign * place.cpu, sign * place.memory
        if claimed:
            self.claimants += sign
            self.claimed_cpu += cpu
            self.claimed_memory += memory
        if carried:
            self.carried_cpu += cpu
            self.carried_memory += memory
        if held:
            self.held_cpu += cpu
            self.held_memory += memory
            if sign > 0:
                self.tasks[key] = None
            else:
                self.tasks.pop(key, None)
        known, devices, alone = True, self.devices, 0 if sign > 0 else 1
        for share in place.shares:
            device = devices.get(share.gpu)
            if device is None:
                known = False
                continue
            device.stamp += 1
            portion, memory = sign * share.portion, sign * share.memory
            ours = not device.gpu.foreign
            if carried:
                device.carried += portion
                device.carried_memory += memory
            if claimed and held and len(device.tasks) == alone and device.is_whole(share):
                device.fill(key if sign > 0 else None)
                if ours:
                    self.room -= portion
                    self.free -= sign
                    self.idle -= sign
                continue
            if claimed:
                was, other = device.claimed, device.claimed_memory
                now, more = was + portion, other + memory
                device.claimed, device.claimed_memory = now, more
                device.claimed_by = _shared(device.claimed_by, share.owner, was, now)
                if share.portion != GPU or (was and now):
                    self.partly += (0 < now < GPU) - (0 < was < GPU)
                if ours:
                    self.room -= portion
                    self.free += (not (now or more)) - (not (was or other))
            if held:
                if sign > 0:
                    device.tasks[key] = None
                else:
                    device.tasks.pop(key, None)
                was, other = device.held, device.held_memory
                now, more = was + portion, other + memory
                device.held, device.held_memory = now, more
                device.held_by = _shared(device.held_by, share.owner, was, now)
                self.idle += ((not (now or more)) - (not (was or other))) if ours else 0
        return known

    def _add(self, key: TaskKey, claim: Placement | None, carry: Placement | None, sign: int) -> bool:
        """Add or remove what a task claims and what else it carries."""
        known = claim is None or self._shift(key, claim, sign, True, False, False)
        known = (carry is None or self._shift(key, carry, sign, False, True, False)) and known
        held = larger(claim, carry)
        return (held is None or self._shift(key, held, sign, False, False, True)) and known

    def _changed(self, room: int) -> None:
        """Tell the classes of a change here; `room`: unclaimed thousandths before it."""
        more, late, self.late = self.room - room, self.late, True
        for cls in self.classes:
            cls.room += more
            if not late:
                cls.late[self] = None

    def tell_classes(self) -> None:
        """Update the classes with its look now: once for many changes, when one of them is read."""
        if not self.late:
            return
        self.late = False
        was, spare, idle = self.look, self.spare, self.told_idle
        self.look, self.spare = self.looks_now()
        self.told_idle = self.idle
        if (was, spare, idle) != (self.look, self.spare, self.idle):
            for cls in self.classes:
                cls.moved(self, was, spare, idle)

    def knows(self, placement: Placement) -> bool:
        return all(share.gpu in self.devices for share in placement.shares)

    def numbers(self) -> tuple[object, ...]:
        """Everything derived, for comparing two worlds."""
        return (
            self.pool, self.free, self.idle, self.room, self.partly, self.claimants, self.claimed_cpu,
            self.claimed_memory, self.carried_cpu, self.carried_memory, self.held_cpu, self.held_memory,
            tuple(sorted(self.tasks)), tuple((uuid, one.numbers()) for uuid, one in self.devices.items()),
        )  # fmt: skip


def _shared(sums: dict[str, int], owner: str, was: int, now: int) -> dict[str, int]:
    """Owner -> thousandths of a device after the part of one owner changed; owners with 0 are left out."""
    if not now:
        return NOBODY
    if not was or (len(sums) == 1 and owner in sums):  # it is all the owner's
        return ALL if now == GPU and not owner else {owner: now}
    found = sums | {owner: sums.get(owner, 0) + now - was}
    if not found[owner]:
        del found[owner]
    return found
