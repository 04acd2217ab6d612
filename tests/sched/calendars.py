"""Random calendars of maintenance and reservations, and a referee that checks them independently of the core.

The referee looks at rows and plans only. A node satisfies its bookings if, for every set of projects with
booked GPUs on it, at least as many devices as they booked together carry no claim of another project.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

from pliant.model.booking import Booking, Stage
from pliant.model.machine import Gpu, Placement, Share
from pliant.model.quantity import GPU
from pliant.model.workload import Desired, Task, Workload
from pliant.sched.explain.reserve import reserve
from pliant.sched.plan import Plan, Verb
from tests.sched.ticker import Ticker
from tests.sched.worlds import Scene, world

MINUTE = 60_000
PROJECTS = "a=4 b=3 c=1"
Claims = dict[tuple[str, str], Placement]


class Calendar:
    """One random course of events; every cycle is judged."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        sizes = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
        self.ticker = Ticker(
            world(" ".join(f"n{at}:{size}" for at, size in enumerate(sizes, 1)), PROJECTS),
            start=0,
            stop=random.choice([0, 1_000]),
            judged=False,
        )
        self.jobs = self.booked = self.refused = self.moved = self.evicted = self.began = 0
        self._seen = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self._something()
            self._settled(0)
            if self.random.random() < 0.5:
                self._settled(self.random.randint(1, 10) * MINUTE)

    def _settled(self, wait: int) -> None:
        before = self.ticker.plans and self.ticker.plans[-1]
        until = self.ticker.now + wait
        while True:
            self._ends()
            self._cycles()
            due = [at for at in self._instants() if at > self.ticker.now]
            if self.ticker.now >= until:
                break
            self.ticker.advance(min([until, *due]) - self.ticker.now)
        assert before is not self.ticker.plans[-1]

    def _instants(self) -> list[int]:
        """Times of events without a user: a declared run time ends, a booking begins or ends, a wake-up."""
        t = self.ticker
        rows = [t.scene.workloads[task.workload] for task in t.scene.tasks.values()]
        ends = [
            task.started + row.max_runtime
            for row, task in zip(rows, t.scene.tasks.values(), strict=True)
            if row.max_runtime is not None and task.started is not None and task.carries
        ]
        times = [at for it in t.scene.bookings.values() for at in (it.start, it.end)]
        return ends + times + ([t.plans[-1].wake] if t.plans[-1].wake is not None else [])

    def _ends(self) -> None:
        """Ends the work whose maximum runtime is over, except jobs named `late...`, which overstay."""
        t = self.ticker
        for task in list(t.scene.tasks.values()):
            row = t.scene.workloads[task.workload]
            over = row.max_runtime is not None and task.started is not None and task.carries is not None
            if over and task.started + row.max_runtime <= t.now and not row.name.startswith("late"):
                t.finish(row.name)

    def _cycles(self) -> None:
        t = self.ticker
        for _ in range(60):
            before = claims(t.scene)
            rows = dict(t.scene.tasks)
            plan = t.cycle()
            self._judge(before, rows, plan)
            if not plan.empty:
                continue
            if not t.busy:
                return
            t.advance(max(0, t._events[0][0] - t.now))
        raise AssertionError("no rest")

    # ------------------------------------------------------------------ what people do
    def _something(self) -> None:
        random, t = self.random, self.ticker
        what = random.random()
        running = [row.name for row in t.scene.workloads.values() if not row.phase.final]
        if what < 0.5:
            self._submit()
        elif what < 0.8:
            self._book()
        elif what < 0.87 and t.scene.bookings:
            gone = t.scene.bookings.pop(random.choice(sorted(t.scene.bookings)))
            t.world.drop(gone)
        elif running:
            t.finish(random.choice(running))

    def _submit(self) -> None:
        random = self.random
        self.jobs += 1
        kind = random.choice(["", "", "", "np", "np", f"lasts={random.randint(1, 30) * 60}"])
        if kind == "np" and random.random() < 0.7:
            kind = f"np lasts={random.randint(1, 30) * 60}"
        late = "late" if "lasts" in kind and random.random() < 0.2 else "j"
        shape = random.choice(
            ["g1", "g1", "g2", "g3", "g4", "g0.5", "g1 x2", "g1 x1-3", "elastic g3", "g2 x2"]
        )
        if "np" in kind and ("elastic" in shape or "-" in shape):
            shape = "g1"
        rank = random.choice(["", "p40", "p60"])
        self.ticker.submit(f"{late}{self.jobs} {random.choice('abc')} {shape} {kind} {rank}")

    def _book(self) -> None:
        random, t = self.random, self.ticker
        start = t.now + random.randint(0, 20) * MINUTE
        end = start + random.randint(1, 20) * MINUTE
        names = sorted(t.scene.nodes)
        project = random.choice(["", "a", "b", "c", "c"])
        self.booked += 1
        wish = Booking(f"b{self.booked}", f"b{self.booked}", start, end, (), project)
        gpus = random.randint(1, 5)
        if not project:
            names = [random.choice(names)]
        found = reserve(t.world, t.now, wish, names, gpus)
        may = {name: most(t.scene, t.now, wish, name) for name in names}
        if project:
            assert found.gpus == min(gpus, sum(may.values())), (wish, found, may)
            enough = found.gpus == gpus
        else:
            enough = bool(found.places)
            assert enough == bool(may[names[0]]), (wish, found, may)
        if not enough:
            self.refused += 1
            assert found.bookings or found.workloads or gpus > found.total, found
            return
        t.change(replace(wish, places=found.places))

    # ------------------------------------------------------------------ the referee
    def _judge(self, before: Claims, rows: dict[tuple[str, str], Task], plan: Plan) -> None:
        t = self.ticker
        after = claims(t.scene)
        for name in t.scene.nodes:
            assert holds(t.scene, t.now, name, after), f"{name} is short at {t.now}: {after}"
        for decision in plan.decisions:
            if decision.action != "vacate":
                continue
            row = t.scene.workloads[decision.workload]
            mine = {key: claim for key, claim in before.items() if key[0] == row.id}
            if not row.preemptible:
                started = min(rows[key].started or t.now for key in mine)
                assert row.max_runtime is not None and started + row.max_runtime <= t.now, row.name
            now = {key: claim for key, claim in after.items() if key[0] == row.id}
            others = {key: claim for key, claim in after.items() if key[0] != row.id}
            if now == mine:
                continue
            if not any(it.action in ("reclaim", "preempt", "shrink") for it in plan.decisions):
                assert not self._fits(others | mine), f"{row.name} need not have gone"
            if decision.verb is Verb.EVICT and not now:
                self.evicted += 1
                # Non-preemptible work is not placed where a later booking would lack devices.
                moves = row.preemptible and self._places(row, mine, others)
                assert not moves, f"{row.name} could have moved"
            elif decision.verb is Verb.MOVE:
                self.moved += 1
        self._nothing_idle(plan, after)

    def _nothing_idle(self, plan: Plan, after: Claims) -> None:
        """Asserts that no preemptible workload waits beside room for it, unless a plan is under way."""
        t = self.ticker
        if not plan.empty or t.busy:
            return
        for row in t.scene.workloads.values():
            tasks = [task for task in t.scene.tasks.values() if task.workload == row.id]
            if row.phase.final or row.desired is not Desired.RUNNING or not row.preemptible:
                continue
            if any(key[0] == row.id for key in after):
                continue
            core = {task.key: None for task in tasks[: row.groups[0].min]}
            assert not self._places(row, core, after), f"{row.name} waits beside idle GPUs"

    def _fits(self, claims: Claims) -> bool:
        """True if these claims fit on the devices together and every booking still has its GPUs."""
        scene = self.ticker.scene
        devices: dict[str, int] = {}
        for claim in claims.values():
            for share in claim.shares:
                devices[share.gpu] = devices.get(share.gpu, 0) + share.portion
        return all(sum_ <= GPU for sum_ in devices.values()) and all(
            holds(scene, self.ticker.now, name, claims) for name in scene.nodes
        )

    def _places(self, row: Workload, keys: dict[tuple[str, str], object], others: Claims) -> bool:
        """True if the tasks with these keys have places beside the other claims; tries every place."""
        if not keys:
            return True
        key, *rest = keys
        request = row.groups[0].request
        devices = 1 if row.groups[0].elastic else request.devices
        for node in self.ticker.scene.nodes.values():
            used: dict[str, int] = {}
            for claim in others.values():
                for share in claim.shares:
                    used[share.gpu] = used.get(share.gpu, 0) + share.portion
            room = [gpu for gpu in node.gpus if used.get(gpu.uuid, 0) + request.portion <= GPU]
            for chosen in combinations(room, devices):
                shares = tuple(replace(_whole(gpu), portion=request.portion) for gpu in chosen)
                mine = others | {key: Placement(node.name, shares)}
                if self._fits(mine) and self._places(row, dict.fromkeys(rest), mine):
                    return True
        return False


def _whole(gpu: Gpu) -> Share:
    return Share(gpu.uuid, GPU, gpu.memory)


def claims(scene: Scene) -> Claims:
    return {task.key: task.claims for task in scene.tasks.values() if task.claims is not None}


def active(scene: Scene, at: int, name: str, more: Booking | None = None) -> list[tuple[str, int]]:
    """(project, GPUs) of each booking of a node that is active at an instant."""
    rows = [*scene.bookings.values(), *([more] if more is not None else [])]
    return [
        (it.project, count)
        for it in rows
        if it.stage is not Stage.ENDED and it.start <= at < it.end
        for node, count in it.places
        if node == name
    ]


def holds(scene: Scene, at: int, name: str, claims: Claims, more: Booking | None = None) -> bool:
    """True if with these claims every booking of a node has its GPUs."""
    booked = active(scene, at, name, more)
    here = [(key, claim) for key, claim in claims.items() if claim.node == name]
    if any(not project for project, _ in booked):
        return not here and all(not project for project, _ in booked)
    due: dict[str, int] = {}
    for project, count in booked:
        due[project] = due.get(project, 0) + count
    users: dict[str, set[str]] = {}  # device -> projects; a device that two of them share counts for neither
    for key, claim in here:
        for share in claim.shares:
            users.setdefault(share.gpu, set()).add(scene.workloads[key[0]].project)
    for size in range(1, len(due) + 1):
        for chosen in combinations(sorted(due), size):
            foreign = [it for it in users.values() if len(it) > 1 or it - set(chosen)]
            if len(scene.nodes[name].gpus) - len(foreign) < sum(due[project] for project in chosen):
                return False
    return True


def most(scene: Scene, now: int, wish: Booking, name: str) -> int:
    """The most GPUs of a node that such a booking can have (maintenance: 1 if possible, else 0)."""
    size = len(scene.nodes[name].gpus)
    times = {wish.start, *(it.start for it in scene.bookings.values() if wish.start < it.start < wish.end)}
    for count in range(size if wish.project else 1, 0, -1):
        more = replace(wish, places=((name, count),))
        free = wish.project or not any(active(scene, at, name) for at in times)
        if free and all(holds(scene, at, name, _staying(scene, now, at), more) for at in times):
            return count
    return 0


def _staying(scene: Scene, now: int, at: int) -> Claims:
    """Claims of non-preemptible work that has no declared end at or before the instant `at`."""
    found: Claims = {}
    for task in scene.tasks.values():
        row = scene.workloads[task.workload]
        if task.claims is None or row.preemptible:
            continue
        started = task.started if task.started is not None else now
        if row.max_runtime is None or started + row.max_runtime > at:
            found[task.key] = task.claims
    return found
