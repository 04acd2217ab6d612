"""Finds the least loss with an exact solver, as the reference for the victim search.

Restates the rules for worlds without limits, moves, minimum run times, cores and memory: the first action in
order (shrink, reclaim, preempt) for which some set of victims suffices, and for it the set with the fewest
workloads below their core, then the fewest GPUs lost, then the first in eviction order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from pliant.model.machine import DEFAULT_POOL
from pliant.model.quantity import GPU
from pliant.model.workload import Task, Workload
from pliant.sched.placement.eligibility import pending
from pliant.sched.plan import Plan, Verb
from pliant.sched.shares.entitlement import standings
from tests.sched.worlds import Scene

ACTIONS = ("shrink", "reclaim", "preempt")


@dataclass(frozen=True)
class Loss:
    """What victims lose: devices by workload, and the workloads left without their core."""

    devices: dict[str, int]
    milli: dict[str, int]
    cores: frozenset[str]
    order: int  # places in the order of victims, as bits: smaller is better

    @property
    def price(self) -> tuple[int, int, int]:
        return len(self.cores), sum(self.milli.values()), self.order


@dataclass
class _Holder:
    """One running workload as variables of the solver."""

    row: Workload
    tasks: list[Task]
    kept: dict[tuple[str, str], cp_model.IntVar] = field(default_factory=dict)  # (task, GPU)
    gone: cp_model.IntVar | None = None
    bonus: int = 0  # devices (or tasks) above what it asked for
    size: int = GPU  # milli-GPUs of one device

    @property
    def total(self) -> int:
        """In devices."""
        return len(self.kept)

    @property
    def lost(self) -> cp_model.LinearExprT:
        return self.total - sum(self.kept.values())


class Exact:
    def __init__(self, scene: Scene, winner: str) -> None:
        self.scene = scene
        self.winner = scene.workloads[winner]
        world = scene.world()
        world.update_sets()
        asked = pending(world).get(DEFAULT_POOL, {})
        self.standing = standings(world, DEFAULT_POOL, asked)
        bare = dict(asked)
        for row in scene.workloads.values():
            bonus = world.need(row.id).bonus_gpu
            if bonus:
                known = bare.get(row.project, asked.get(row.project, type(world.use("", "").claimed)()))
                bare[row.project] = known._replace(gpu=known.gpu - bonus)
        self.bare = standings(world, DEFAULT_POOL, bare)
        self.lending = standings(world, DEFAULT_POOL, bare, lend=True)
        self.used = {pid: world.use(pid, DEFAULT_POOL).claimed.gpu for pid in scene.projects}
        self.lent = {
            pid: sum(world.need(w.id).bonus_gpu for w in scene.workloads.values() if w.project == pid)
            for pid in scene.projects
        }
        self.asks = sum(group.request.gpu * group.min for group in self.winner.groups)

    def best(self, within: dict[str, int] | None = None) -> tuple[str, Loss] | None:
        """The first action with a solution, and its least loss; None if no action has one.

        `within` bounds what each workload may lose, in devices: it tests whether a smaller loss suffices.
        """
        fixed = sum(
            task.claims.gpu
            for task in self.scene.tasks.values()
            if task.claims
            and not (row := self.scene.workloads[task.workload]).preemptible
            and row.project == self.winner.project
        )
        deserved = self.standing[self.winner.project].deserved.gpu
        if not self.winner.preemptible and fixed + self.asks > deserved:
            return None
        for action in ACTIONS:
            found = self.least(action, within)
            if found is not None:
                return action, found
        return None

    def least(self, action: str, within: dict[str, int] | None = None) -> Loss | None:
        if action == "reclaim" and not self._entitled():
            return None
        model = cp_model.CpModel()
        holders = [self._holder(model, row) for row in self.scene.workloads.values() if row != self.winner]
        holders = [holder for holder in holders if holder.total]
        self._fits(model, holders)
        for holder in holders:
            self._steps(model, holder, action)
            if within is not None:
                model.add(holder.total - sum(holder.kept.values()) <= within.get(holder.row.id, 0))
        if action == "reclaim":
            self._donors(model, holders)
        if action == "preempt":
            self._bounded(model, holders)
        return self._solve(model, holders)

    # ---- who holds what ----

    def _holder(self, model: cp_model.CpModel, row: Workload) -> _Holder:
        tasks = [task for task in self.scene.tasks_of(row.id) if task.claims]
        holder = _Holder(row, tasks, size=row.groups[0].request.portion)
        for task in tasks:
            assert task.claims is not None
            for share in task.claims.shares:
                holder.kept[task.name, share.gpu] = model.new_bool_var(f"{task.key}{share.gpu}")
        group = row.groups[0]
        gone = holder.gone = model.new_bool_var(f"{row.id} gone")
        if group.elastic:
            holder.bonus = max(0, holder.total - group.request.devices)
            model.add(sum(holder.kept.values()) == 0).only_enforce_if(gone)
            model.add(sum(holder.kept.values()) >= 1).only_enforce_if(~gone)
            return holder
        for task in tasks:  # all devices of a task or none
            mine = [var for (name, _), var in holder.kept.items() if name == task.name]
            for var in mine[1:]:
                model.add(var == mine[0])
        each = group.request.devices
        holder.bonus = max(0, len(tasks) - group.wanted) * each
        model.add(sum(holder.kept.values()) == 0).only_enforce_if(gone)
        if holder.total:
            model.add(sum(holder.kept.values()) >= group.min * each).only_enforce_if(~gone)
        return holder

    def _fits(self, model: cp_model.CpModel, holders: list[_Holder]) -> None:
        """The winner's core has its places beside what is kept."""
        on: dict[str, list[cp_model.LinearExprT]] = {}
        for holder in holders:
            for (_, uuid), var in holder.kept.items():
                on.setdefault(uuid, []).append(holder.size * var)
        for group in self.winner.groups:
            for at in range(group.min):
                places = []
                for node in self.scene.nodes.values():
                    here = model.new_bool_var(f"{group.name}{at}@{node.name}")
                    uses = []
                    for gpu in node.gpus:
                        use = model.new_bool_var(f"{group.name}{at}@{gpu.uuid}")
                        uses.append(use)
                        on.setdefault(gpu.uuid, []).append(group.request.portion * use)
                    model.add(sum(uses) == group.request.devices * here)
                    places.append(here)
                model.add_exactly_one(places)
        for terms in on.values():
            model.add(sum(terms) <= GPU)

    # ---- what may be taken ----

    def _steps(self, model: cp_model.CpModel, holder: _Holder, action: str) -> None:
        lost = holder.total - sum(holder.kept.values())
        row, group = holder.row, holder.row.groups[0]
        priority = row.priority if group.priority is None else group.priority
        may = row.preemptible
        if action == "shrink":
            may = False
        elif action == "reclaim":
            standing, own = self.bare[row.project], row.project != self.winner.project
            have = self.used[row.project] - self.lent[row.project]
            mine = self.bare[self.winner.project].rank
            fair = standing.rank <= mine and have > standing.allocatable.gpu
            quota = self._below() and have > standing.deserved.gpu
            may = may and own and (fair or quota)
        else:
            may = may and row.project == self.winner.project and priority < self.winner.priority
        if not may:
            model.add(lost <= holder.bonus)
            model.add(holder.gone == 0)

    def _below(self) -> bool:
        project = self.winner.project
        own = self.used[project] - self.lent[project]
        return own + self.asks <= self.bare[project].deserved.gpu

    def _entitled(self) -> bool:
        project = self.winner.project
        return self.used[project] - self.lent[project] + self.asks <= self.bare[project].fair.gpu

    def _donors(self, model: cp_model.CpModel, holders: list[_Holder]) -> None:
        """A project that gives more than bonus is above its due, without bonus, before its last loss."""
        for pid in self.scene.projects:
            standing = self.bare[pid]
            due = (
                min(standing.deserved.gpu, standing.allocatable.gpu)
                if self._below()
                else standing.allocatable.gpu
            )
            mine = [holder for holder in holders if holder.row.project == pid]
            lost = sum(holder.size * (holder.total - sum(holder.kept.values())) for holder in mine)
            lasts, sizes = [], []
            deep = []  # true for a workload that loses more than its bonus
            for holder in mine:
                beyond = model.new_bool_var(f"{holder.row.id} beyond")
                gives = holder.total - sum(holder.kept.values())
                model.add(gives <= holder.bonus).only_enforce_if(~beyond)
                model.add(gives >= holder.bonus + 1).only_enforce_if(beyond)
                last = model.new_bool_var(f"{holder.row.id} last")
                model.add(last <= beyond)
                size = model.new_int_var(0, holder.size * holder.total, f"{holder.row.id} size")
                group = holder.row.groups[0]
                one = holder.size * (1 if group.elastic else group.request.devices)
                core = holder.size * (1 if group.elastic else group.request.devices * group.min)
                model.add(size <= max(one, core) * last)
                model.add(size <= one).only_enforce_if(
                    ~holder.gone
                )  # a portion, or the core after all portions
                deep.append(beyond)
                lasts.append(last)
                sizes.append(size)
            if not mine:
                continue
            any_ = model.new_bool_var(f"{pid} gives")
            model.add_max_equality(any_, deep)
            model.add(sum(lasts) == any_)
            left = self.used[pid] - lost - sum(self._still_lent(model, holder) for holder in mine)
            model.add(left + sum(sizes) >= due + 1).only_enforce_if(any_)
            if not self._below():
                self._lasts(model, pid, left, mine, deep)

    def _still_lent(self, model: cp_model.CpModel, holder: _Holder) -> cp_model.LinearExprT:
        """Milli-GPUs that it keeps as bonus."""
        still = model.new_int_var(0, holder.bonus, f"{holder.row.id} still has bonus")
        model.add_max_equality(still, [0, holder.bonus - holder.lost])
        return holder.size * still

    def _lasts(
        self,
        model: cp_model.CpModel,
        pid: str,
        left: cp_model.LinearExprT,
        mine: list[_Holder],
        deep: list[cp_model.IntVar],
    ) -> None:
        """Nothing beyond bonus is taken if its project's quota would have room for it again."""
        quota = self.bare[pid].deserved.gpu
        for holder, beyond in zip(mine, deep, strict=True):
            group = holder.row.groups[0]
            one = 1 if group.elastic else group.request.devices
            core = 1 if group.elastic else group.request.devices * group.min
            smallest = one if holder.total - holder.bonus > core else core
            model.add(left + holder.size * smallest >= quota + 1).only_enforce_if(beyond)

    def _bounded(self, model: cp_model.CpModel, holders: list[_Holder]) -> None:
        """A preemption lifts its project to at most the larger of its fair share and what it had before."""
        project = self.winner.project
        before = self.used[project] - self.lent[project]
        most = max(before, self.lending[project].fair.gpu)
        kept = []
        for holder in holders:
            if holder.row.project == project:
                have = sum(holder.kept.values())
                plain = model.new_int_var(0, holder.total, f"{holder.row.id} without bonus")
                model.add_min_equality(plain, [have, holder.total - holder.bonus])
                kept.append(holder.size * plain)
        model.add(sum(kept) + self.asks <= most)

    # ---- the least ----

    def _solve(self, model: cp_model.CpModel, holders: list[_Holder]) -> Loss | None:
        cores = sum(holder.gone for holder in holders)
        milli = sum(holder.size * holder.lost for holder in holders)
        order = sum(var * (1 << place) for place, var in enumerate(self._ranked(model, holders)))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = 20
        for goal in (cores, milli, order):
            model.minimize(goal)
            status = solver.solve(model)
            if status == cp_model.INFEASIBLE:
                return None
            assert status == cp_model.OPTIMAL, solver.status_name(status)
            model.add(goal == round(solver.objective_value))
        gone = frozenset(holder.row.id for holder in holders if solver.value(holder.gone))
        devices = {holder.row.id: solver.value(holder.lost) for holder in holders}
        return self.loss({wid: count for wid, count in devices.items() if count}, gone)

    def _ranked(self, model: cp_model.CpModel, holders: list[_Holder]) -> list[cp_model.IntVar]:
        """One variable for each possible loss, in eviction order."""
        found = []
        for holder in holders:
            for step in (0, 1, 2):
                hit = model.new_bool_var(f"{holder.row.id} loses {step}")
                if step == 0:
                    model.add(hit == holder.gone)
                else:
                    least = holder.bonus if step == 1 else 0
                    model.add(holder.lost <= least).only_enforce_if(~hit, ~holder.gone)
                found.append((self.rank(holder.row, step), hit))
        return [hit for _, hit in sorted(found, key=lambda entry: entry[0])]

    def rank(self, row: Workload, step: int) -> tuple[int, ...]:
        """Smaller is lost first: the queue most above its due, low priority, surplus, the youngest."""
        standing = self.standing[row.project]
        due = standing.allocatable.gpu
        have = self.used[row.project] << 32
        return (standing.rank, -(have // due if due else have), row.priority, -step, -row.serial)

    def loss(self, devices: dict[str, int], gone: frozenset[str]) -> Loss:
        """The price when workloads lose this many devices each."""
        holders = {row.id: self._holder(cp_model.CpModel(), row) for row in self.scene.workloads.values()}
        places = sorted(self.rank(holder.row, step) for holder in holders.values() for step in (0, 1, 2))
        order = 0
        for wid, count in devices.items():
            bonus = holders[wid].bonus
            steps = [0] if wid in gone else [2] * (bonus > 0) + [1] * (count > bonus)
            order |= sum(1 << places.index(self.rank(holders[wid].row, step)) for step in steps)
        return Loss(devices, {wid: n * holders[wid].size for wid, n in devices.items()}, gone, order)

    def of_plan(self, plan: Plan, kept: bool = False) -> tuple[str, Loss] | None:
        """The action by which a plan takes for the winner, and the loss; None if it takes nothing.

        A moved workload counts as lost; with `kept` it does not.
        """
        takes = [d for d in plan.decisions if d.beneficiary == self.winner.id]
        if not takes:
            return None
        devices: dict[str, int] = {}
        gone = set()
        after = {row.key: row.claims for row in plan.tasks}
        for decision in takes:
            holder = self._holder(cp_model.CpModel(), self.scene.workloads[decision.workload])
            lost = (decision.gpu_before - decision.gpu_after) // holder.size
            whole = decision.verb is Verb.EVICT
            if decision.verb is Verb.MOVE and not kept:
                moved = {
                    task.name for task in holder.tasks if after.get(task.key, task.claims) != task.claims
                }
                lost = sum(1 for name, _ in holder.kept if name in moved)
                whole = len(holder.tasks) - len(moved) < holder.row.groups[0].min
            if whole:
                gone.add(decision.workload)
            devices[decision.workload] = holder.total if whole else lost
        return takes[-1].action, self.loss(devices, frozenset(gone))
