"""Each remedy unblocks its workload, and one unit less does not, on random clusters at rest."""

import os
import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from pliant.model.quantity import GPU
from pliant.model.reason import sentence
from pliant.model.workload import Request, Workload
from pliant.sched.cycle import decide
from pliant.sched.explain.never import never
from pliant.sched.explain.remedies import Remedy, cures
from pliant.sched.explain.trial import apply, narrowed, started
from pliant.sched.explain.unblock import Unblocking
from pliant.sched.placement import eligibility
from pliant.sched.world.state import World
from tests.sched.worlds import put_job
from tests.why.draw import NOW, SETTINGS, job, scene, waiting

SEED = int(os.environ.get("PLIANT_SEED", "20261120"))


def holds(world: World, workload: str, remedy: Remedy, wake: int | None) -> tuple[bool, bool]:
    """(it starts with the change, it starts with one unit less), each on a fresh world."""
    if remedy.kind == "wait":
        return tuple(  # type: ignore[return-value]
            started(world, decide(world.fresh(), NOW + ms, SETTINGS), workload)
            for ms in (remedy.cure.count, remedy.cure.count - 1)
        )

    def starts(change) -> bool:
        other = world.fresh()
        apply(other, change)
        other = other.fresh()
        other.check()
        return started(other, decide(other, NOW, SETTINGS), workload)

    return starts(remedy.change), any(starts(less) for less in remedy.less)


def judge(count: int, capsys: pytest.CaptureFixture[str], seed: int = SEED) -> None:
    kinds: Counter[str] = Counter()
    wrong: list[str] = []
    unknown: list[str] = []
    answers = impossible = 0
    for number in range(seed, seed + count):
        world, plan, wid = waiting(number)
        before = world.snapshot()
        reason = next(verdict.reason for verdict in plan.verdicts if verdict.workload == wid)
        found = Unblocking(world, NOW, SETTINGS, decide, wid).run(reason, plan.wake)
        assert world.snapshot() == before, f"seed {number}: the search left something behind"
        kinds.update({remedy.kind for remedy in found})
        if not found:
            unknown.append(f"seed {number}: {wid}: {reason.code}")
        for remedy in found:
            answers += 1
            fits = len(remedy.steps) > 1 or remedy.kind in cures(reason.code)
            assert fits, f"seed {number}: {wid}: {reason.code} is not cured by {remedy.kind}"
            does, less_does = holds(world, wid, remedy, plan.wake)
            if not does or less_does:
                wrong.append(f"seed {number}: {wid}: {sentence(remedy.steps)}: {does}, with less {less_does}")
        said = never(world, NOW, SETTINGS, decide, wid)
        impossible += said
        assert said == hopeless(world, world.workloads[wid]), f"seed {number}: {wid}: {said}"
    with capsys.disabled():
        print(
            f"\n  {count} waiting workloads from seed {seed}: {answers} answers, {len(wrong)} wrong,"
            f" {len(unknown)} unknown, {impossible} never; {dict(kinds.most_common())}"
        )
    assert len(wrong) <= answers // 200, wrong
    assert len(unknown) <= count // 100, unknown
    assert len(kinds) >= 4
    assert impossible


@pytest.mark.slow
def test_what_is_said_to_unblock_does(capsys):
    judge(100, capsys)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_what_is_said_to_unblock_does_in_a_thousand_clusters(capsys):
    judge(1_000, capsys, SEED + 10_000)


# ---------------------------------------------------------------------- by trying everything


def hopeless(world: World, row: Workload) -> bool:
    """True if its core has no place on the empty nodes that it may use; tries all of them."""
    tasks = [
        replace(group.request, devices=1) if group.elastic else group.request
        for group in row.groups
        for _ in range(group.min)
    ]
    for pool in (
        eligibility.choices(world, row) if not row.pools else [p for p in row.pools if p in world.pools]
    ):
        kinds = row.node_type
        nodes = [
            state.row
            for state in world.nodes.values()
            if state.row.ready
            and not state.row.draining
            and world.pool_of(state.row) == pool
            and kinds in ("", state.row.label("run.ai/type"))
        ]
        if any(fits(nodes, tasks, places) for places in product(range(len(nodes)), repeat=len(tasks))):
            return False
    return True


def fits(nodes, tasks: list[Request], places: tuple[int, ...]) -> bool:
    """True if each task fits on its node in `places`, beside the others there."""
    for at, node in enumerate(nodes):
        mine = [request for request, place in zip(tasks, places, strict=True) if place == at]
        if sum(r.cpu for r in mine) > node.cpu or sum(r.memory for r in mine) > node.memory:
            return False
        if not devices_fit([gpu.memory for gpu in node.gpus if not gpu.foreign], mine):
            return False
    return True


def devices_fit(cards: list[int], tasks: list[Request]) -> bool:
    """True if equal tasks fit on the cards, each as often as its thousandths and its memory allow."""
    wanted = sum(request.devices for request in tasks)
    if not wanted:
        return True
    request, room = tasks[0], 0
    for memory in cards:
        if request.gpu_memory:
            part = -(-request.gpu_memory * GPU // memory)
            room += 0 if request.gpu_memory > memory else GPU // part
        else:
            room += GPU // request.portion
    if any(request.devices > len(cards) for request in tasks):
        return False
    return wanted <= room


# ---------------------------------------------------------------------- with less to look at


@pytest.mark.parametrize("seed", range(20))
def test_a_narrowed_world_gives_the_same_answers(seed):
    """The narrowed world omits equal waiting workloads that cannot matter; no other answer changes."""
    dice = random.Random(seed)
    found = scene(dice)
    lines = [job(dice, "x", project, "fast" in found.pools).split(maxsplit=1)[1] for project in "aabb"]
    for i in range(160):
        put_job(found, f"w{i} {lines[i % 4]}")
    world = found.world()
    plan = decide(world, NOW, SETTINGS)
    chosen = plan.verdicts[-1].workload
    less = narrowed(world, [chosen])
    other = decide(less, NOW, SETTINGS)
    assert other.decisions == plan.decisions
    assert other.tasks == plan.tasks
    kept = [(v.workload, v.reason) for v in plan.verdicts if v.workload in less.workloads]
    assert [(v.workload, v.reason) for v in other.verdicts] == kept
