"""Finds what fits where by exhaustive search: the referee's own "could it have run?" for small worlds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from pliant.model.machine import DEFAULT_POOL, Node, Placement, Share
from pliant.model.quantity import GPU, Resources
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import Desired, Kind, Request, Task, TaskPhase, Workload
from tests.sched.ledger import Books, Key, missing
from tests.sched.worlds import Scene, cost


class Room:
    """Free amounts per node and device; `take` claims a placement, `give` returns it."""

    def __init__(self, scene: Scene, tasks: Iterable[Task]) -> None:
        self.scene = scene
        self.portion = {g.uuid: 0 if g.foreign else GPU for n in scene.nodes.values() for g in n.gpus}
        self.memory = {g.uuid: g.memory for n in scene.nodes.values() for g in n.gpus}
        self.owners: Mapping[str, Counter[str]] = defaultdict(Counter)
        self.base = {n.name: Resources(0, n.cpu, n.memory) for n in scene.nodes.values()}
        for task in tasks:
            if task.claims and task.claims.node in scene.nodes:
                self.take(task.claims)

    def take(self, place: Placement, sign: int = 1) -> None:
        for share in place.shares:
            self.portion[share.gpu] -= sign * share.portion
            self.memory[share.gpu] -= sign * share.memory
            self.owners[share.gpu][share.owner] += sign * share.portion
        amount = Resources(0, place.cpu, place.memory).times(sign)
        self.base[place.node] = self.base[place.node].minus(amount)

    def give(self, place: Placement) -> None:
        self.take(place, -1)

    def fits(self, place: Placement) -> bool:
        base = self.base[place.node]
        return (
            place.cpu <= base.cpu
            and place.memory <= base.memory
            and all(s.portion <= self.portion[s.gpu] and s.memory <= self.memory[s.gpu] for s in place.shares)
            and all(self.of(share.gpu) <= {share.owner} for share in place.shares)
        )

    def of(self, gpu: str) -> set[str]:
        """Owners of the parts on a device."""
        return {owner for owner, portion in self.owners[gpu].items() if portion}

    def places(self, request: Request, devices: int, node: Node) -> Iterator[Placement]:
        """Different ways to place it on this node; equally free devices count once."""
        seen = set()
        for chosen in combinations([gpu for gpu in node.gpus if self.portion[gpu.uuid] > 0], devices):
            shares: tuple[Share, ...] = tuple(cost(request, gpu) for gpu in chosen)
            place = Placement(node.name, shares, request.cpu, request.memory)
            kind = tuple(
                sorted(
                    (self.portion[g.uuid], self.memory[g.uuid], g.memory, *self.of(g.uuid)) for g in chosen
                )
            )
            if kind not in seen and self.fits(place):
                seen.add(kind)
                yield place


def pools_of(scene: Scene, workload: Workload) -> list[str]:
    """Pools to try, in order."""
    named = workload.pools or scene.projects[workload.project].default_pools
    every = sorted(pool.name for pool in scene.pools.values() if pool.name != DEFAULT_POOL)
    return list(named) or [DEFAULT_POOL, *every]


def open_nodes(scene: Scene, workload: Workload, pool: str) -> list[Node]:
    project = scene.projects[workload.project]
    workspace = workload.kind is Kind.WORKSPACE
    kinds = project.interactive_node_types if workspace else project.training_node_types
    found = []
    for node in scene.nodes.values():
        label = node.label("run.ai/type")
        of_type = workload.node_type in ("", label) and (not kinds or label in kinds)
        if of_type and scene.pool_of(node) == pool and node.ready and not node.draining:
            found.append(node)
    return found


def may_have(books: Books, workload: Workload, pool: str, amount: Resources) -> bool:
    """True if limits, and for a non-preemptible workload quotas, let its queues have that much more."""
    for queue in books.path(workload):
        quota = books.quota(queue, pool)
        used = books.used[queue, pool].plus(amount)
        caps = [(used.gpu, quota.gpu_limit), (used.cpu, quota.cpu_limit), (used.memory, quota.memory_limit)]
        if not workload.preemptible:
            fixed = books.fixed[queue, pool].plus(amount)
            caps += [
                (fixed.gpu, books.deserved(queue, pool)),
                (fixed.cpu, quota.cpu),
                (fixed.memory, quota.memory),
            ]
        if any(cap != UNLIMITED and value > cap for value, cap in caps):
            return False
    return True


def core_fit(scene: Scene, tasks: Mapping[Key, Task], workload: Workload) -> Resources | None:
    """What its missing core tasks would claim if they all fit beside the present claims, else None."""
    mine = [task for task in tasks.values() if task.workload == workload.id]
    wants: list[tuple[Request, int]] = []
    for group in workload.groups:
        have = [t for t in mine if t.group == group.name and (t.claims or t.phase is TaskPhase.SUCCEEDED)]
        devices = 1 if group.elastic else group.request.devices
        wants += [(group.request, devices)] * max(0, group.min - len(have))
    room, books = Room(scene, tasks.values()), Books.of(scene, tasks.values())
    bound = {
        scene.pool_of(scene.nodes[t.claims.node]) for t in mine if t.claims and t.claims.node in scene.nodes
    }
    for pool in pools_of(scene, workload):
        if bound and pool not in bound:
            continue
        nodes = open_nodes(scene, workload, pool)
        for places in _seat(room, nodes, wants, 0):
            amount = Resources()
            for place in places:
                amount = amount.plus(place.resources)
            if may_have(books, workload, pool, amount):
                return amount
    return None


def _seat(
    room: Room, nodes: list[Node], wants: list[tuple[Request, int]], first: int
) -> Iterator[list[Placement]]:
    """Ways to place them all; equal tasks in a row go to the same node or a later one."""
    if not wants:
        yield []
        return
    (request, devices), rest = wants[0], wants[1:]
    for index in range(first, len(nodes)):
        for place in room.places(request, devices, nodes[index]):
            room.take(place)
            follow = index if rest and rest[0] == wants[0] else 0
            for others in _seat(room, nodes, rest, follow):
                yield [place, *others]
            room.give(place)


def without_bonus(scene: Scene, tasks: Mapping[Key, Task]) -> dict[Key, Task]:
    """The tasks with all bonus handed back: devices beyond an elastic request, tasks beyond those wanted."""
    found = dict(tasks)
    for key, task in tasks.items():
        group = scene.workloads[task.workload].group(task.group)
        if task.claims is None:
            continue
        if scene.workloads[task.workload].background:
            found[key] = replace(task, claims=None)
        elif group.elastic and len(task.claims.shares) > group.request.devices:
            kept = task.claims.shares[: group.request.devices]
            found[key] = replace(task, claims=replace(task.claims, shares=kept))
    for workload in scene.workloads.values():
        for group in workload.groups:
            having = [
                k for k, t in tasks.items() if (t.workload, t.group) == (workload.id, group.name) and t.claims
            ]
            for key in having[group.wanted :] if not workload.background else ():
                found[key] = replace(found[key], claims=None)
    return found


def waiting(scene: Scene, tasks: Mapping[Key, Task], now: int) -> list[Workload]:
    """Workloads that should run, lack their core and are not in back-off, without background work.

    Background work comes last: see liveness.fills().
    """
    found = []
    for workload in scene.workloads.values():
        if workload.desired is not Desired.RUNNING or workload.phase.final or workload.background:
            continue
        mine = [task for task in tasks.values() if task.workload == workload.id]
        backing_off = any(task.retry_at is not None and task.retry_at > now for task in mine)
        if missing(workload, mine) and not backing_off:
            found.append(workload)
    return found
