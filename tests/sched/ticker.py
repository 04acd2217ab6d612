"""Plays control and engine around the core on a virtual clock: orders are carried out after a delay.

Every cycle is checked: the referee judges the plan by rules that are independent of the core, and the world
is compared with one built fresh. `show()` is what a user sees, `{name: (status, GPUs, node)}`;
`rows()` is the same as text, `["a1 Running 1 n1", "b1 Pending 0"]`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.control.state.transitions import phase_changed, phase_of
from pliant.model.machine import Node, Placement
from pliant.model.quantity import GPU
from pliant.model.workload import AttemptId, Desired, Phase, Request, Task, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Decision, Plan
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdict
from pliant.sched.world.state import World
from tests.sched import referee
from tests.sched.victims import irreducible, needless
from tests.sched.worlds import NOW, Row, Scene, put_job, put_queue, world

Shown = dict[str, tuple[str, float, str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log from which the referee adds up what is occupied."""

    at: int  # ms
    kind: str  # start, started, stop, resize, resized, ended
    attempt: AttemptId
    placement: Placement | None = None


class Ticker:
    """One cluster in virtual time. Delays are ms: how long its engine takes to start, to stop and to resize.

    `judged=False` skips the referee's check of each plan, for worlds with rules that it does not know.
    """

    def __init__(
        self,
        scene: Scene,
        *,
        start: int = 100,
        stop: int = 1_000,
        settings: Settings | None = None,
        judged: bool = True,
    ) -> None:
        self.scene = scene
        self.world: World = scene.world()
        self.settings = settings or Settings()
        self.now = NOW
        self.start, self.stop = start, stop
        self.judged = judged
        self.log: list[Entry] = []
        self.plans: list[Plan] = []
        self._news = True  # some row changed since the world was last compared with one built fresh
        self.given_back = 0  # ways tried to give a victim a portion back
        self.occupied: dict[AttemptId, tuple[Placement, ...]] = {
            AttemptId(*task.key, task.attempt): (task.carries,)
            for task in scene.tasks.values()
            if task.carries
        }
        self.requests: dict[tuple[str, str], Request] = {}  # of all tasks there ever were
        self.gangs: set[str] = set()  # workloads whose core has several tasks
        for task in scene.tasks.values():
            self._remember(task)
        self._events: list[tuple[int, int, str, AttemptId, Placement | None]] = []
        self._sequence = 0
        for task in scene.tasks.values():
            if task.phase is TaskPhase.STOPPING:
                self._later(self.stop, "ended", AttemptId(*task.key, task.attempt))
        self.world.check()

    # ------------------------------------------------------------------ what users and machines do

    def submit(self, *lines: str) -> None:
        for line in lines:
            put = put_job(self.scene, line, self.now)
            self._put(put)
            for task in self.scene.tasks_of(put.id):
                self._put(task)
                self._remember(task)

    def finish(self, name: str) -> None:
        """Its running tasks exit 0; a task that was told to stop remains `stopping`."""
        for task in self.scene.tasks_of(name):
            if task.phase in (TaskPhase.RUNNING, TaskPhase.ORDERED):
                self._end(task)
            phase = TaskPhase.STOPPING if task.phase is TaskPhase.STOPPING else TaskPhase.SUCCEEDED
            self._put(replace(self._task(task), phase=phase, claims=None))
        self._put(replace(self.scene.workloads[name], phase=Phase.COMPLETED, completed=self.now))

    def fail(self, name: str, index: int = 0) -> None:
        """One running task exits 1 and is retried after its back-off."""
        task = self.scene.tasks_of(name)[index]
        if task.phase is not TaskPhase.RUNNING:
            return
        self._end(task)
        wait = min(self.settings.retry_base * 2**task.failures, self.settings.retry_max)
        self._put(
            replace(self._task(task), claims=None, failures=task.failures + 1, retry_at=self.now + wait)
        )

    def succeed(self, name: str, index: int = 0) -> None:
        """One running task exits 0; its workload runs on."""
        task = self.scene.tasks_of(name)[index]
        self._end(task)
        self._put(replace(self._task(task), phase=TaskPhase.SUCCEEDED, claims=None))

    def delete(self, *names: str) -> None:
        for name in names:
            self._put(replace(self.scene.workloads[name], desired=Desired.DELETED))
            self._forget(name)

    def suspend(self, name: str) -> None:
        self._put(replace(self.scene.workloads[name], desired=Desired.STOPPED))

    def resume(self, name: str) -> None:
        self._put(replace(self.scene.workloads[name], desired=Desired.RUNNING))

    def lose(self, name: str) -> None:
        """The node no longer answers; nothing on it lives."""
        self._put(replace(self.scene.nodes[name], ready=False))
        for task in list(self.scene.tasks.values()):
            if task.carries and task.carries.node == name:
                self._end(task)

    def find(self, name: str) -> None:
        self._put(replace(self.scene.nodes[name], ready=True))

    def change(self, row: Node) -> None:
        """An engine reports changed properties of a node."""
        self._put(row)

    def vanish(self, name: str) -> None:
        """Removes a lost node."""
        self._news = True
        self.world.drop(self.scene.nodes.pop(name))

    def drain(self, name: str, draining: bool = True) -> None:
        self._put(replace(self.scene.nodes[name], draining=draining))

    def quota(self, word: str) -> None:
        """Another quota for a project or department, in the words of a world."""
        before = {**self.scene.departments, **self.scene.projects}
        put_queue(self.scene, word)
        for key, row in {**self.scene.departments, **self.scene.projects}.items():
            if key in before and row != before[key]:
                self._put(replace(row, created=before[key].created))

    # ------------------------------------------------------------------ time

    def cycle(self) -> Plan:
        """One decision, judged and carried out."""
        self._phases()
        found = self.world.snapshot()
        plan = decide(self.world, self.now, self.settings)
        assert self.world.snapshot() == found, "decide changed the world"
        if self.judged:
            referee.judge(self.scene, self.occupied, plan, self.now)
            self.given_back += irreducible(self.scene, plan)
            needless(self.scene, plan)
        for row in (*plan.tasks, *plan.disruptions):
            self._put(row)
        self._phases()
        if self._news:
            self._news = False
            self.world.check()
        for start in plan.starts:
            self.occupied[start.attempt] = (start.placement,)
            self._note("start", start.attempt, start.placement)
            self._later(self.start, "started", start.attempt)
        for stop in plan.stops:
            self._note("stop", stop.attempt)
            self._later(self.stop, "ended", stop.attempt)
        for resize in plan.resizes:
            self.occupied[resize.attempt] = (*self.occupied[resize.attempt], resize.placement)
            self._note("resize", resize.attempt, resize.placement)
            self._later(self.stop, "resized", resize.attempt, resize.placement)
        referee.weigh(self.scene, self.occupied)
        assert all(self.world.known(row) == row for row in self.scene.rows()), "rows were not followed"
        assert len([*self.world.rows()]) == len([*self.scene.rows()]) + 1, "rows are left over"  # with ROOM
        self.plans.append(plan)
        return plan

    def advance(self, ms: int) -> None:
        """Lets time pass without a decision; due events happen."""
        self.now += ms
        while self._events and self._events[0][0] <= self.now:
            _, _, kind, attempt, placement = heapq.heappop(self._events)
            self._happen(kind, attempt, placement)

    def settle(self, wait: int = 0, cycles: int = 60) -> Plan:
        """Runs cycles until nothing changes or is under way, then for `wait` ms more, one at every wake."""
        until = self.now + wait
        for _ in range(cycles):
            plan = self.cycle()
            if not plan.empty:
                continue
            if self._events:
                self.advance(max(0, self._events[0][0] - self.now))
            elif plan.wake is not None and plan.wake <= until:
                assert plan.wake > self.now, f"wake {plan.wake} is not after now {self.now}"
                self.advance(plan.wake - self.now)
            elif self.now < until:
                self.advance(until - self.now)
            else:
                return plan
        raise AssertionError(f"no rest after {cycles} cycles: {[p.decisions for p in self.plans[-4:]]}")

    @property
    def busy(self) -> bool:
        """True if starts, stops or resizes are under way."""
        return bool(self._events)

    # ------------------------------------------------------------------ what one sees

    def show(self) -> Shown:
        return {w.name: self._row(w) for w in self.scene.workloads.values()}

    def rows(self, *names: str) -> list[str]:
        """Of these workloads, or of all, in the order in which they were submitted."""
        shown = self.show()
        return [
            " ".join(f"{name} {status} {gpus} {node}".split())
            for name, (status, gpus, node) in shown.items()
            if name in (names or shown)
        ]

    def running(self) -> dict[str, float]:
        """GPUs of everything that runs."""
        return {name: gpus for name, (status, gpus, _) in self.show().items() if status == "Running"}

    def split(self) -> dict[str, float]:
        """GPUs that each project's workloads occupy."""
        found = dict.fromkeys(self.scene.projects, 0.0)
        for name, gpus in self.running().items():
            found[self.scene.workloads[name].project] += gpus
        return found

    def attempts(self, name: str) -> int:
        """How many attempts its tasks have had together."""
        return sum(task.attempt for task in self.scene.tasks_of(name))

    def decisions(self, workload: str = "", verb: str = "") -> list[Decision]:
        """Of all cycles so far."""
        return [
            decision
            for plan in self.plans
            for decision in plan.decisions
            if workload in ("", decision.workload) and verb in ("", decision.verb)
        ]

    def verdict(self, name: str) -> Verdict:
        """Why it waits, by the latest plan; exactly one."""
        found = [verdict for verdict in self.plans[-1].verdicts if verdict.workload == name]
        assert len(found) == 1, f"{name} has {len(found)} verdicts: {found}"
        return found[0]

    def _row(self, workload: Workload) -> tuple[str, float, str]:
        tasks = self.scene.tasks_of(workload.id)
        live = [task for task in tasks if task.carries]
        milli = sum(task.carries.gpu for task in live if task.carries)
        gpus = milli // GPU if milli % GPU == 0 else milli / GPU
        nodes = "+".join(sorted({task.carries.node for task in live if task.carries}))
        return self._status(workload, tasks), gpus, nodes

    def _status(self, workload: Workload, tasks: Sequence[Task]) -> str:
        live = [task for task in tasks if task.carries]
        if workload.phase.final:
            return "Succeeded"
        if workload.desired is not Desired.RUNNING:
            return "Stopping" if live else "Stopped"
        if any(task.phase is TaskPhase.STOPPING for task in live):
            return "Stopping"
        for group in workload.groups:
            if sum(1 for task in live if task.group == group.name) < group.min:
                return "Pending"
        return "Running" if live else "Pending"

    # ------------------------------------------------------------------ how facts become rows

    def _put(self, row: Row) -> None:
        self._news = True
        self.scene.put(row)
        self.world.put(row)

    def _remember(self, task: Task) -> None:
        workload = self.scene.workloads[task.workload]
        self.requests[task.key] = workload.group(task.group).request
        if sum(group.min for group in workload.groups) > 1:
            self.gangs.add(workload.id)

    def _phases(self) -> None:
        """Phases follow tasks by the rules of control, as they do in a server."""
        for workload in list(self.scene.workloads.values()):
            phase = phase_of(workload, self.scene.tasks_of(workload.id))
            if phase is not workload.phase:
                self._put(phase_changed(workload, phase, self.now, ""))

    def _task(self, task: Task) -> Task:
        return self.scene.tasks[task.key]

    def _note(self, kind: str, attempt: AttemptId, placement: Placement | None = None) -> None:
        self.log.append(Entry(self.now, kind, attempt, placement))

    def _later(self, delay: int, kind: str, attempt: AttemptId, placement: Placement | None = None) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, kind, attempt, placement))

    def _happen(self, kind: str, attempt: AttemptId, placement: Placement | None) -> None:
        if attempt not in self.occupied:
            return  # a fact about an attempt that has ended changes nothing
        task = self.scene.tasks[attempt.workload, attempt.task]
        if kind == "ended":
            self._end(task)
            self._forget(attempt.workload)
        elif kind == "resized" and placement:
            self._note("resized", attempt, placement)
            held = self.occupied[attempt]
            self.occupied[attempt] = held[held.index(placement, 1) :]
            self._put(replace(task, carries=placement))
        elif kind == "started":
            self._note("started", attempt)
            phase = TaskPhase.RUNNING if task.phase is TaskPhase.ORDERED else task.phase
            first = task.first_started or self.now
            self._put(replace(task, phase=phase, started=self.now, first_started=first))

    def _end(self, task: Task) -> None:
        """Its attempt has ended; its claim stays for the next attempt."""
        attempt = AttemptId(*task.key, task.attempt)
        self._note("ended", attempt)
        self.occupied.pop(attempt, None)
        phase = TaskPhase.SUCCEEDED if self.scene.workloads[task.workload].phase.final else TaskPhase.WAITING
        self._put(replace(task, phase=phase, carries=None, started=None))

    def _forget(self, name: str) -> None:
        """Removes a deleted workload without live attempts."""
        tasks = self.scene.tasks_of(name)
        workload = self.scene.workloads[name]
        if workload.desired is not Desired.DELETED or any(task.carries for task in tasks):
            return
        for task in tasks:
            self.world.drop(task)
            del self.scene.tasks[task.key]
        self.world.drop(workload)
        del self.scene.workloads[name]


def settled(nodes: str, projects: str, *jobs: str, pools: str = "", wait: int = 0) -> Ticker:
    """A world brought to rest."""
    ticker = Ticker(world(nodes, projects, *jobs, pools=pools))
    ticker.settle(wait)
    return ticker
