"""How long a workload is protected, and whose minimum run time applies: pool's, project's or department's."""

from dataclasses import replace
from functools import partial

import pytest

from pliant.model.tenancy import Department, Project, Quota
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from pliant.sched.shares.protection import protections
from tests.sched.ticker import Ticker
from tests.sched.worlds import NOW, world

MINUTE = 60_000


def scene(pool: int = 0, project: Quota | None = None, department: Quota | None = None, beside: str = "lab"):
    """x of project a holds the GPU that w of b is entitled to; `beside`: the department of b."""
    made = world(
        "n1:1", "a=0 b=1", "x a g1 @n1 ran=10", "w b g1", pools=f"default:min={pool}" if pool else ""
    )
    given = {"a": project or Quota(), "b": Quota(gpu=1000)}
    for name in ("lab", "other"):
        quota = replace(department or Quota() if name == "lab" else Quota(), gpu=1000 * (name == beside))
        made.departments[name] = Department(name, name, quotas=(("default", quota),))
    for name, quota in given.items():
        above = "lab" if name == "a" else beside
        made.projects[name] = Project(name, name, quotas=(("default", quota),), department=above)
    return made


TWO, FIVE = Quota(reclaim_min_runtime=2 * MINUTE), Quota(reclaim_min_runtime=5 * MINUTE)
NONE = Quota(reclaim_min_runtime=0)

TABLE = [
    # scene; minimum runtime against b and whose it is; what w is told about it
    (partial(scene, pool=60), (MINUTE, "pool", None)),
    (partial(scene, pool=60, project=TWO), (2 * MINUTE, "project", "a")),
    (partial(scene, pool=60, department=FIVE), (5 * MINUTE, "department", "lab")),
    (partial(scene, pool=60, project=TWO, department=FIVE), (2 * MINUTE, "project", "a")),
    (partial(scene, project=TWO), (2 * MINUTE, "project", "a")),
    (partial(scene, pool=60, project=NONE), None),
    (partial(scene, pool=60, department=NONE), None),
    # a project's own value does not protect it from another department
    (partial(scene, pool=60, project=TWO, beside="other"), (MINUTE, "pool", None)),
    (
        partial(scene, pool=60, project=TWO, department=FIVE, beside="other"),
        (5 * MINUTE, "department", "lab"),
    ),
]


@pytest.mark.parametrize(("made", "expected"), TABLE)
def test_the_plan_and_the_reason_name_the_rule_by_which_the_core_decides(made, expected):
    ticker = Ticker(made(), judged=expected is not None)  # the referee knows the pool's rule only
    ticker.cycle()
    plan = ticker.plans[-1]
    protection = next((it for it in plan.protections if it.project == "a"), None)
    told = next((it.reason for it in plan.verdicts if it.workload == "w"), None)
    if expected is None:
        assert protection is None or not protection.reclaim.runtime
        assert {it.workload for it in plan.decisions if it.action == "reclaim"} == {"w", "x"}
        return
    runtime, level, owner = expected
    found = protection.reclaim
    assert (found.runtime, found.level, found.owner and found.owner.id) == expected
    assert (told.code, told.until, told.level, told.owner and told.owner.id) == (
        "min-runtime", NOW - 10_000 + runtime, level, owner,
    )  # fmt: skip


def test_the_least_of_both_is_guaranteed():
    made = scene(pool=60, project=Quota(reclaim_min_runtime=5 * MINUTE, preempt_min_runtime=2 * MINUTE))
    (mine,) = (it for it in protections(made.world()) if it.project == "a")
    assert (mine.reclaim.runtime, mine.preemption.runtime) == (5 * MINUTE, 2 * MINUTE)
    assert (mine.least.runtime, mine.least.level) == (2 * MINUTE, "project")


def test_who_has_no_siblings_is_in_danger_from_its_own_project_alone():
    made = world("n1:1", "a=1", "x a g1 @n1", pools="default:min=60")
    (mine,) = protections(made.world())
    assert mine.reclaim is None and mine.least == mine.preemption


def test_nothing_is_listed_where_nothing_is_set():
    assert not decide(scene().world(), NOW, Settings()).protections


def test_the_plan_carries_the_standings_by_which_it_was_made():
    plan = decide(world("n1:4", "a=1 b=inf", "x a g2 @n1*2", "w b g1").world(), NOW, Settings())
    found = {it.queue: (it.quota, it.fair_share) for it in plan.standings if it.pool == "default"}
    assert found["a"] == (1000, 2000) and found["b"] == (-1, 1000)
