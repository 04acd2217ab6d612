"""The scheduling rules, restated independently of the core, against which every plan is judged.

It looks at rows and plans only, never at the world's indexes. `judge` is called before a plan is carried out,
`weigh` after it; both raise an AssertionError that names the workload, task, device, node or queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from pliant.model.machine import Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import AttemptId, Desired, Task, TaskPhase, Workload
from pliant.sched.plan import Decision, Plan, Verb
from tests.sched.ledger import Books, Key, claimed, missing, needy, overlaid, wanted
from tests.sched.worlds import Scene, cost

TAKING = frozenset({"shrink", "consolidate", "reclaim", "preempt"})
"""Actions that take from one workload for another."""


def judge(scene: Scene, occupied: Mapping[AttemptId, tuple[Placement, ...]], plan: Plan, now: int) -> None:
    after = overlaid(scene, plan)
    _rows(scene, plan)
    _intents(scene, after, occupied, plan, now)
    _places(scene, after)
    _gangs(scene, after, plan)
    _quotas(scene, after)
    _decisions(scene, after, plan)
    _victims(scene, after, plan, now)
    _verdicts(scene, after, plan)


def weigh(scene: Scene, occupied: Mapping[AttemptId, tuple[Placement, ...]]) -> None:
    """Live attempts fit on their nodes; `occupied` is built from the orders sent and the ends seen."""
    devices: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    ram: Counter[str] = Counter()
    owners: dict[str, set[str]] = defaultdict(set)
    for placements in occupied.values():
        shares: dict[str, tuple[int, int]] = {}
        for place in placements:
            for share in place.shares:
                owners[share.gpu].add(share.owner)
                portion, amount = shares.get(share.gpu, (0, 0))
                shares[share.gpu] = (max(portion, share.portion), max(amount, share.memory))
        for uuid, (portion, amount) in shares.items():
            devices[uuid] += portion
            memory[uuid] += amount
        cpu[placements[0].node] += max(place.cpu for place in placements)
        ram[placements[0].node] += max(place.memory for place in placements)
    for node in scene.nodes.values():
        for gpu in node.gpus:
            assert devices[gpu.uuid] <= (0 if gpu.foreign else GPU), f"{gpu.uuid} carries {devices[gpu.uuid]}"
            assert len(owners[gpu.uuid]) <= 1, f"{gpu.uuid} carries parts of {owners[gpu.uuid]}"
            assert memory[gpu.uuid] <= gpu.memory, f"{gpu.uuid} carries {memory[gpu.uuid]} bytes"
        assert cpu[node.name] <= node.cpu, f"{node.name} carries {cpu[node.name]} millicores"
        assert ram[node.name] <= node.memory, f"{node.name} carries {ram[node.name]} bytes"
    live = {AttemptId(*task.key, task.attempt) for task in scene.tasks.values() if task.carries}
    assert live == set(occupied), f"rows and log disagree on what lives: {live ^ set(occupied)}"
    for task in scene.tasks.values():
        assert (task.carries is not None) == task.phase.live, (
            f"{task.key} is {task.phase}, carries {task.carries}"
        )


def _rows(scene: Scene, plan: Plan) -> None:
    """A plan writes each changed task once and no unchanged task."""
    keys = [task.key for task in plan.tasks]
    assert len(keys) == len(set(keys)), f"a task is written twice: {keys}"
    for task in plan.tasks:
        old = scene.tasks[task.key]
        assert task != old, f"{task.key} is written but did not change"
        assert (task.group, task.index, task.failures) == (old.group, old.index, old.failures)


def _intents(
    scene: Scene,
    after: Mapping[Key, Task],
    occupied: Mapping[AttemptId, tuple[Placement, ...]],
    plan: Plan,
    now: int,
) -> None:
    names = [
        (intent.attempt.workload, intent.attempt.task)
        for intent in (*plan.starts, *plan.stops, *plan.resizes)
    ]
    assert len(names) == len(set(names)), f"two intents for one task: {names}"
    for intent in (*plan.starts, *plan.stops, *plan.resizes):
        assert -1 <= intent.decision < len(plan.decisions)
        if intent.decision >= 0:
            assert plan.decisions[intent.decision].workload == intent.attempt.workload, intent
    for start in plan.starts:
        old, new = scene.tasks[start.attempt[:2]], after[start.attempt[:2]]
        workload = scene.workloads[old.workload]
        assert not old.phase.live and start.attempt.number == old.attempt + 1, f"{start} of {old}"
        assert new.phase is TaskPhase.ORDERED and new.attempt == start.attempt.number, f"{new} after {start}"
        assert new.claims == new.carries == start.placement and new.started is None, f"{new} after {start}"
        assert workload.desired is Desired.RUNNING and not workload.phase.final, f"{start} of {workload}"
        assert old.retry_at is None or old.retry_at <= now, f"{start} before its back-off ended"
        assert scene.nodes[start.placement.node].ready, f"{start} on a node that is lost"
    for stop in plan.stops:
        old, new = scene.tasks[stop.attempt[:2]], after[stop.attempt[:2]]
        assert old.phase in (TaskPhase.ORDERED, TaskPhase.RUNNING), f"{stop} of {old}"
        assert stop.attempt.number == old.attempt and stop.attempt in occupied, f"{stop} of {old}"
        assert new.phase is TaskPhase.STOPPING and new.carries == old.carries, f"{new} after {stop}"
        assert new.claims != old.carries, f"{stop} though it keeps what it carries"
        assert stop.reason.code and stop.reason.text(0), f"{stop} says no reason"
    for resize in plan.resizes:
        old, new = scene.tasks[resize.attempt[:2]], after[resize.attempt[:2]]
        assert scene.workloads[old.workload].group(old.group).live_resize, f"{resize} of a task that cannot"
        assert resize.attempt.number == old.attempt and old.phase in (TaskPhase.ORDERED, TaskPhase.RUNNING)
        assert old.carries and resize.placement.node == old.carries.node, f"{resize} to another node"
        assert new.claims and new.claims.node == resize.placement.node, f"{resize} is not where it claims"
        assert set(resize.placement.shares) <= set(new.claims.shares), f"{resize} is not what it claims"
        both = {*old.carries.shares, *resize.placement.shares}
        assert new.carries and set(new.carries.shares) == both, (
            f"{new} carries not old and new after {resize}"
        )
    started, stopped = {s.attempt[:2] for s in plan.starts}, {s.attempt[:2] for s in plan.stops}
    resized = {r.attempt[:2] for r in plan.resizes}
    for key, new in after.items():
        old = scene.tasks[key]
        if key not in started:
            assert new.attempt == old.attempt, f"{key} is another attempt without a start"
            assert key in resized or new.carries == old.carries, (
                f"{key} carries something else without an order"
            )
            if key not in stopped:
                assert new.phase is old.phase, f"{key} went {old.phase} -> {new.phase} without an order"


def _places(scene: Scene, after: Mapping[Key, Task]) -> None:
    """Claims have the shape of their request, are on allowed nodes and fit on the devices and nodes."""
    portion: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    sums: dict[str, Resources] = defaultdict(Resources)
    gpus = {gpu.uuid: gpu for node in scene.nodes.values() for gpu in node.gpus}
    pools: dict[str, set[str]] = defaultdict(set)
    for key, task in after.items():
        place, old = task.claims, scene.tasks[key].claims
        if place is None:
            continue
        workload, node = scene.workloads[task.workload], scene.nodes[place.node]
        request = workload.group(task.group).request
        carries = scene.tasks[key].carries
        stays = carries is not None and carries.node == node.name
        assert node.ready or stays, f"{key} claims on lost node {node.name}"
        sums[node.name] = sums[node.name].plus(place.resources)
        for share in place.shares:
            portion[share.gpu] += share.portion
            memory[share.gpu] += share.memory
        pools[workload.id].add(scene.pool_of(node))
        if place == old:
            continue
        assert workload.desired is Desired.RUNNING and not workload.phase.final, f"{key} is given a place"
        assert workload.group(task.group).elastic or len(place.shares) == request.devices, f"{key}: {place}"
        assert place.shares or not request.devices, f"{key} claims no GPU"
        assert [s.gpu for s in place.shares] == [g.uuid for g in node.gpus if g.uuid in place.uuids], (
            f"{place}"
        )
        assert (place.cpu, place.memory) == (request.cpu, request.memory), f"{key}: {place}"
        for share in place.shares:
            assert share == cost(request, gpus[share.gpu]), f"{key} claims {share} for {request}"
        kept = old.shares if old and old.node == place.node else ()
        if old is None or old.node != place.node or set(place.shares) - set(kept):
            _allowed(scene, workload, place)
    for node in scene.nodes.values():
        for gpu in node.gpus:
            assert portion[gpu.uuid] <= GPU and memory[gpu.uuid] <= gpu.memory, f"{gpu.uuid} is claimed twice"
        assert sums[node.name].cpu <= node.cpu and sums[node.name].memory <= node.memory, (
            f"{node.name}: {sums}"
        )
    for name, found in pools.items():
        independent = all(group.at_once for group in scene.workloads[name].groups)
        assert independent or len(found) == 1, f"{name} lies in several pools: {sorted(found)}"


def _allowed(scene: Scene, workload: Workload, place: Placement) -> None:
    node, project = scene.nodes[place.node], scene.projects[workload.project]
    assert node.ready and not node.draining, f"{workload.name} goes to closed {node.name}"
    foreign = {gpu.uuid for gpu in node.gpus if gpu.foreign}
    assert not foreign & set(place.uuids), f"{workload.name} claims what others use on {node.name}"
    pools = workload.pools or project.default_pools
    assert not pools or scene.pool_of(node) in pools, f"{workload.name} goes to pool {scene.pool_of(node)}"
    assert workload.node_type in ("", node.label("run.ai/type")), f"{workload.name} goes to {node.labels}"
    kinds = project.interactive_node_types if workload.kind == "Workspace" else project.training_node_types
    assert not kinds or node.label("run.ai/type") in kinds, f"{workload.name} goes to {node.labels}"


def _gangs(scene: Scene, after: Mapping[Key, Task], plan: Plan) -> None:
    """A core is claimed and started together, and lost together."""
    by_workload: dict[str, list[Task]] = defaultdict(list)
    for task in after.values():
        by_workload[task.workload].append(task)
    for name, tasks in by_workload.items():
        workload = scene.workloads[name]
        before = [scene.tasks[task.key] for task in tasks]
        given = any(new.claims and not old.claims for new, old in zip(tasks, before, strict=True))
        taken = any(old.claims and not new.claims for new, old in zip(tasks, before, strict=True))
        lacks, lacked = missing(workload, tasks), missing(workload, before)
        if given:
            assert not lacks, f"{name} is given a part of its gang: {tasks}"
        elif taken and lacks and not lacked:
            lost = any(t.claims and not _stands(scene, t.claims.node) for t in before)
            assert lost or not any(t.claims for t in tasks), f"{name} keeps the rest of its gang: {tasks}"
        if lacks and any(t.claims for t in tasks):
            assert any(t.phase.live for t in tasks), f"{name} holds places of which none is in use: {tasks}"
        if any(s.attempt.workload == name for s in plan.starts) and not any(t.phase.live for t in before):
            have = Counter(t.group for t in tasks if t.phase.live or t.phase is TaskPhase.SUCCEEDED)
            for group in workload.groups:
                assert have[group.name] >= group.min, f"{name} starts without its gang: {tasks}"


def _stands(scene: Scene, node: str) -> bool:
    return node in scene.nodes and scene.nodes[node].ready and not scene.nodes[node].draining


def _quotas(scene: Scene, after: Mapping[Key, Task]) -> None:
    """A plan exceeds no limit and no non-preemptible quota; what exceeded one before may only fall."""
    old, new = Books.of(scene, scene.tasks.values()), Books.of(scene, after.values())
    for (queue, pool), used in new.used.items():
        quota = new.quota(queue, pool)
        was = old.used[queue, pool]
        for name, cap in (("gpu", quota.gpu_limit), ("cpu", quota.cpu_limit), ("memory", quota.memory_limit)):
            more, less = getattr(used, name), getattr(was, name)
            assert cap == UNLIMITED or more <= max(cap, less), (
                f"{queue} has {more} {name} over limit {cap} in {pool}"
            )
        fixed, was = new.fixed[queue, pool], old.fixed[queue, pool]
        deserved = new.deserved(queue, pool)
        for name, cap in (("gpu", deserved), ("cpu", quota.cpu), ("memory", quota.memory)):
            more, less = getattr(fixed, name), getattr(was, name)
            assert cap == UNLIMITED or more <= max(cap, less), (
                f"{queue} has {more} non-preemptible {name} over its quota {cap} in {pool}"
            )


def _decisions(scene: Scene, after: Mapping[Key, Task], plan: Plan) -> None:
    """Every change has a decision with a reason, and the decision's numbers are true."""
    have = Counter(claimed(scene.tasks.values()))
    for decision in plan.decisions:
        assert decision.gpu_before == have[decision.workload], (
            f"{decision} but it has {have[decision.workload]}"
        )
        have[decision.workload] = decision.gpu_after
        reason = decision.reason
        assert reason.code and reason.text(0).strip() and isinstance(reason.numbers, tuple), f"{decision}"
        assert decision.workload in scene.workloads
        assert decision.beneficiary in ("", *scene.workloads), decision
    truth = claimed(after.values())
    assert +Counter(have) == +Counter(truth), f"decisions say {have}, claims are {truth}"
    told = {(decision.workload, task) for decision in plan.decisions for task in decision.tasks}
    for key, task in after.items():
        assert task.claims == scene.tasks[key].claims or key in told, f"{key} changed without a decision"


def _victims(scene: Scene, after: Mapping[Key, Task], plan: Plan, now: int) -> None:
    books = Books.of(scene, scene.tasks.values())
    only = next(pool.name for pool in scene.pools.values()) if len(scene.pools) == 1 else ""
    known = {task.workload for task in (*scene.tasks.values(), *after.values()) if task.claims}
    # If a plan gives and takes back the same thing, its pool is unknown unless there is only one.
    told = bool(only) or all(d.verb is not Verb.PLACE or d.workload in known for d in plan.decisions)
    for decision in plan.decisions:
        victim = scene.workloads[decision.workload]
        tasks = [t for t in scene.tasks.values() if t.workload == victim.id]
        news = [t for t in after.values() if t.workload == victim.id]
        found = (*news, *tasks) if decision.verb is Verb.PLACE else (*tasks, *news)
        before = next((t.claims for t in found if t.claims), None)
        lost = decision.gpu_before - decision.gpu_after
        pool = books.pool(before.node) if before and before.node in scene.nodes else only
        if decision.verb in (Verb.SHRINK, Verb.MOVE, Verb.EVICT) and decision.action in TAKING:
            may_grow = any(group.elastic or group.wanted < group.max for group in victim.groups)
            bonus = max(0, decision.gpu_before - wanted(victim, tasks)) if may_grow else 0
            only_bonus = decision.verb is Verb.SHRINK and 0 < lost <= bonus
            only_bonus = only_bonus or (victim.background and decision.verb is not Verb.MOVE)
            spare = victim.semi_preemptible and decision.verb is Verb.SHRINK and not missing(victim, news)
            assert victim.preemptible or only_bonus or spare, f"{victim.name} may lose nothing: {decision}"
            assert decision.beneficiary and decision.beneficiary != victim.id, f"{decision} is for nobody"
            winner = scene.workloads[decision.beneficiary]
            if decision.verb is not Verb.SHRINK and not victim.background:
                _protected(scene, victim, tasks, pool, now)
            if decision.action == "preempt" and not only_bonus and decision.verb is not Verb.MOVE:
                assert winner.project == victim.project, f"{decision} across projects"
                highest = max(_priorities(winner))
                assert highest > min(_priorities(victim)), f"{decision} without a higher priority"
            if decision.action in ("shrink", "consolidate"):
                assert only_bonus or decision.verb is Verb.MOVE, f"{decision} costs more than bonus"
            lost_core = not only_bonus and decision.verb is not Verb.MOVE
            if decision.action == "reclaim" and lost_core and told:
                _over(books, victim, winner, pool, min(lost, bonus), decision)
        amount = Resources(gpu=-lost)
        if pool and victim.id in scene.workloads:
            books.add(victim, pool, amount)


def _priorities(workload: Workload) -> list[int]:
    return [workload.priority if g.priority is None else g.priority for g in workload.groups]


def _protected(scene: Scene, victim: Workload, tasks: Iterable[Task], pool: str, now: int) -> None:
    safe = next((p.min_runtime for p in scene.pools.values() if p.name == pool), 0)
    for task in tasks:
        if (
            len(victim.groups) == 1 == victim.groups[0].max
            and task.phase is TaskPhase.RUNNING
            and task.started
        ):
            assert now - task.started >= safe, f"{victim.name} is stopped before {safe} ms"


def _over(
    books: Books, victim: Workload, winner: Workload, pool: str, bonus: int, decision: Decision
) -> None:
    """At the first level where their queues differ, the victim's exceeds its quota before the loss."""
    assert winner.project != victim.project, f"{decision} inside one project"
    ours, theirs = books.path(winner), books.path(victim)
    level = next(i for i in range(2) if ours[i] != theirs[i])
    queue = theirs[level]
    deserved = books.deserved(queue, pool)
    have = books.used[queue, pool].gpu - bonus
    assert deserved != UNLIMITED and have > deserved, f"{queue} has {have} of {deserved} and loses {decision}"


def _verdicts(scene: Scene, after: Mapping[Key, Task], plan: Plan) -> None:
    """Each workload that lacks something has exactly one verdict."""
    told = Counter(verdict.workload for verdict in plan.verdicts)
    assert not told or max(told.values()) == 1, f"told twice: {told}"
    for name in needy(scene, after):
        assert told[name] == 1, (
            f"{name} waits and is not told why: {[t for t in after.values() if t.workload == name]}"
        )
    for verdict in plan.verdicts:
        assert verdict.workload in scene.workloads and verdict.position >= 0
        assert verdict.reason.code and verdict.reason.text(0).strip(), f"{verdict}"
