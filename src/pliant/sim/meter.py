"""The measurements of a simulation, in integers: sums over time, over jobs and over decisions."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pliant.model.quantity import GPU
from pliant.model.workload import Workload
from pliant.sched.plan import Decision, Plan, Verb
from pliant.sched.world.state import World

WINDOW = 3_600_000
"""Ms of one window. One value of Jain's index compares the projects' entitlement and use in it."""

SAMPLES = 400
"""The most samples kept for the plots; beyond that every other one is dropped."""

TAKING = ("shrink", "consolidate", "reclaim", "preempt")


@dataclass(slots=True)
class Usage:
    """The use of one project. GPU times are in milli-GPU-ms."""

    quota: int = 0  # milli-GPUs; -1: unlimited
    fair: int = 0  # milli-GPUs, by the last plan
    asked: int = 0  # milli-GPUs requested by its jobs that have not ended, without background jobs
    holds: int = 0  # milli-GPUs
    had: int = 0  # sum of `holds` over time
    entitled: int = 0  # sum over time of the lesser of demand and fair share
    window_had: int = 0
    window_entitled: int = 0
    below: int = 0  # ms below the lesser of demand and quota while another was above its quota
    since: int = -1  # ms since when it is so below; -1: it is not
    given_back: list[int] = field(default_factory=list)  # ms that each such period lasted


@dataclass(slots=True)
class Waited:
    """One submitted job."""

    project: str
    gpus: int  # milli-GPUs
    submitted: int  # ms
    started: int | None = None
    ended: int | None = None


@dataclass(slots=True)
class Sample:
    """One instant. GPUs are milli-GPUs."""

    at: int
    capacity: int
    allocated: int
    asked: int  # by the jobs that have not ended
    broken: int  # idle on partly used nodes
    stranded: int  # idle on nodes that lack the cores or memory that workloads request per GPU
    waiting: int  # jobs


@dataclass(slots=True)
class Meter:
    began: int
    now: int
    capacity: int = 0  # milli-GPUs
    allocated: int = 0
    capacity_time: int = 0  # milli-GPU-ms
    allocated_time: int = 0
    asked_time: int = 0  # demand, at most the capacity
    lost_time: int = 0  # work of stopped attempts that was not saved, and restarts
    usages: dict[str, Usage] = field(default_factory=dict)
    jobs: dict[str, Waited] = field(default_factory=dict)
    over: int = 0  # number of jobs that ended
    verbs: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)  # "action verb" -> milli-GPUs taken
    jain: list[tuple[int, int]] = field(default_factory=list)  # (ms, index in millionths) of each window
    samples: list[Sample] = field(default_factory=list)
    every: int = 1000  # ms between two samples
    next_sample: int = 0  # ms
    window_ends: int = 0

    def elapse(self, world: World, until: int) -> None:
        """Add up the time to `until`, in which nothing changes."""
        while self.window_ends <= until:
            self._add(self.window_ends - self.now)
            self._close_window()
        self._add(until - self.now)
        while self.next_sample <= until:  # at instants independent of the events
            self._sample(world, self.next_sample)
            if len(self.samples) > SAMPLES:
                self.samples, self.every = self.samples[::2], 2 * self.every
            self.next_sample = self.samples[-1].at + self.every

    def _add(self, span: int) -> None:
        if span <= 0:
            return
        self.now += span
        self.capacity_time += self.capacity * span
        self.allocated_time += self.allocated * span
        self.asked_time += min(self.capacity, sum(it.asked for it in self.usages.values())) * span
        for it in self.usages.values():
            due = min(it.asked, it.fair) * span
            it.had += it.holds * span
            it.window_had += it.holds * span
            it.entitled += due
            it.window_entitled += due
            if it.since >= 0:
                it.below += span

    def _close_window(self) -> None:
        """Jain's index (sum x)^2 / (n * sum x^2) of each project's use divided by entitlement, at most 1."""
        parts = [
            min(GPU, it.window_had * GPU // it.window_entitled)
            for it in self.usages.values()
            if it.window_entitled > 0
        ]
        squares = sum(part * part for part in parts)
        if len(parts) > 1:
            index = sum(parts) ** 2 * 1_000_000 // (len(parts) * squares) if squares else 1_000_000
            self.jain.append((self.now, index))
        for it in self.usages.values():
            it.window_had = it.window_entitled = 0
        self.window_ends += WINDOW

    def look(self, world: World, plan: Plan) -> None:
        """Read capacity, use and shares after cycles have changed them."""
        self.capacity = sum(size.gpu for size in world.capacity.values())
        for project, it in self.usages.items():
            it.holds = sum(world.claimed(project, pool).gpu for pool in world.capacity)
        self.allocated = sum(it.holds for it in self.usages.values())
        fair: dict[str, int] = {}
        quota: dict[str, int] = {}
        for row in plan.standings:
            fair[row.queue] = fair.get(row.queue, 0) + row.fair_share
            unlimited = row.quota < 0 or quota.get(row.queue, 0) < 0
            quota[row.queue] = -1 if unlimited else quota.get(row.queue, 0) + row.quota
        for project, it in self.usages.items():
            it.fair, it.quota = fair.get(project, it.fair), quota.get(project, it.quota)
        over = {it for it, usage in self.usages.items() if 0 <= usage.quota < usage.holds}
        for project, it in self.usages.items():
            due = it.asked if it.quota < 0 else min(it.asked, it.quota)
            if it.holds < due and over - {project}:
                it.since = self.now if it.since < 0 else it.since
            elif it.since >= 0:
                it.given_back.append(self.now - it.since)
                it.since = -1

    def decided(self, decisions: Iterable[Decision]) -> None:
        for it in decisions:
            self.verbs[it.verb.value] = self.verbs.get(it.verb.value, 0) + 1
            if it.action in TAKING and it.verb in (Verb.EVICT, Verb.SHRINK, Verb.MOVE):
                key = f"{it.action} {it.verb.value}"
                self.taken[key] = self.taken.get(key, 0) + max(0, it.gpu_before - it.gpu_after)

    def submitted(self, workload: Workload, gpus: int) -> None:
        self.jobs[workload.id] = Waited(workload.project, gpus, self.now)
        if not workload.background:
            self.usages.setdefault(workload.project, Usage()).asked += gpus

    def started(self, workload: str) -> None:
        job = self.jobs[workload]
        job.started = self.now if job.started is None else job.started

    def gone(self, workload: Workload) -> None:
        job = self.jobs[workload.id]
        if job.ended is None:
            job.ended = self.now
            self.over += 1
            if not workload.background:
                self.usages[workload.project].asked -= job.gpus

    def _sample(self, world: World, at: int) -> None:
        world.update_sets()
        broken = stranded = 0
        cpu, memory = world.rates
        for node in world.nodes.values():
            idle = node.free
            if idle < node.usable:
                broken += idle * GPU
            lacks = (cpu and node.free_cpu < cpu * idle) or (memory and node.free_memory < memory * idle)
            if idle and lacks:
                able = min(
                    node.free_cpu // cpu if cpu else idle, node.free_memory // memory if memory else idle
                )
                stranded += max(0, idle - max(0, able)) * GPU
        asked = sum(it.asked for it in self.usages.values())
        waiting = len(world.wanting)
        self.samples.append(Sample(at, self.capacity, self.allocated, asked, broken, stranded, waiting))
