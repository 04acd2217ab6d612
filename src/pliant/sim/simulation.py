"""One simulation: the server's own loop and core, the virtual engine, and a clock that skips idle time."""

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pliant.control.loop import SETTLING
from pliant.control.ports import Batch, Row, Store
from pliant.control.state.draft import Draft
from pliant.control.state.imports import tasks_of
from pliant.control.still import StillLoop
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Behaviour, Machines, Run
from pliant.engines.virtual.timeline import Timeline
from pliant.model.machine import Node
from pliant.model.order import Start
from pliant.model.tenancy import Project
from pliant.model.workload import AttemptId, Desired, Phase, Workload
from pliant.sched.plan import Plan
from pliant.sim.meter import WINDOW, Meter, Usage
from pliant.sim.rows import Rows
from pliant.sim.trace import Change, Job, Trace

DAY = 86_400_000
"""Ms."""

Decided = tuple[int, str, str, str, str, int, int, str]
"""Ms, verb, action, workload, tasks, milli-GPUs before and after, code of the reason."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions about stopped jobs, which no trace contains."""

    checkpoint: int = 0  # ms between two checkpoints; 0: no work is ever lost
    restart: int = 0  # ms that a restarted job needs before it continues


@dataclass(slots=True)
class Progress:
    """The state of a simulation that is not in the world's rows."""

    meter: Meter
    next: int = 0  # number of jobs submitted so far
    changed: int = 0  # number of changes of machines and owners made so far
    left: dict[str, int] = field(default_factory=dict)  # workload -> remaining work in milli-GPU-ms
    begun: dict[AttemptId, int] = field(default_factory=dict)  # remaining work when the attempt began
    decisions: list[Decided] = field(default_factory=list)
    deletions: list[tuple[int, str]] = field(default_factory=list)  # (ms, workload), by time


class Simulation:
    """`run` continues from the current progress; with `saved` and `resume` another process can continue."""

    def __init__(self, trace: Trace, assumed: Assumed, seed: int) -> None:
        self.trace, self.assumed = trace, assumed
        self.jobs = _drawn(trace.jobs, seed)
        self._by_id = {job.workload.id: job for job in self.jobs}
        self._setup = [row for row in trace.setup if not isinstance(row, Node)]
        self.progress = Progress(Meter(trace.began, trace.began))
        meter = self.progress.meter
        meter.usages = {row.id: Usage() for row in self._setup if isinstance(row, Project)}
        meter.window_ends = trace.began + WINDOW
        span = self.jobs[-1].workload.created - trace.began if self.jobs else 0
        meter.every, meter.next_sample = max(1000, span // 200), trace.began
        ends = [(job.ends, job.workload.id) for job in self.jobs if job.ends is not None]
        self.progress.deletions = sorted(ends)
        self._rows: Sequence[Row] = self._setup
        self._runs: Sequence[Run] = ()
        self._nodes = [row for row in trace.setup if isinstance(row, Node)]

    # ------------------------------------------------------------------ interrupted and continued
    def saved(self) -> bytes:
        """The state that another process needs to continue. Call it only between two instants."""
        saved = self._store.load()
        nodes = list(self._machines.nodes.values())
        return pickle.dumps((saved.rows, list(self._machines.runs.values()), nodes, self.progress))

    def resume(self, saved: bytes) -> None:
        rows, runs, nodes, progress = pickle.loads(saved)  # written by this account  # nosec B301
        self._rows, self._runs, self._nodes, self.progress = rows, runs, nodes, progress

    # ------------------------------------------------------------------ the clock
    def run(
        self,
        between: Callable[[], None] = lambda: None,
        tell: Callable[[int, int, str], None] = lambda done, of, more: None,
    ) -> Progress:
        """Run to the end of the trace. Calls `between` between two instants, when nothing is under way.

        Calls `tell(submitted, jobs, more)` after each cycle.
        """
        meter, self._tell = self.progress.meter, tell
        timeline = Timeline(meter.now)
        machines = self._machines = Machines(
            timeline, self._nodes, behaviour=self._starts, ended=self._stopped
        )
        machines.take_over(self._runs)
        self._store = self.store()
        engine = VirtualEngine(machines)
        loop = self._loop = StillLoop(self._store, {engine.name: engine}, timeline, self.trace.settings)
        loop.open()
        self._settle()
        while True:
            now = self._next()
            if now is None:
                break
            if self.trace.until is not None and now > self.trace.until:
                meter.elapse(loop.world, self.trace.until)
                self._cut_off(self.trace.until)
                break
            if now > meter.now:  # nothing is under way
                between()
            meter.elapse(loop.world, now)
            timeline.advance(now)
            self._arrive(now)
            self._settle()
        return self.progress

    def store(self) -> Store:
        """The store of the simulated server."""
        return Rows(self._rows)

    def seed(self, store: Store) -> None:
        """Put the initial rows into an empty store."""
        store.commit(store.lead(), Batch(put=self._rows))

    def _next(self) -> int | None:
        """The time (ms) of the next event; None: there is none."""
        it, found = self.progress, [self._machines.timeline.next()]
        wakes = self._loop.wakes
        if wakes is not None and wakes > it.meter.now:  # a past one is left to the next cycle
            found.append(wakes)
        if it.next < len(self.jobs):
            found.append(self.jobs[it.next].workload.created)
        if it.changed < len(self.trace.changes):
            found.append(self.trace.changes[it.changed].at)
        if it.deletions:
            found.append(it.deletions[0][0])
        times = [at for at in found if at is not None]
        return max(min(times), it.meter.now) if times else None

    def _settle(self) -> None:
        """Run cycles until nothing changes, and measure the decisions. Orders are carried out at once."""
        loop, meter, timeline = self._loop, self.progress.meter, self._machines.timeline
        quiet = 0  # cycles without news
        while quiet < 2 * SETTLING:
            before, rests = loop.plan, loop.turn() and not loop.due
            if loop.plan is not before:
                self._note(loop.plan)
            day = (meter.now - meter.began) / DAY
            self._tell(self.progress.next, len(self.jobs), f"{meter.over} ended, day {day:.2f}")
            coming, quiet = timeline.next(), quiet + 1
            if coming is not None and coming <= meter.now:
                timeline.advance(meter.now)
                quiet = 0
            elif rests:
                break
        else:
            raise AssertionError(f"no rest after {2 * SETTLING} cycles at {meter.now}: {loop.plan}")
        meter.look(loop.world, loop.plan)

    def _note(self, plan: Plan) -> None:
        it = self.progress
        it.meter.decided(plan.decisions)
        for d in plan.decisions:
            tasks = " ".join(d.tasks)
            told = d.verb.value, d.action, d.workload, tasks, d.gpu_before, d.gpu_after, d.reason.code
            it.decisions.append((it.meter.now, *told))

    # ------------------------------------------------------------------ what happens
    def _arrive(self, now: int) -> None:
        it, changes = self.progress, self.trace.changes
        while it.changed < len(changes) and changes[it.changed].at <= now:
            self._change(changes[it.changed])
            it.changed += 1
        while it.next < len(self.jobs) and self.jobs[it.next].workload.created <= now:
            self._submit(self.jobs[it.next], now)
            it.next += 1
        while it.deletions and it.deletions[0][0] <= now:
            self._delete(it.deletions.pop(0)[1])

    def _submit(self, job: Job, now: int) -> None:
        asked = _asked(job.workload)
        if job.run is not None:
            self.progress.left[job.workload.id] = job.work or job.run * asked
        self.progress.meter.submitted(job.workload, asked)

        def run(draft: Draft) -> None:
            self._loop.state.serial += 1
            row = replace(
                job.workload, phase=Phase.PENDING, phase_since=now, serial=self._loop.state.serial, ttl=0
            )
            draft.put(row)
            for task in tasks_of(row):
                draft.put(task)

        self._loop.submit(run)

    def _delete(self, wid: str) -> None:
        def run(draft: Draft) -> None:
            row = self._loop.world.workloads.get(wid)
            if row is not None and row.desired is not Desired.DELETED:
                draft.put(replace(row, desired=Desired.DELETED))

        if wid in self.progress.meter.jobs:
            self.progress.meter.gone(self._by_id[wid].workload)
            self._loop.submit(run)

    def _change(self, change: Change) -> None:
        row = change.row
        if isinstance(row, Node):
            if change.gone:
                if row.name in self._machines.nodes:
                    self._machines.lose_node(row.name)
            else:
                self._machines.add_node(row)
            return
        if isinstance(row, Project):
            self.progress.meter.usages.setdefault(row.id, Usage())

        def run(draft: Draft) -> None:
            (draft.drop if change.gone else draft.put)(row)

        self._loop.submit(run)

    # ------------------------------------------------------------------ how jobs go
    def _starts(self, order: Start, env: Mapping[str, str]) -> Behaviour:
        """The attempt runs its job's remaining work at the pace of its GPUs."""
        it, wid = self.progress, order.attempt.workload
        it.meter.started(wid)
        left = it.left.get(wid)
        if left is None:
            return Behaviour()
        it.begun[order.attempt] = left
        duration = -(-left // self._pace(order.attempt, order.placement.gpu))
        return Behaviour(self._restart(order.attempt) + duration)

    def _restart(self, attempt: AttemptId) -> int:
        """Ms before the attempt continues its job's work."""
        return self.assumed.restart if attempt.number > 1 else 0

    def _pace(self, attempt: AttemptId, gpu: int) -> int:
        """Milli-GPU-ms of work per ms, all tasks of the workload together."""
        row = self._by_id[attempt.workload].workload
        if not _asked_gpu(row):
            return 1
        return max(1, gpu) if row.groups[0].elastic else _asked(row)

    def _stopped(self, run: Run) -> None:
        """Subtract the attempt's work from the remaining work, without that since its last checkpoint."""
        it, end = self.progress, run.exit
        wid = run.attempt.workload
        left = it.begun.pop(run.attempt, None)
        if end is None:
            return
        gpu, restart = sum(share.portion for share in run.shares), self._restart(run.attempt)
        if end.succeeded:
            it.meter.gone(self._by_id[wid].workload)
            it.left.pop(wid, None)
            it.meter.lost_time += restart * gpu
        elif left is not None and run.started is not None and wid in it.left:
            went = max(0, end.at - run.started - restart)
            kept = went - went % self.assumed.checkpoint if self.assumed.checkpoint else went
            it.left[wid] = max(1, left - kept * self._pace(run.attempt, gpu))
            it.meter.lost_time += (end.at - run.started - kept) * gpu

    def _cut_off(self, until: int) -> None:
        """Count the restarts of attempts that still run when the trace ends."""
        for run in self._machines.runs.values():
            if run.attempt in self.progress.begun and run.started is not None:
                gpu = sum(share.portion for share in run.shares)
                self.progress.meter.lost_time += min(self._restart(run.attempt), until - run.started) * gpu


def _asked_gpu(row: Workload) -> int:
    return sum(group.request.gpu * group.wanted for group in row.groups)


def _asked(row: Workload) -> int:
    """The requested milli-GPUs; 1 without a GPU request, so that it has work to do."""
    return _asked_gpu(row) or 1


def _drawn(jobs: Sequence[Job], seed: int) -> list[Job]:
    """The jobs, with those of the same instant shuffled by the seed; seed 0 keeps the order of the trace."""
    if not seed:
        return list(jobs)
    dice = random.Random(seed)
    found: list[Job] = []
    for _, same in groupby(jobs, key=lambda job: job.workload.created):
        each = list(same)
        dice.shuffle(each)
        found += each
    return found
