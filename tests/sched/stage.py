"""A cluster in a few lines: puts rows into a World, decides, and carries the plan out as engines would.

Independent of the tables of worlds.py: stops end and starts run at once, between two cycles.
"""

from dataclasses import replace

from pliant.model.machine import Gpu, Node, NodePool
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.workload import Desired, Kind, Launch, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

GIB = 2**30


class Stage:
    """Nodes by their GPU counts; projects by their quota, all in one department."""

    def __init__(self, nodes, projects, department=None, min_runtime=0):
        self.world, self.now, self.serial = World(), 1_000_000, 0
        self.plans: list[Plan] = []
        self.world.put(NodePool("1", "default", min_runtime=min_runtime))
        quota = () if department is None else (("default", Quota(gpu=department * 1000)),)
        self.world.put(Department("d", "d", quota, derived=department is None))
        for name, quota in projects.items():
            quota = quota if isinstance(quota, Quota) else Quota(gpu=quota * 1000)
            self.world.put(Project(name, name, (("default", quota),), department="d"))
        for number, count in enumerate(nodes, 1):
            gpus = tuple(Gpu(f"n{number}g{i}", i, 16 * GIB) for i in range(count))
            self.world.put(Node(f"n{number}", gpus, cpu=16_000 * count, memory=64 * GIB * count))

    def submit(self, name, project, gpus=1, *, elastic=False, interactive=False, memory=0, tasks=1):
        """`gpus` below 1 is a portion; `memory` bytes of one GPU instead."""
        whole = isinstance(gpus, int)
        request = Request(gpus if whole else 1, 1000 if whole else round(gpus * 1000), memory, cpu=100)
        self.serial += 1
        self.world.put(
            Workload(
                name,
                name,
                project,
                Kind.WORKSPACE if interactive else Kind.TRAINING,
                Launch("image"),
                (TaskGroup("main", request, tasks, tasks, tasks, elastic=elastic),),
                priority=100 if interactive else 50,
                preemptible=not interactive,
                serial=self.serial,
            )
        )
        for index in range(tasks):
            self.world.put(Task(name, f"main-{index}", "main", index))
        self.run()

    def wish(self, desired, *names):
        for name in names:
            self.world.put(replace(self.world.workloads[name], desired=desired))
        self.run()

    def delete(self, *names):
        self.wish(Desired.DELETED, *names)
        for name in names:
            for task in self.world.tasks_of(name):
                self.world.drop(task)
            self.world.drop(self.world.workloads[name])
        self.run()

    def run(self):
        """Cycles until nothing changes."""
        for _ in range(30):
            plan = decide(self.world, self.now, Settings())
            self.world.check()
            if plan.empty:
                self.plans.append(plan)
                return
            self.plans.append(plan)
            for task in plan.tasks:
                self.world.put(task)
            self.world.check()
            for task in list(self.world.tasks.values()):
                if task.phase is TaskPhase.STOPPING:
                    self.world.put(replace(task, phase=TaskPhase.WAITING, carries=None, started=None))
                elif task.phase is TaskPhase.ORDERED:
                    self.world.put(replace(task, phase=TaskPhase.RUNNING, started=self.now))
            self.now += 1
        raise AssertionError(f"plans keep changing the world: {self.plans[-3:]}")

    def later(self, ms):
        self.now += ms
        self.run()

    def shown(self):
        """name -> (GPUs that run, nodes)"""
        found = {}
        for name in self.world.workloads:
            live = [task.carries for task in self.world.tasks_of(name) if task.phase is TaskPhase.RUNNING]
            found[name] = (sum(place.gpu for place in live) / 1000, "+".join(sorted({p.node for p in live})))
        return found

    def gpus(self):
        return {name: gpus for name, (gpus, _) in self.shown().items()}

    def attempts(self, name):
        return [task.attempt for task in self.world.tasks_of(name)]

    def why(self, name):
        return next(verdict.reason for verdict in self.plans[-1].verdicts if verdict.workload == name)
