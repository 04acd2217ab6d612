"""Vacate: clears what is in the way of a booking that has begun: moves it if possible, else stops it.

The steps, from the least to the most disruptive: give back bonus, move work, give back wanted portions, stop
cores. Non-preemptible work stays until its maximum runtime is over: it was admitted to the devices because of
that.
"""

from dataclasses import replace

from pliant.model.machine import Placement
from pliant.model.quantity import GPU
from pliant.model.reason.change import MadeWay
from pliant.model.workload import TaskGroup, TaskKey, Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.placement import fit
from pliant.sched.placement.booked import Books, Slack
from pliant.sched.placement.staying import given_back
from pliant.sched.plan import Decision, Verb
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.shares.naming import queue_named
from pliant.sched.world.chunks import Part, Step
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import given_back as step_down
from pliant.sched.world.portions import without
from pliant.sched.world.subgroups import core_met

Before = dict[str, dict[TaskKey, Placement | None]]
"""Workload -> what its tasks claimed before this action."""


def vacate(cycle: Cycle, books: Books) -> None:
    for name in books.short():
        node = cycle.world.nodes[name]
        in_way = _in_the_way(cycle, books, node)
        before: Before = {
            wid: {key: cycle.world.claim_of(key) for key in cycle.world.keys_of(wid)} for wid in in_way
        }
        _Vacating(cycle, books, node, before).run()
        for wid in in_way:
            _record(cycle, books, name, wid, before[wid])
    for instant in books.wakes():
        cycle.wake_at(instant)
    books.hold()


def _in_the_way(cycle: Cycle, books: Books, node: NodeState) -> list[str]:
    """Workloads on a node that may be removed and whose removal helps; the least valuable first.

    Those that share a device count, too: it becomes free only if all of them leave.
    """
    world = cycle.world
    found: dict[str, Workload] = {}
    lacks = books.slack(node, cycle.now)
    for key in sorted(node.tasks):
        row, claim = world.workloads.get(key[0]), world.claim_of(key)
        if row is None or claim is None or claim.node != node.row.name or not cycle.placeable(key[0]):
            continue
        if not row.preemptible:
            end = books.ends(world.tasks[key], row, claim)
            if end is None or end > cycle.now:
                cycle.wake_at(end or 0)
                continue
        mark = world.checkpoint()
        world.claim(key, None)
        if _less(lacks, books.slack(node, cycle.now)) or _beside_others(books, node, row, claim):
            found[row.id] = row
        world.undo(mark)
    youngest = cycle.settings.victims == "youngest"
    prices = PriceCache(cycle.shares, world, node.pool, youngest=youngest, moves=False)
    return sorted(found, key=lambda wid: (not found[wid].background, prices.rank(wid)))


def _beside_others(books: Books, node: NodeState, row: Workload, claim: Placement) -> bool:
    """True if others claim parts of its devices, and no active booking on the node is of its project."""
    if any(it.project == row.project for it in books.active_on(node.row.name)):
        return False
    return any(0 < share.portion < GPU and node.devices[share.gpu].claimed for share in claim.shares)


def _less(before: Slack, after: Slack) -> bool:
    """True if some resource that is short is less short after."""
    return any(was < 0 and was < now for was, now in zip(before, after, strict=True))


class _Vacating:
    """One node that is short."""

    def __init__(self, cycle: Cycle, books: Books, node: NodeState, before: Before) -> None:
        """`before`: the workloads that are in the way, the least valuable first."""
        self._cycle = cycle
        self._world = cycle.world
        self._books = books
        self._node = node
        self._before = before
        self._in_way = list(before)

    def run(self) -> None:
        self._give_back(Step.BONUS)
        mark = self._world.checkpoint()
        for wid in self._in_way:
            if self._lacking() and self._here(wid):
                self._move(wid)
        if not self._lacking():
            for wid in reversed(self._in_way):
                self._restore(wid)
            return
        self._world.undo(mark)  # not all can stay: the most valuable are moved first
        for wid in reversed(self._in_way):
            self._move(wid)
        self._give_back(Step.WANTED)
        gone: dict[str, dict[TaskKey, Placement | None]] = {}
        for wid in self._in_way:
            if self._lacking() and self._here(wid):
                gone[wid] = {key: self._world.claim_of(key) for key in self._world.keys_of(wid)}
                for key in gone[wid]:
                    self._world.claim(key, None)
        for wid in reversed(self._in_way):
            self._restore(wid)  # what was not needed after all
        for wid in reversed(gone):  # into the room that the restored ones left elsewhere
            if not any(map(self._world.claim_of, gone[wid])):
                self._move(wid, gone[wid])

    def _lacking(self) -> bool:
        return min(self._books.slack(self._node, self._cycle.now)) < 0

    def _here(self, wid: str) -> list[TaskKey]:
        name = self._node.row.name
        return [
            key
            for key in self._world.keys_of(wid)
            if (claim := self._world.claim_of(key)) is not None and claim.node == name
        ]

    def _helps(self, wid: str) -> bool:
        """True if the node is less short without it."""
        before, mark = self._books.slack(self._node, self._cycle.now), self._world.checkpoint()
        for key in self._here(wid):
            self._world.claim(key, None)
        helps = _less(before, self._books.slack(self._node, self._cycle.now))
        self._world.undo(mark)
        return helps

    # ------------------------------------------------------------------ portions
    def _give_back(self, step: Step) -> None:
        """Give back portions above the requests (BONUS) or above the cores (WANTED), while that helps."""
        for wid in self._in_way:
            row = self._world.workloads[wid]
            for group in reversed(row.groups):
                while self._lacking() and self._helps(wid) and self._less_of(row, group, step):
                    pass

    def _less_of(self, row: Workload, group: TaskGroup, step: Step) -> bool:
        """Take one portion of a group; False if there is none."""
        world = self._world
        mine = [key for key in self._here(row.id) if world.tasks[key].group == group.name]
        if not mine:
            return False
        key = mine[-1]
        claim = world.claim_of(key)
        assert claim is not None
        if group.elastic:
            held = len(claim.shares)
            floor = group.request.devices if step is Step.BONUS and not row.background else 1
            if held <= floor:
                return False
            gone = step_down(row, claim, claim.shares[-1].gpu, held, floor)
            world.claim(key, without(claim, gone))
            return True
        have = world.have(row.id)
        least = group.wanted if step is Step.BONUS and not row.background else group.min
        if have.get(group.name, 0) <= least:
            return False
        if not core_met(row, {**have, group.name: have[group.name] - 1}):
            return False
        world.claim(key, None)
        return True

    # ------------------------------------------------------------------ moves
    def _move(self, wid: str, was: dict[TaskKey, Placement | None] | None = None) -> bool:
        """Move what it has here elsewhere; False, with nothing changed, if impossible.

        `was`: the former claims of a workload that has none any more.
        """
        world, row = self._world, self._world.workloads[wid]
        keys = self._here(wid) if was is None else [key for key, claim in was.items() if claim is not None]
        claims = {key: world.claim_of(key) if was is None else was[key] for key in keys}
        pool = self._node.pool
        cls, before, mark = self._cycle.nodes_for(row, pool), world.gpu_of(wid), world.checkpoint()
        if was is not None:
            before = sum(claim.gpu for claim in claims.values() if claim is not None)
        for key in keys:
            world.claim(key, None)
        parts: list[Part] = []
        for key in keys:
            claim, group = claims[key], row.group(world.tasks[key].group)
            devices = len(claim.shares) if claim is not None and group.elastic else group.request.devices
            parts.append(Part(key, replace(group.request, devices=devices)))
        with self._books.opened(row.project):
            placed = bool(parts) and all(self._seated(row, part, pool) for part in fit.by_size(parts))
        if not placed or world.gpu_of(wid) > before or not cls.nodes:
            world.undo(mark)
            return False
        return True

    def _seated(self, row: Workload, part: Part, pool: str) -> bool:
        """Place one task elsewhere; an elastic one with as many devices as there are, if not all."""
        least = 1 if row.group(self._world.tasks[part.task].group).elastic else part.request.devices
        for devices in range(part.request.devices, least - 1, -1):
            part = replace(part, request=replace(part.request, devices=devices))
            cls = self._cycle.nodes_for(row, pool)
            if fit.place_again(self._world, cls, part, self._cycle.pool(pool)):
                return True
        return False

    def _restore(self, wid: str) -> None:
        """Give back what it had, all of it or else task by task, as far as no booking is shorter then."""
        world = self._world
        keys = [key for key in self._before[wid] if world.claim_of(key) != self._before[wid][key]]
        whole = core_met(world.workloads[wid], world.have(wid))
        for chosen in [keys, *([key] for key in keys if whole)]:
            now = [key for key in chosen if world.claim_of(key) != self._before[wid][key]]
            mark = world.checkpoint()
            for key in now:
                world.claim(key, None)
            with self._books.opened(world.workloads[wid].project):
                if not given_back(world, [(key, self._before[wid][key]) for key in now]):
                    world.undo(mark)


def _record(cycle: Cycle, books: Books, name: str, wid: str, before: dict[TaskKey, Placement | None]) -> None:
    """The decision about a workload that was in the way; none if it has what it had."""
    world = cycle.world
    changed = {key: claim for key, claim in before.items() if world.claim_of(key) != claim}
    if not changed:
        return
    had, has = sum(claim.gpu for claim in before.values() if claim is not None), world.gpu_of(wid)
    pairs = [(old, world.claim_of(key)) for key, old in changed.items()]
    both = [(old, new) for old, new in pairs if old is not None and new is not None]
    moved = any(new.node != old.node or not set(new.uuids) <= set(old.uuids) for old, new in both)
    if not core_met(world.workloads[wid], world.have(wid)):
        verb = Verb.EVICT
    else:
        verb = Verb.MOVE if moved else Verb.SHRINK
    booking = next(iter(books.active_on(name)))
    project = None if booking.maintenance else queue_named(world.projects[booking.project])
    there = ", ".join(sorted({new.node for _, new in pairs if new is not None and new.node != name}))
    reason = MadeWay(had - has, name, there if verb is Verb.MOVE else "", project, booking.end)
    cycle.record(Decision(verb, "vacate", wid, tuple(key[1] for key in sorted(changed)), had, has, reason))
    if verb is Verb.EVICT:
        cycle.room_freed()
