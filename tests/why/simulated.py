"""A simulated cluster with known run times: the real core decides, orders are carried out at once."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field, replace

from pliant.model.machine import Gpu, Node, NodePool
from pliant.model.reason import Estimate
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.workload import Kind, Launch, Phase, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.explain.eta_model import Lasting, estimate
from pliant.sched.explain.foresee import obeyed
from pliant.sched.explain.trial import apply
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

MINUTE = 60_000
START = 1_700_000_000_000


@dataclass
class Asked:
    """One estimate and, later, the true start."""

    at: int
    workload: str
    said: Estimate
    true: int | None = None


@dataclass
class Cluster:
    """Work arrives, runs for its declared time and ends. Evicted work later continues where it stopped."""

    dice: random.Random
    nodes: int = 8
    gpus: int = 8
    projects: int = 3
    load: float = 1.2  # requested GPU time as a multiple of the cluster's
    world: World = field(default_factory=World)
    now: int = START
    asked: list[Asked] = field(default_factory=list)
    serial: int = 0

    def __post_init__(self) -> None:
        card = 80 * 10**9
        self.world.put(NodePool("default", "default"))
        self.world.put(Department("default", "default", derived=True))
        share = self.nodes * self.gpus * 1000 // (self.projects + 1)
        for p in range(self.projects):
            quota = (("default", Quota(gpu=share // 1000 * 1000)),)
            self.world.put(Project(f"p{p}", f"p{p}", quota, p, department="default"))
        for n in range(self.nodes):
            cards = tuple(Gpu(f"n{n}.{i}", i, card) for i in range(self.gpus))
            self.world.put(Node(f"n{n}", cards, cpu=16_000 * self.gpus, memory=self.gpus * 2**36))
        self.ends: list[tuple[int, str, int]] = []  # (when, workload, attempt)

    def submit(self) -> Workload:
        dice = self.dice
        self.serial += 1
        size = dice.choice((1, 1, 1, 1, 2, 2, 4, 8))
        lasts = int(dice.lognormvariate(3.0, 0.8) * MINUTE)
        name = f"w{self.serial}"
        group = TaskGroup("main", Request(size, cpu=1000 * size, memory=2**30 * size))
        if dice.random() < 0.1:
            group = TaskGroup("main", Request(1, cpu=1000, memory=2**30), 4, 4, 4)
        row = Workload(
            name,
            name,
            f"p{dice.randrange(self.projects)}",
            Kind.TRAINING,
            Launch("image"),
            (group,),
            priority=dice.choice((50, 50, 50, 50, 80)),
            serial=self.serial,
            created=self.now,
            phase=Phase.PENDING,
            max_runtime=lasts,
        )
        self.world.put(row)
        for index in range(group.max):
            self.world.put(Task(name, f"main-{index}", "main", index))
        return row

    def lasting(self, workload: str) -> Lasting | None:
        row = self.world.workloads[workload]
        assert row.max_runtime is not None
        rest = max(0, row.max_runtime - row.running_ms)
        return Lasting(rest, rest, "declared")

    def cycle(self) -> None:
        """Decides and carries plans out until nothing changes."""
        for _ in range(40):
            plan = decide(self.world, self.now, Settings())
            change = obeyed(self.world, plan, self.now)
            if not change.puts:
                break
            for wid in {stop.attempt.workload for stop in plan.stops}:
                self._evicted(wid)
            apply(self.world, change)
            for wid in {row.workload for row in change.puts if isinstance(row, Task)}:
                self._begun(wid)
        self.waiting = [verdict.workload for verdict in plan.verdicts]

    def _begun(self, wid: str) -> None:
        tasks = self.world.tasks_of(wid)
        if all(task.phase is TaskPhase.RUNNING for task in tasks):
            row = self.world.workloads[wid]
            assert row.max_runtime is not None
            begun = max(task.started or 0 for task in tasks)
            end = begun + row.max_runtime - row.running_ms
            heapq.heappush(self.ends, (end, wid, sum(task.attempt for task in tasks)))
            for one in self.asked:
                if one.workload == wid and one.true is None:
                    one.true = begun

    def _evicted(self, wid: str) -> None:
        """Adds its run time so far, which it keeps."""
        row = self.world.workloads[wid]
        begun = max((task.started or self.now for task in self.world.tasks_of(wid)), default=self.now)
        self.world.put(replace(row, running_ms=row.running_ms + self.now - begun))

    def _end(self, wid: str, attempts: int) -> bool:
        tasks = self.world.tasks_of(wid)
        if not tasks or sum(task.attempt for task in tasks) != attempts:
            return False  # it was evicted since
        if any(task.phase is not TaskPhase.RUNNING for task in tasks):
            return False
        for task in tasks:
            done = replace(task, phase=TaskPhase.SUCCEEDED, claims=None, carries=None)
            self.world.put(done)
        self.world.put(replace(self.world.workloads[wid], phase=Phase.COMPLETED, completed=self.now))
        return True

    def play(self, jobs: int, ask: float = 0.3, meanwhile: float = 0.0) -> list[Asked]:
        """Submits `jobs` workloads and runs until all have ended.

        Estimates some waiting workloads: after each event with probability `meanwhile` while jobs are
        submitted, then `ask`.
        """
        mean = 1.9 * 27 * MINUTE  # approximate GPU time of one workload
        gap = mean / (self.nodes * self.gpus) / self.load
        arrival = self.now
        left = jobs
        while left or self.ends:
            following = self.ends[0][0] if self.ends else 1 << 62
            if left and arrival <= following:
                self.now = max(self.now, arrival)
                self.submit()
                left -= 1
                arrival += int(self.dice.expovariate(1 / gap))
            else:
                at, wid, attempts = heapq.heappop(self.ends)
                self.now = max(self.now, at)
                if not self._end(wid, attempts):
                    continue
            self.cycle()
            chance = meanwhile if left else ask
            if self.waiting and chance and self.dice.random() < chance:
                wid = self.dice.choice(self.waiting)
                if self.world.need(wid).holds or self.world.need(wid).chunk is None:
                    continue
                self.asked.append(Asked(self.now, wid, estimate(self.world, self.now, wid, self.lasting)))
        return self.asked
