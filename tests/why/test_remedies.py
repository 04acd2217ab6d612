"""Remedies of small worlds, word for word: nothing more than is needed, nothing said twice."""

import pytest

from pliant.sched.cycle import decide
from pliant.sched.explain.unblock import Unblocking
from tests.sched.worlds import NOW, world
from tests.why.draw import SETTINGS

# nodes; projects; jobs, of which w waits; what is said; minimum run times of all are a minute
TABLE = [
    (
        "n1:2",
        "a=0 b=1",
        ["x a g1 @n1 ran=50", "y a g1 @n1 ran=10", "w b g1"],
        [
            "10s pass",
            "1.00 GPUs get free on node n1: x of project a ends",
            "there is a node more in pool default, with 1.00 GPUs",
        ],
    ),
    (  # x would go for it: neither the limit nor more machines are missing
        "n1:4",
        "a=1:max=2",
        ["x a g2 @n1", "w a g2 np p80"],
        [
            "it is preemptible: it may run on idle GPUs beyond quotas",
            "the quota of a is raised by 1.00 GPUs to 2.00 GPUs",
            "it is elastic: it starts with fewer GPUs and grows",
            "it asks for 1.00 GPUs a task instead of 2.00 GPUs",
        ],
    ),
    (
        "n1:1 n2:1:taint=k.v/NoSchedule",
        "a=2",
        ["x a g1 @n1", "w a g1"],
        [
            "1.00 GPUs get free on node n1: x of project a ends",
            "its priority is 51 instead of 50",
            "node n2 loses the taint k=v:NoSchedule",
            "there is a node more in pool default, with 1.00 GPUs",
        ],
    ),
    (
        "n1:1",
        "a=2",
        ["w a m20G"],
        [
            "it asks for 17G of memory a task instead of 20G of memory",
            "there is a node more in pool default, with 1.00 GPUs, 20G of memory on each",
        ],
    ),
    (  # two limits of one project, and a machine
        "n1:2",
        "a=2:max=3:cpumax=3",
        ["x a g2 c2 @n1", "w a g2 c2"],
        [
            "the limit of a is raised by 1.00 GPUs to 4.00 GPUs;"
            " and the limit of a is raised by 1 cores to 4 cores;"
            " and there is a node more in pool default, with 2.00 GPUs"
        ],
    ),
]


@pytest.mark.parametrize(("nodes", "projects", "jobs", "remedies"), TABLE)
def test_remedies(nodes, projects, jobs, remedies):
    here = world(nodes, projects, *jobs, pools="default:min=60").world()
    plan = decide(here, NOW, SETTINGS)
    here = here.fresh()
    wid = next(row.id for row in here.workloads.values() if row.name == "w")
    reason = next(verdict.reason for verdict in plan.verdicts if verdict.workload == wid)
    said = [remedy.text for remedy in Unblocking(here, NOW, SETTINGS, decide, wid).run(reason, plan.wake)]
    assert said == remedies
