"""Estimates when a waiting workload starts: plays the cluster forward with the known run times.

It is a model, not the core: work ends when it is expected to, waiting work starts in the order of share and
priority wherever it fits, and nothing is evicted. For the early end of the range nothing new is submitted;
for the late end the recent submissions are repeated at the same pace.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import isqrt

from pliant.model.quantity import GPU
from pliant.model.reason import Estimate
from pliant.model.workload import Request, TaskPhase
from pliant.sched.placement import eligibility
from pliant.sched.shares.entitlement import quota_of
from pliant.sched.shares.fair_share import INFINITE
from pliant.sched.world import device_share
from pliant.sched.world.chunks import core_priority
from pliant.sched.world.state import World

MOST_EVENTS = 3_000
"""After so many ends of work, a start counts as too far away for an estimate."""

EARLY, LATE = 300, 2_000
"""Thousandths of the played wait at which the range begins and ends; calibrated on simulated clusters."""

LATELY, AGAIN = 50, 20
"""How many of the youngest workloads set the pace of submissions, and how often they are repeated at most."""

SLACK = 30_000
"""Ms by which a start may be later in any case: stopping and starting take time."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long work runs, in ms (a short and a long estimate), and the basis of that."""

    short: int
    long: int
    basis: str  # declared | past


Known = Callable[[str], Lasting | None]
"""How long a workload runs from its start; None if nothing is known of it."""


def estimate(world: World, now: int, workload: str, lasting: Known) -> Estimate:
    """Play the cluster forward twice, with the shorter and with the longer run times."""
    world.update_sets()
    if world.workloads[workload].background:
        return Estimate(unknown="background")
    if world.need(workload).chunk is None:
        return Estimate(unknown="not-waiting")
    running = [wid for holders in world.holders.values() for wid in holders if wid != workload]
    known = {wid: it for wid in running if (it := lasting(wid)) is not None}
    if not known:
        return Estimate(unknown="no-run-times")
    short = _play(world, now, workload, lambda wid: None if (it := lasting(wid)) is None else it.short, [])
    lately_ = lately(world, now)
    long = _play(world, now, workload, lambda wid: None if (it := lasting(wid)) is None else it.long, lately_)
    if short is None or long is None:
        lacking = len(running) - len(known)
        if lacking:
            return Estimate(unknown="some-run-times", undeclared=lacking)
        return Estimate(unknown="stuck")
    middle = isqrt((short - now) * (long - now))  # between no new work and as much as recently
    latest = now + max(middle, short - now) * LATE // 1000 + SLACK
    return Estimate(now + (short - now) * EARLY // 1000, latest, basis_of(known.values()))


def basis_of(known: Iterable[Lasting]) -> str:
    """'declared' if all run times are declared, else 'past'."""
    return "declared" if all(it.basis == "declared" for it in known) else "past"


# ---------------------------------------------------------------------- the model


class _Node:
    """What is free on one node."""

    __slots__ = ("cards", "cpu", "free", "memory", "partly")

    def __init__(self, world: World, name: str) -> None:
        state = world.nodes[name]
        self.cpu, self.memory = state.free_cpu, state.free_memory
        self.free = state.free
        self.partly = [GPU - it.claimed for it in state.devices.values() if 0 < it.claimed < GPU]
        self.cards = max((it.gpu.memory for it in state.devices.values()), default=0)

    def fits(self, asks: "_Asks") -> bool:
        if asks.cpu > self.cpu or asks.memory > self.memory:
            return False
        if not asks.devices:
            return True
        portion = asks.portion(self.cards)
        if portion >= GPU:
            return asks.devices <= self.free
        have = sum(1 for rest in self.partly if rest >= portion)
        return asks.devices <= have + self.free

    def take(self, asks: "_Asks") -> None:
        self.cpu -= asks.cpu
        self.memory -= asks.memory
        portion = asks.portion(self.cards)
        if portion >= GPU:
            self.free -= asks.devices
            return
        for _ in range(asks.devices):
            at = next((i for i, rest in enumerate(self.partly) if rest >= portion), None)
            if at is None:
                self.free -= 1
                self.partly.append(GPU - portion)
            else:
                self.partly[at] -= portion

    def give(self, cpu: int, memory: int, portions: Iterable[int]) -> None:
        self.cpu += cpu
        self.memory += memory
        for portion in portions:
            if portion >= GPU:
                self.free += 1
                continue
            at = next((i for i, rest in enumerate(self.partly) if rest + portion <= GPU), None)
            if at is None:
                continue
            self.partly[at] += portion
            if self.partly[at] == GPU:
                del self.partly[at]
                self.free += 1


@dataclass(frozen=True, slots=True)
class _Asks:
    devices: int
    thousandths: int
    gpu_memory: int
    cpu: int
    memory: int

    @classmethod
    def of(cls, request: Request, elastic: bool) -> "_Asks":
        devices = min(1, request.devices) if elastic else request.devices
        return cls(devices, request.portion, request.gpu_memory, request.cpu, request.memory)

    def portion(self, card: int) -> int:
        return (
            device_share.estimate(Request(1, gpu_memory=self.gpu_memory), card)
            if self.gpu_memory
            else (self.thousandths)
        )


@dataclass(frozen=True, slots=True)
class _Job:
    workload: str
    project: str
    key: tuple[int, int]  # smaller first
    tasks: tuple[_Asks, ...]
    names: tuple[str, ...]  # nodes that it may use
    gpu: int  # milli-GPUs
    kind: tuple[object, ...]  # equal for those that fit in the same places


Seat = tuple[str, int, int, tuple[int, ...]]
"""A node, and the cores, the memory and the portions of its GPUs that a task has there."""


class _Cluster:
    """Nodes, queues and waiting jobs during the play."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes = {name: _Node(world, name) for name, state in world.nodes.items() if state.open}
        self.used: dict[str, int] = {}
        self.due: dict[str, int] = {}
        self.most: dict[str, int] = {}
        for pid in world.projects:
            uses = [world.claimed(pid, pool).gpu for pool in world.pools]
            self.used[pid] = sum(uses)
            dues = [quota_of(world, pid, pool).gpu for pool in world.pools]
            self.due[pid] = INFINITE if min(dues) < 0 else sum(dues)
            limits = [world.projects[pid].quota(pool).gpu_limit for pool in world.pools]
            self.most[pid] = INFINITE if min(limits) < 0 else sum(limits)
        self.waiting: dict[str, dict[tuple[object, ...], list[_Job]]] = {}  # by project and kind, last first
        self._names: dict[tuple[object, ...], tuple[str, ...]] = {}

    def wait(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            self.waiting.setdefault(job.project, {}).setdefault(job.kind, []).append(job)
        for kinds in self.waiting.values():
            for some in kinds.values():
                some.sort(key=lambda job: job.key, reverse=True)

    def job(self, wid: str) -> _Job:
        row = self.world.workloads[wid]
        names = self.names(wid)
        asks = [(_Asks.of(group.request, group.elastic), group.min) for group in row.groups]
        tasks = tuple(one for one, count in asks for _ in range(count)) or (asks[0][0],)
        gpu = sum(one.devices * min(GPU, one.thousandths) for one in tasks)
        kind = (names, tasks)
        return _Job(wid, row.project, (-core_priority(row), row.serial), tasks, names, gpu, kind)

    def like(self, at: int, wid: str) -> _Job:
        """A job like that of workload `wid`, submitted at time `at`."""
        job = self.job(wid)
        return replace(job, workload=f"{wid} {at}", key=(job.key[0], (1 << 40) + at))

    def names(self, wid: str) -> tuple[str, ...]:
        row = self.world.workloads[wid]
        key = (row.project, row.kind, row.node_type, row.pools)
        found = self._names.get(key)
        if found is None:
            classes = [
                eligibility.nodes_for(self.world, row, pool) for pool in eligibility.choices(self.world, row)
            ]
            found = self._names[key] = tuple(name for cls in classes for name in cls.names)
        return found

    def start(self) -> list[tuple[_Job, list[Seat]]]:
        """Start all that fits, the project with the smallest part of its due first."""
        begun: list[tuple[_Job, list[Seat]]] = []
        failed: set[tuple[object, ...]] = set()
        most = max((node.free for node in self.nodes.values()), default=0)
        partly = any(node.partly for node in self.nodes.values())
        open_ = {project for project, kinds in self.waiting.items() if kinds and project in self.used}
        while open_:
            project = min(open_, key=self._turn)
            heads = [some[-1] for kind, some in self.waiting[project].items() if kind not in failed]
            job = min(heads, key=lambda it: it.key, default=None)
            if job is None:
                open_.discard(project)
                continue
            whole = max((it.devices for it in job.tasks if it.thousandths >= GPU), default=0)
            seats = None
            if whole <= most and (most or partly or not job.gpu):
                seats = self._place(job)
            if seats is None:
                failed.add(job.kind)
                continue
            some = self.waiting[project][job.kind]
            some.pop()
            if not some:
                del self.waiting[project][job.kind]
            self.used[project] += job.gpu
            begun.append((job, seats))
        return begun

    def _turn(self, project: str) -> tuple[bool, int, str]:
        used, due = self.used[project], max(1, self.due[project])
        return (used >= due, (used << 32) // due, project)

    def _place(self, job: _Job) -> list[Seat] | None:
        if self.used[job.project] + job.gpu > self.most[job.project]:
            return None
        seats: list[Seat] = []
        for asks in job.tasks:
            best = min(
                (name for name in job.names if name in self.nodes and self.nodes[name].fits(asks)),
                key=lambda name: (self.nodes[name].free, name),
                default=None,
            )
            if best is None:
                for seat in seats:
                    self.give(seat)
                return None
            node = self.nodes[best]
            node.take(asks)
            seats.append((best, asks.cpu, asks.memory, (asks.portion(node.cards),) * asks.devices))
        return seats

    def give(self, seat: Seat) -> None:
        name, cpu, memory, portions = seat
        if name in self.nodes:
            self.nodes[name].give(cpu, memory, portions)


def lately(world: World, now: int) -> list[tuple[int, str]]:
    """(ms, workload to repeat) of assumed submissions: the youngest workloads, at their pace."""
    young = sorted((row for row in world.workloads.values() if row.created), key=lambda row: -row.created)
    some = young[:LATELY]
    if len(some) < 2:
        return []
    span = max(1, now - some[-1].created)
    return [(now + (now - row.created) + span * again, row.id) for again in range(AGAIN) for row in some]


def _play(
    world: World, now: int, workload: str, lasts: Callable[[str], int | None], coming: list[tuple[int, str]]
) -> int | None:
    """When it starts in the model (ms); None if it does not, or too late."""
    cluster = _Cluster(world)
    mine = cluster.job(workload)
    cluster.wait(
        [mine, *(cluster.job(wid) for wid in world.wanting if wid != workload and _core(world, wid))]
    )
    ends: list[tuple[int, str]] = []
    seats: dict[str, list[Seat]] = {}
    gpus: dict[str, tuple[str, int]] = {}
    for project, holders in world.holders.items():
        for wid in holders:
            rows = [task for task in world.tasks_of(wid) if task.claims is not None]
            seats[wid] = [
                (it.claims.node, it.claims.cpu, it.claims.memory, tuple(s.portion for s in it.claims.shares))
                for it in rows
                if it.claims is not None
            ]
            gpus[wid] = (project, world.gpu_of(wid))
            lasting = lasts(wid)
            if lasting is None or wid == workload:
                continue
            begun = max(
                (task.started or now for task in rows if task.phase is TaskPhase.RUNNING), default=now
            )
            overdue = (now - begun - lasting) // 2  # overdue work may run on for a while
            ends.append((max(begun + lasting, now + max(0, overdue)), wid))
    heapify(ends)
    arrivals = sorted(coming, reverse=True)
    for _ in range(MOST_EVENTS):
        if not ends:
            return None
        at, wid = heappop(ends)
        while arrivals and arrivals[-1][0] <= at:
            cluster.wait([cluster.like(*arrivals.pop())])
        batch = [wid]
        while ends and ends[0][0] <= at:
            batch.append(heappop(ends)[1])
        for ended in batch:
            for seat in seats.pop(ended, []):
                cluster.give(seat)
            project, gpu = gpus.pop(ended)
            if project in cluster.used:
                cluster.used[project] -= gpu
        for job, places in cluster.start():
            if job.workload == workload:
                return at
            seats[job.workload] = places
            gpus[job.workload] = (job.project, job.gpu)
            lasting = lasts(job.workload.partition(" ")[0])
            if lasting is not None:
                heappush(ends, (at + lasting, job.workload))
    return None


def _core(world: World, wid: str) -> bool:
    need = world.need(wid)
    return need.chunk is not None and not need.holds and world.workloads[wid].project in world.projects
