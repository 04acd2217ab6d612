"""Derives intents from claims: what must start, stop or change so that tasks carry what they claim."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pliant.model.machine import Placement, Share
from pliant.model.quantity import GPU
from pliant.model.reason import ByOwner, Ended, Reason, Restarted
from pliant.model.workload import AttemptId, Task, TaskKey, TaskPhase, Workload
from pliant.sched.placement import eligibility
from pliant.sched.plan import PLACE, Decision, ResizeIntent, StartIntent, StopIntent
from pliant.sched.settings import Settings
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.nodes import Device
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import core_met

WAITING: Final = TaskPhase.WAITING  # as CORE of pliant.sched.world.chunks


class Outcome:
    """Everything of a plan that follows from claims."""

    def __init__(self) -> None:
        self.rows: dict[TaskKey, Task] = {}  # sorted once all is derived
        self.starts: list[StartIntent] = []
        self.stops: list[StopIntent] = []
        self.resizes: list[ResizeIntent] = []
        self.held_back: dict[str, TaskKey] = {}  # workload -> its task that waits for a release
        self.wakes: list[int] = []  # when (ms) more can start by itself
        self.apart: dict[str, TaskKey] = {}  # workload -> its task that waits for the rest of its gang


def differs(claim: Placement, carry: Placement) -> bool:
    """True if an attempt must end or change to carry this claim; CPU and memory alone restart nothing."""
    return claim.node != carry.node or claim.shares != carry.shares


def unconfirmed(workload: Workload, task: Task) -> Placement | None:
    """The placement that a running task was told to take and has not confirmed; None if nothing is open.

    It carries the old and the new shares until it confirms. Claimed devices that it does not carry were never
    ordered.
    """
    claims, carries = task.claims, task.carries
    if task.phase is not TaskPhase.RUNNING or claims is None or carries is None:
        return None
    if claims.node != carries.node:
        return None
    kept = tuple(share for share in claims.shares if share in carries.shares)
    if kept == carries.shares:
        same = claims.cpu == carries.cpu and claims.memory == carries.memory
        return None if same else replace(claims, shares=kept)
    live = workload.group(task.group).live_resize
    return replace(claims, shares=kept) if live and kept else None


class Coming:
    """What this plan starts or grows on one node: parts of each device, CPU and memory."""

    __slots__ = ("cpu", "memory", "shares")

    def __init__(self) -> None:
        self.shares: dict[str, tuple[int, int]] = {}  # device -> thousandths and bytes of it
        self.cpu = self.memory = 0

    def add(self, place: Placement, sign: int = 1) -> None:
        self.cpu += sign * place.cpu
        self.memory += sign * place.memory
        for share in place.shares:
            portion, memory = self.shares.get(share.gpu, (0, 0))
            self.shares[share.gpu] = portion + sign * share.portion, memory + sign * share.memory


Seat = tuple[TaskKey, Task, Placement]
"""A task that waits for its start, and where."""

NOTHING_COMES = Coming()
NO_SHARE = Share("", portion=0)


class Deriver:
    def __init__(self, world: World, now: int, settings: Settings, made: Sequence[Decision]) -> None:
        """`made`: the decisions of this cycle."""
        self._world = world
        self._now = now
        self._settings = settings
        self._made = made
        self._decisions: dict[str, int] = {}  # workload -> index of the latest decision about it
        self._places: dict[str, int] = {}  # workload -> index of the one that gave it its core
        for at, decision in enumerate(made):
            wid = decision.workload
            self._decisions[wid] = at
            if decision.verb is PLACE:
                self._places[wid] = at
        self._coming: dict[str, Coming] = {}  # by node
        self._roomy: dict[str, bool] = {}  # node -> True if its CPU and memory suffice for all tasks there
        self.outcome = Outcome()

    def run(self, changed: list[TaskKey]) -> Outcome:
        keys = sorted({*changed, *self._world.adrift}) if self._world.adrift else changed
        changed_now = set(changed)
        starting: dict[str, list[Seat]] = {}
        for key in keys:
            row, claim = self._world.tasks[key], self._world.claim_of(key)
            if row.phase is WAITING and claim is not None:
                starting.setdefault(row.workload, []).append((key, row, claim))
            elif row.phase is TaskPhase.RUNNING or row.phase is TaskPhase.ORDERED:
                if claim is None:
                    self._stop(row, self._why(row, None), None, row.resizes)
                    continue
                self._live(self._noted(key), key in changed_now)
            else:
                self._noted(key)
        for cause, _, wid in sorted(map(self._turn, starting)):
            waiting = starting[wid]
            key, row, claim = waiting[0]
            if len(waiting) == 1 and self._starts_alone(wid, key, row, claim, cause):
                continue
            self._start(wid, [key for key, _, _ in waiting])
            for key, _, _ in waiting:
                if key not in self.outcome.rows:
                    self._noted(key)
        rows = self.outcome.rows
        self.outcome.rows = {key: found for key in keys if (found := rows.get(key)) is not None}
        return self.outcome

    def _noted(self, key: TaskKey) -> Task:
        """The row of a task with its present claim; added to the outcome if the claim changed."""
        row, claim = self._row(key), self._world.claim_of(key)
        if row.claims != claim:
            row = self.outcome.rows[key] = replace(row, claims=claim)
        return row

    def _row(self, key: TaskKey) -> Task:
        return self.outcome.rows.get(key) or self._world.tasks[key]

    # ------------------------------------------------------------------ what lives
    def _live(self, row: Task, changed: bool) -> None:
        claim, carry = row.claims, row.carries
        assert carry is not None
        workload = self._world.workloads.get(row.workload)
        assert claim is not None
        if not differs(claim, carry):
            return
        keeps = claim.node == carry.node and set(carry.uuids) <= set(claim.uuids)
        if keeps and not self._free_now(row.key, claim):
            self.outcome.held_back[row.workload] = row.key
            return  # nothing is gained by stopping before the rest is there
        if workload is not None and claim.node == carry.node and workload.group(row.group).live_resize:
            now = claim if self._free_now(row.key, claim) else self._kept(claim, carry)
            if now.shares:
                if now.shares != carry.shares and (keeps or changed):
                    self._resize(row, now, carry)
                return
        resizes = row.resizes
        if keeps and workload is not None and self._is_bonus(workload, row, claim):
            since = self._now - self._settings.grow_window
            resizes = (*(at for at in resizes if at > since), self._now)
        self._stop(row, self._why(row, claim), claim, resizes)

    @staticmethod
    def _kept(claim: Placement, carry: Placement) -> Placement:
        """The part of its claim that an attempt carries already: it shrinks to it until the rest is free."""
        return replace(claim, shares=tuple(share for share in claim.shares if share in carry.shares))

    def _is_bonus(self, workload: Workload, row: Task, claim: Placement) -> bool:
        group = workload.group(row.group)
        return group.elastic and len(claim.shares) > group.request.devices

    def _stop(self, row: Task, reason: Reason, claims: Placement | None, resizes: tuple[int, ...]) -> None:
        self.outcome.rows[row.key] = row.stopping(claims, resizes)
        attempt = AttemptId(row.workload, row.name, row.attempt)
        self.outcome.stops.append(StopIntent(attempt, reason, self._decisions.get(row.workload, -1)))

    def _resize(self, row: Task, claim: Placement, carry: Placement) -> None:
        # Until the job has confirmed, it may sit on the old devices and on the new ones.
        shares = {share.gpu: share for share in (*carry.shares, *claim.shares)}
        devices = self._world.nodes[claim.node].devices
        union = replace(
            claim,
            shares=tuple(sorted(shares.values(), key=lambda share: devices[share.gpu].gpu.index)),
            cpu=max(claim.cpu, carry.cpu),
            memory=max(claim.memory, carry.memory),
        )
        self.outcome.rows[row.key] = replace(row, carries=union)
        added = replace(
            claim, shares=tuple(s for s in claim.shares if s not in carry.shares), cpu=0, memory=0
        )
        self._order(added)
        attempt = AttemptId(row.workload, row.name, row.attempt)
        self.outcome.resizes.append(ResizeIntent(attempt, claim, self._decisions.get(row.workload, -1)))

    def _order(self, place: Placement) -> None:
        coming = self._coming.get(place.node)
        if coming is None:
            coming = self._coming[place.node] = Coming()
        coming.add(place)

    def _why(self, row: Task, claim: Placement | None) -> Reason:
        at = self._decisions.get(row.workload)
        if at is not None:
            return self._decision(at).reason
        workload = self._world.workloads.get(row.workload)
        if claim is not None:
            return Restarted(claim.node, claim.gpu)
        if workload is not None and workload.phase.final:
            return Ended(workload.phase.value)
        return ByOwner(workload.desired.value if workload is not None else "Deleted")

    def _decision(self, at: int) -> Decision:
        return self._made[at]

    # ------------------------------------------------------------------ what starts
    def _start(self, wid: str, waiting: list[TaskKey]) -> None:
        """Start what can start; the core of a workload only together."""
        workload = self._world.workloads.get(wid)
        if workload is None or not workload_open(workload):
            return
        ready: list[Seat] = []
        keys = self._world.keys_of(wid)
        mine = set(waiting) if len(waiting) < len(keys) else None  # None: all that it has
        for key in keys:
            claim = self._world.claim_of(key) if mine is None or key in mine else None
            if claim is None:
                continue
            row = self._row(key)
            if row.retry_at is not None and row.retry_at > self._now:
                self.outcome.wakes.append(row.retry_at)
            elif self._free_now(key, claim) and eligibility.left(
                self._world, key, self._world.nodes[claim.node]
            ):
                ready.append((key, row, claim))
                self._order(claim)
            else:
                self.outcome.held_back.setdefault(wid, key)
        if not self._core_up(workload, [row for _, row, _ in ready]):
            if wid not in self.outcome.held_back:
                self.outcome.apart[wid] = waiting[0]
            for _, _, claim in ready:
                self._coming[claim.node].add(claim, -1)
            return
        cause = self._cause(wid)
        for key, row, claim in ready:
            ordered = self.outcome.rows[key] = row.ordered(claim)
            self.outcome.starts.append(StartIntent(ordered, claim, cause))

    def _starts_alone(self, wid: str, key: TaskKey, row: Task, claim: Placement, cause: int) -> bool:
        """Start the only task of a workload, the most frequent kind; False if it needs _start() instead."""
        world = self._world
        workload = world.workloads.get(wid)
        if (
            workload is None
            or row.retry_at is not None
            or len(groups := workload.groups) > 1
            or groups[0].min != 1
            or workload.subgroups
            or len(world.keys_of(wid)) > 1
            or world.demands(wid)
            or not workload_open(workload)
        ):
            return False
        if not self._its_own(claim):
            if not self._free_now(key, claim):
                return False
            self._order(claim)
        ordered = self.outcome.rows[key] = row.ordered(claim)
        self.outcome.starts.append(StartIntent(ordered, claim, cause))
        return True

    def _turn(self, wid: str) -> tuple[int, int, str]:
        """The sort key of a start where not all can start yet: the place given first, then the oldest."""
        workload, cause = self._world.workloads.get(wid), self._places.get(wid)
        if cause is None:
            cause = self._cause(wid)
        return cause, workload.serial if workload is not None else 0, wid

    def _cause(self, wid: str) -> int:
        """Index of the decision by which it starts; -1: decided in an earlier cycle."""
        return self._places.get(wid, self._decisions.get(wid, -1))

    def _core_up(self, workload: Workload, ready: list[Task]) -> bool:
        """True if these startable tasks, with those that run, are ordered or succeeded, make up the core."""
        up: dict[str, int] = {}
        for row in ready:
            up[row.group] = up.get(row.group, 0) + 1
        keys = self._world.keys_of(workload.id)
        for key in keys if len(ready) < len(keys) else ():
            row = self._row(key)  # those that can start still wait
            if row.phase in (TaskPhase.RUNNING, TaskPhase.ORDERED, TaskPhase.SUCCEEDED):
                up[row.group] = up.get(row.group, 0) + 1
        return core_met(workload, up)

    def _beside_others(self, device: Device, share: Share) -> bool:
        places = (self._world.tasks[key].carries for key in device.tasks)
        parts = (part for place in places if place is not None for part in place.shares)
        return any(part.gpu == share.gpu and part.owner != share.owner for part in parts)

    def _its_own(self, claim: Placement) -> bool:
        """True if no other task claims or carries its devices, and its node has room for all its tasks.

        Such a start needs no further check, for itself or for later starts.
        """
        node = self._world.nodes.get(claim.node)
        if node is None:
            return False
        roomy = self._roomy.get(claim.node)
        if roomy is None:
            row = node.row
            roomy = node.open and node.held_cpu <= row.cpu and node.held_memory <= row.memory
            self._roomy[claim.node] = roomy
        return roomy and node.held_alone(claim) is not None

    def _free_now(self, key: TaskKey, claim: Placement) -> bool:
        """True if others carry nothing of the claim, and nothing of it was ordered in this cycle."""
        node = self._world.nodes.get(claim.node)
        if node is None or (not node.open and self._world.tasks[key].carries is None):
            return False
        own = self._world.tasks[key].carries
        mine: dict[str, Share] = {}
        cpu, memory = node.carried_cpu, node.carried_memory
        if own is not None and own.node == claim.node:
            mine = {share.gpu: share for share in own.shares}
            cpu -= own.cpu
            memory -= own.memory
        coming = self._coming.get(claim.node, NOTHING_COMES)
        for share in claim.shares:
            device = node.devices.get(share.gpu)
            if device is None:
                return False
            portion, bytes_ = coming.shares.get(share.gpu, (0, 0))
            if device.carried or device.carried_memory:
                held = mine.get(share.gpu, NO_SHARE)
                portion += device.carried - held.portion
                bytes_ += device.carried_memory - held.memory
            if portion + share.portion > GPU or bytes_ + share.memory > device.gpu.memory:
                return False
            if device.held != device.held_by.get(share.owner, 0) and self._beside_others(device, share):
                return False
        return (not claim.cpu or cpu + coming.cpu + claim.cpu <= node.row.cpu) and (
            not claim.memory or memory + coming.memory + claim.memory <= node.row.memory
        )
