"""Each eviction names its beneficiary and rule; without the beneficiary it does not happen."""

import os
import random
from collections import Counter

import pytest

from pliant.model.reason import Preempted, Reclaimed, Shrunk
from pliant.model.reason.change import Moved
from pliant.sched.cycle import decide
from pliant.sched.explain.foresee import come_to_rest
from pliant.sched.explain.trial import Change, Trial, gone
from pliant.sched.plan import Decision, Verb
from pliant.sched.world.state import World
from tests.sched.worlds import NOW, put_job
from tests.why.draw import SETTINGS, job, scene

SEED = int(os.environ.get("PLIANT_SEED", "20261120"))
TAKES = (Verb.EVICT, Verb.SHRINK, Verb.MOVE)


def disturbed(dice: random.Random) -> tuple[World, list[Decision]]:
    """A cluster at rest into which one workload is submitted, and what its plan takes from others."""
    found = scene(dice)
    built = found.world()
    come_to_rest(built, NOW - 600_000, SETTINGS, decide)
    put_job(found, job(dice, "new", dice.choice("ab"), "fast" in built.pools))
    built.put(found.workloads["new"])
    for task in found.tasks_of("new"):
        built.put(task)
    plan = decide(built, NOW, SETTINGS)
    return built, [it for it in plan.decisions if it.verb in TAKES and it.beneficiary]


def judge(count: int, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    kinds: Counter[str] = Counter()
    other = evictions = 0
    number = seed
    while evictions < count:
        world, taken = disturbed(random.Random(number))
        number += 1
        for decision in taken:
            evictions += 1
            kinds[decision.reason.code] += 1
            named(world, decision)
            without = Trial(world, NOW, SETTINGS, decide).decide(gone(world, decision.beneficiary))
            again = [it for it in without.decisions if it.workload == decision.workload and it.verb in TAKES]
            assert not [it for it in again if it.beneficiary in ("", decision.beneficiary)]
            other += bool(again)
    with capsys.disabled():
        print(
            f"\n  {evictions} evictions in clusters {seed} to {number - 1}: {dict(kinds)}; without the"
            f" beneficiary {other} of them happen for somebody else who waited, none for nobody"
        )
    assert other <= evictions // 50
    assert len(kinds) >= 3


def named(world: World, decision: Decision) -> None:
    """Asserts that the reason names the beneficiary and the rule of the action, with the numbers of then."""
    winner = world.workloads[decision.beneficiary]
    reason = decision.reason
    assert isinstance(reason, Reclaimed | Preempted | Shrunk | Moved)
    assert (reason.beneficiary.id, reason.beneficiary.name) == (winner.id, winner.name)
    match reason:
        case Reclaimed():
            assert decision.action == "reclaim"
            queues = {winner.project, *world.departments}
            assert reason.project.id in queues
            assert reason.allocated < reason.due, "the beneficiary's queue was below its due"
            assert reason.rule in ("quota", "fair-share")
        case Preempted():
            assert decision.action == "preempt"
            assert reason.priority > reason.own_priority
            assert winner.project == world.workloads[decision.workload].project
        case Shrunk() | Moved():
            assert decision.action in ("shrink", "consolidate", "reclaim", "preempt")


def test_evictions_are_for_whom_they_say(capsys):
    judge(60, capsys, SEED)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_thousand_evictions(capsys):
    judge(1_000, capsys, SEED + 100_000)


def test_the_world_is_as_before_after_a_question():
    world, _ = disturbed(random.Random(1))
    before = world.snapshot()
    Trial(world, NOW, SETTINGS, decide).decide(gone(world, "new"))
    Trial(world, NOW, SETTINGS, decide).decide(Change())
    assert world.snapshot() == before
