"""Who is next: among departments and projects, and among the jobs of one project."""

import random
from dataclasses import replace

import pytest

from pliant.model.quantity import GPU, Resources
from pliant.sched.actions.context import Cycle
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from pliant.sched.shares.fair_share import INFINITE
from pliant.sched.shares.queue_order import Measure, job_key
from pliant.sched.world.membership import MOVED
from pliant.sched.world.state import World
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, job, world


def test_priority_then_age():
    t = Ticker(world("n1:1", "a=1", "low a g1 p25", "old a g1 p50", "young a g1 p50", "high a g1 p90"))
    order = []
    for _ in range(4):
        t.settle()
        (name,) = t.running()
        order.append(name)
        t.finish(name)
    assert order == ["high", "old", "young", "low"]


def test_priority_means_nothing_between_projects():
    t = settled("n1:2", "a=1 b=1", "a1 a g1 p90", "a2 a g1 p90", "b1 b g1 p25")
    assert t.running() == {"a1": 1, "b1": 1}


def test_projects_take_turns():
    t = settled("n1:4", "a=2 b=2", *(f"a{i} a g1" for i in range(4)), *(f"b{i} b g1" for i in range(4)))
    assert set(t.running()) == {"a0", "a1", "b0", "b1"}


def test_below_quota_before_above():
    """a is at its quota and asks first; b is below its own."""
    t = settled("n1:3", "a=2 b=1", "a0 a g2 @n1", "a1 a g1", "b1 b g1")
    assert t.rows() == ["a0 Running 2 n1", "a1 Pending 0", "b1 Running 1 n1"]


def test_smaller_share_first():
    """Both are above quota: the one with the smaller share of its due goes first."""
    t = settled("n1:4 n2:4", "a=1 b=1", "a0 a g4 @n1", "b0 b g2 @n2", "a1 a g2", "b1 b g2")
    assert t.rows("a1", "b1") == ["a1 Pending 0", "b1 Running 2 n2"]


def test_departments_before_projects():
    """x is below its own quota, but its department is not; y is above its own, its department below."""
    t = settled(
        "n1:3", "d1/=1 d2/=2 d1/w=1 d1/x=1 d2/y=1", "w0 w g1 np @n1", "y0 y g1 @n1", "x1 x g1", "y1 y g1"
    )
    assert t.rows("x1", "y1") == ["x1 Pending 0", "y1 Running 1 n1"]


def test_a_job_that_does_not_fit_blocks_nobody():
    t = settled("n1:2", "a=4", "big a g4 p90", "small a g1 p50")
    assert t.rows() == ["big Pending 0", "small Running 1 n1"]


def test_cores_before_surplus_at_equal_priority():
    t = settled("n1:2", "a=2", "wide a g1 x1-3", "narrow a g1")
    assert t.running() == {"wide": 1, "narrow": 1}


def test_surplus_of_higher_priority_before_cores_of_lower():
    t = settled("n1:2", "a=2", "wide a g1 x1-3 p80", "narrow a g1 p50")
    assert t.rows() == ["wide Running 2 n1", "narrow Pending 0"]


def test_positions_follow_the_order():
    t = settled("n1:1", "a=1", "run a g1 p90", "low a g1 p25", "high a g1 p80", "mid a g1 p50")
    by_position = sorted(t.plans[-1].verdicts, key=lambda verdict: verdict.position)
    assert [verdict.workload for verdict in by_position] == ["high", "mid", "low"]


def test_names_decide_nothing():
    """The same submissions under other names come out the same."""
    jobs = ["{0} a g2", "{1} b g1", "{2} a g1 x2", "{3} b g0.5", "{4} a g0.5"]
    shapes = []
    for names in ("abcde", "edcba", "zmaqb"):
        t = settled("n1:2 n2:2", "a=2 b=2", *(job.format(*(f"job-{n}" for n in names)) for job in jobs))
        shapes.append([row.split(maxsplit=1)[1] for row in t.rows()])
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize("seed", range(6))
def test_equal_jobs_that_are_looked_at_together_have_the_turns_they_had_alone(seed):
    dice = random.Random(seed)
    shapes, few = ("g1", "g2", "g0.5", "g1 x2"), ("g1", "g2")
    jobs = [
        f"j{i} {dice.choice('abc')} {dice.choice(few if seed < 3 else shapes)} {dice.choice(('p50', 'p80'))}"
        for i in range(40)
    ]
    cycle = Cycle(world("n1:8", "d/=3 d/a=1 d/b=2 c=0:w=2", *jobs).world(), NOW, Settings())
    ((choice, rows),) = cycle.waiting().items()
    alone = cycle.order(choice[1], [[chunk] for row in rows for chunk in row])
    turns = [job[0].workload.id for job in iter(alone.pop, None)]
    order, together, longest = cycle.order(choice[1], rows), [], 0
    while (job := order.pop()) is not None:
        alike = (job[0], *order.row[order.following()])
        together += [chunk.workload.id for chunk in alike]
        longest = max(longest, len(alike))
    assert together == turns and len(turns) == 40 and longest > 1


def test_who_has_its_core_only_goes_before_who_has_more():
    """Both have equal priority: the younger gets the last GPU, for the older has one above its core."""
    t = settled("n1:2 n2:2", "a=4", "old a g1 x1-4 @n1,n1", "young a g1 x1-4 @n2")
    assert t.running() == {"old": 2, "young": 2}


@pytest.mark.parametrize(("first", "then"), [("v", "w"), ("w", "v")])
def test_who_was_given_what_is_free_starts_before_who_waits_for_a_victim(first, then):
    """Three cores are free. The first takes one of them; the second gets three once low is gone."""
    t = Ticker(world("n1:1:cpu=4", "a=1", "low a c1 p25 @n1", f"{first} a c1 p90", f"{then} a c3 p80"))
    assert [start.attempt.workload for start in t.cycle().starts] == [first]
    t.settle()
    assert t.rows() == ["low Pending 0", f"{first} Running 0 n1", f"{then} Running 0 n1"]


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_kept_are_those_of_a_world_built_fresh(seed):
    """Kept rows equal those of a fresh world, whether few or many workloads of a kind change at a time."""
    dice = random.Random(seed)
    scene = world("n1:1", "a=1 b=1", "runs a g1 @n1", *(f"w{i} a g1" for i in range(MOVED)))
    kept = scene.world()
    for turn in range(60):
        for number in range(dice.choice([0, 1, 3, MOVED + 1]) if turn % 20 == 19 else dice.randrange(4)):
            workload, tasks = job(f"t{turn}-{number} {dice.choice('ab')} g1", dice.randrange(10_000))
            for row in (workload, *tasks):
                scene.put(row)
                kept.put(row)
        waiting = sorted(scene.workloads.keys() - {"runs"})
        for name in dice.sample(waiting, dice.randrange(4)):
            row = scene.workloads[name]
            if dice.randrange(2):  # it changes its place in the order
                row = replace(row, serial=dice.randrange(10_000))
                scene.put(row)
                kept.put(row)
                continue
            for task in scene.tasks_of(name):
                kept.drop(scene.tasks.pop(task.key))
            kept.drop(scene.workloads.pop(name))
        if dice.randrange(3) == 0:
            decide(kept, NOW, Settings())
        assert _rows_of(kept) == _rows_of(scene.world())


def _rows_of(of: World) -> list[list[str]]:
    """Ids of waiting workloads, in order, by kind."""
    of.update_sets()
    return sorted([chunk.workload.id for chunk in row] for row in of.rows_alike(job_key))


def test_a_share_is_the_largest_ratio_whatever_was_asked_for_before():
    """Due: 4 GPUs; all 64 cores, since it is unlimited; no memory, which counts as a thousandth."""
    measure = Measure(Resources(4000, INFINITE, 0), Resources(8000, 64_000, 1 << 40))
    placed, more = (1000, 32_000, 0), (1000, 16_000, 0)
    for gpu, cpu, memory in (
        (0, 0, 0),
        placed,
        placed,
        more,
        placed,
        (3000, 16_000, 0),
        (4000, 64_000, 2),
        more,
    ):
        largest = max(gpu * 2**64 // 4000, cpu * 2**64 // 64_000, memory * GPU * 2**64)
        assert measure.share(gpu, cpu, memory) == largest
