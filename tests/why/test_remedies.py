"""Remedies in small worlds: none larger than needed, none twice, none that contradicts the reason."""

import pytest

from pliant.model.reason import Cure, Reason
from pliant.model.reason.told import KINDS
from pliant.sched.cycle import decide
from pliant.sched.explain.offers import fair_share, fitting
from pliant.sched.explain.remedies import Remedy, cures
from pliant.sched.explain.unblock import Unblocking
from tests.sched.worlds import NOW, world
from tests.why.draw import SETTINGS

REASONS = sorted(KINDS.values(), key=lambda kind: kind.code)

# nodes; projects; jobs, of which w waits; remedies; every minimum run time is a minute
TABLE = [
    (
        "n1:2",
        "a=0 b=1",
        ["x a g1 @n1 ran=50", "y a g1 @n1 ran=10", "w b g1"],
        [
            "wait 10000",
            "end x: 1000",
            "machines 1000",
        ],
    ),
    (  # background work uses idle GPUs only
        "n1:1",
        "a=1 b=1",
        ["x b g1 @n1", "w a g1 bg"],
        [
            "end x: 1000",
            "machines 1000",
        ],
    ),
    (  # x would be evicted for it: neither the limit nor more nodes would help
        "n1:4",
        "a=1:max=2",
        ["x a g2 @n1", "w a g2 np p80"],
        [
            "preemptible",
            "quota a: 1000 -> 2000",
            "elastic",
            "request gpu: 2000 -> 1000",
        ],
    ),
    (
        "n1:1 n2:1:taint=k.v/NoSchedule",
        "a=2",
        ["x a g1 @n1", "w a g1"],
        [
            "end x: 1000",
            "priority 50 -> 51",
            "taint n2 k=v:NoSchedule",
            "machines 1000",
        ],
    ),
    (
        "n1:1",
        "a=2",
        ["w a m20G"],
        [
            "request GPU memory: 20000000000 -> 17000000000",
            "machines 1000 GPU memory=20000000000",
        ],
    ),
    (  # two limits of one project, and a machine
        "n1:2",
        "a=2:max=3:cpumax=3",
        ["x a g2 c2 @n1", "w a g2 c2"],
        ["limit a: 3000 -> 4000; limit a: 3000 -> 4000 cpu; machines 2000"],
    ),
]


def brief(cure: Cure) -> str:
    """Its kind, its object and its numbers."""
    about = cure.where if cure.kind == "taint" else " ".join(it.name for it in cure.whom)
    match cure.kind:
        case "quota" | "limit" | "fair-share" | "request" | "priority":
            after = cure.before - cure.count if cure.kind == "request" else cure.before + cure.count
            parts = [cure.resource if cure.kind == "request" else about, f"{cure.before} -> {after}"]
            unit = [cure.resource] if about and cure.resource != "gpu" else []
            colon = ": ".join(part for part in parts if part) if cure.kind != "priority" else parts[1]
            return " ".join([cure.kind, colon, *unit])
        case "end":
            return f"end {about}: {cure.count}"
        case _:
            needs = [f"{resource}={value}" for resource, value in cure.needs]
            words = [cure.kind, about, str(cure.count or ""), *cure.taints, *needs]
            return " ".join(word for word in words if word)


@pytest.mark.parametrize(("nodes", "projects", "jobs", "remedies"), TABLE)
def test_remedies(nodes, projects, jobs, remedies):
    _, found = searched(nodes, projects, *jobs, pools="default:min=60")
    assert ["; ".join(map(brief, remedy.steps)) for remedy in found] == remedies


def searched(nodes, projects, *jobs, pools="") -> tuple[Reason, list[Remedy]]:
    """Why w waits, and every remedy."""
    here = world(nodes, projects, *jobs, pools=pools).world()
    plan = decide(here, NOW, SETTINGS)
    here = here.fresh()
    wid = next(row.id for row in here.workloads.values() if row.name == "w")
    reason = next(verdict.reason for verdict in plan.verdicts if verdict.workload == wid)
    return reason, Unblocking(here, NOW, SETTINGS, decide, wid).run(reason, plan.wake)


BY_KEY = [
    # the reason is about a fair share, a quota, a limit, none of them
    ("n1:3", "b=1 a=1", ["x b g2 @n1*2", "y a g1 @n1.2", "w a g1"], "not-entitled", {"fair-share"}),
    ("n1:2", "a=1 b=1", ["x a g1 np @n1", "w a g1 np"], "non-preemptible-over-quota", {"quota"}),
    ("n1:4", "a=1:max=2", ["x a g2 @n1", "w a g1"], "over-limit", {"limit"}),
    ("n1:1", "a=1", ["x a g1 @n1", "w a g1"], "no-capacity", set()),
]


@pytest.mark.parametrize(("nodes", "projects", "jobs", "code", "bounds"), BY_KEY)
def test_the_cure_is_chosen_by_the_key_of_the_reason(nodes, projects, jobs, code, bounds):
    """`why` must not propose a quota change where its reason is the fair share."""
    reason, found = searched(nodes, projects, *jobs)
    assert reason.code == code
    assert {it.kind for it in found} & {"quota", "limit", "fair-share"} == bounds


@pytest.mark.parametrize("kind", REASONS, ids=lambda kind: kind.code)
def test_no_reason_allows_the_cure_of_another(kind):
    allowed = {"not-entitled": "fair-share", "non-preemptible-over-quota": "quota", "over-limit": "limit"}
    bounds = cures(kind.code) & {"quota", "limit", "fair-share"}
    assert bounds == ({allowed[kind.code]} if kind.code in allowed else set())
    named = set(fitting(kind.code, deep=False))
    assert named == set(fitting(kind.code, deep=True)), "only the order differs"
    assert (fair_share in named) is (kind.code == "not-entitled")
