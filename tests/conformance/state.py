"""The state of a scenario: the status of each task, and its devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pliant.model.machine import Placement, Share
from pliant.model.quantity import GPU
from pliant.model.workload import Request
from pliant.sched.world.device_share import portion_of

MIB = 2**20
RUNNING = ("allocated", "bound", "binding", "running")
ACTIVE = (*RUNNING, "pipelined")
USED = (*ACTIVE, "releasing", "stuck_in_releasing")
ON_NODE = (*RUNNING, "releasing", "stuck_in_releasing")
GONE = ("deleted", "unknown")

Json = dict[str, Any]


class ContradictionError(ValueError):
    """The scenario contradicts itself; says what and where."""


class UnsupportedError(Exception):
    """The scenario needs something that our model cannot express; says what."""


@dataclass(slots=True)
class TaskState:
    """One task of a scenario. `placement` is set while it occupies something."""

    id: str
    job: str
    spec: Json
    request: Request
    status: str
    placement: Placement | None = None
    promised: Placement | None = None  # the future place of a pipelined task
    started: int | None = None  # ms; when it got its present place

    @property
    def place(self) -> Placement | None:
        """Its place, or the one promised to it."""
        return self.promised or self.placement

    @property
    def node(self) -> str | None:
        place = self.place
        if place is not None:
            return place.node
        return self.spec.get("node") if self.status == self.spec["status"] else None


@dataclass(slots=True)
class State:
    """All tasks of a scenario by id, and the time (ms) since which jobs are below their minimum."""

    case: Json
    tasks: dict[str, TaskState]
    stale_since: dict[str, int] = field(default_factory=dict)

    def of_job(self, name: str) -> list[TaskState]:
        return [task for task in self.tasks.values() if task.job == name]


def request_of(job: Json, task: Json) -> Request:
    """The request of one task; `gpus` of the task overrides the job's."""
    per = job["per_task"]
    cpu = round(float(per.get("cpu", 1)) * 1000)
    memory = int(per.get("memory_bytes", 10**9))
    if per.get("best_effort") or job.get("best_effort"):
        cpu = memory = 0
    count = int(per.get("num_devices", 1))
    whole = task["gpus"] if task.get("gpus") is not None else None
    if whole is None and per.get("gpu_fraction"):
        return Request(count, round(float(per["gpu_fraction"]) * GPU), cpu=cpu, memory=memory)
    if whole is None and per.get("gpu_memory_mib"):
        return Request(count, gpu_memory=int(per["gpu_memory_mib"]) * MIB, cpu=cpu, memory=memory)
    number = float(whole if whole is not None else per.get("gpus") or 0)
    if number == int(number):
        return Request(int(number), cpu=cpu, memory=memory)
    if number > 1:
        raise ContradictionError(f"job {job['name']} asks for {number} GPUs: whole devices or a part of one")
    return Request(1, round(number * GPU), cpu=cpu, memory=memory)


def device_memory(node: Json) -> int:
    """Bytes of each of its devices: the source rounds down to hundreds of MiB."""
    mib = int(node.get("gpu_memory_mib") or 100)
    return max(mib // 100 * 100, min(mib, 100)) * MIB


def uuid(node: str, index: int) -> str:
    return f"{node}/gpu{index}"


def by_age(case: Json) -> list[Json]:
    """Its jobs, oldest first; ties by name."""
    return sorted(case["jobs"], key=lambda job: (-float(job.get("created_minutes_ago", 0)), job["name"]))


def begin(case: Json, now: int) -> State:
    """The state in which the scenario starts."""
    nodes = {node["name"]: node for node in case["nodes"]}
    seats = {name: Seats(node) for name, node in nodes.items()}
    tasks: dict[str, TaskState] = {}
    promised: list[TaskState] = []
    for job in by_age(case):
        for spec in job["tasks"]:
            task = TaskState(spec["id"], job["name"], spec, request_of(job, spec), spec["status"])
            if task.id in tasks:
                raise ContradictionError(f"two tasks are called {task.id}")
            tasks[task.id] = task
            where = spec.get("node")
            if task.status not in ACTIVE and task.status not in ON_NODE:
                continue
            if where not in nodes:
                raise ContradictionError(f"task {task.id} is {task.status} on node {where}, which is unknown")
            if task.status == "pipelined":
                promised.append(task)
                continue
            task.placement = seats[where].take(task, spec.get("gpu_groups"))
            task.started = now - 60_000
    for task in promised:  # last, as they get places that others are leaving
        task.promised = seats[task.spec["node"]].take(task, task.spec.get("gpu_groups"))
    return State(case, tasks)


class Seats:
    """Assigns the devices of one node to the tasks that run there when a scenario begins."""

    def __init__(self, node: Json) -> None:
        self._name = node["name"]
        self._memory = device_memory(node)
        self._used = [0] * int(node["gpus"])  # thousandths of each device
        self._leaving = [0] * int(node["gpus"])  # of that, what is being released
        self._groups: dict[str, int] = {}

    def take(self, task: TaskState, groups: Iterable[str] | None) -> Placement:
        request = task.request
        indexes: list[int] = []
        if request.shared:
            named = list(groups or ())[: request.devices]
            for name in named:
                if name not in self._groups:
                    self._groups[name] = self._least(task, indexes)
                indexes.append(self._groups[name])
        while len(indexes) < request.devices:
            indexes.append(self._least(task, indexes))
        shares = tuple(self._share(index, request) for index in sorted(indexes))
        for index, share in zip(sorted(indexes), shares, strict=True):
            self._used[index] += share.portion
            if task.status == "releasing":
                self._leaving[index] += share.portion
        return Placement(self._name, shares, request.cpu, request.memory)

    def _least(self, task: TaskState, taken: list[int]) -> int:
        """The least used device: an unused one, unless the node starts with more tasks than fit."""
        found = [index for index in range(len(self._used)) if index not in taken]
        if not found:
            raise ContradictionError(
                f"task {task.id} runs on {task.request.devices} GPUs of node {self._name}, "
                f"which has {len(self._used)}"
            )
        if task.status == "pipelined":
            return min(found, key=lambda index: (self._used[index] - self._leaving[index], index))
        return min(found, key=lambda index: (self._used[index], index))

    def _share(self, index: int, request: Request) -> Share:
        if request.gpu_memory:
            portion = portion_of(request.gpu_memory, self._memory)
            return Share(uuid(self._name, index), portion, request.gpu_memory)
        if request.portion >= GPU:
            return Share(uuid(self._name, index), GPU, self._memory)
        return Share(uuid(self._name, index), request.portion, request.portion * self._memory // GPU)
