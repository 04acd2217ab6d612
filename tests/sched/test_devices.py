"""How fractions are placed on the devices of a node, by pool; a limit above the request changes nothing."""

import pytest

from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world

LIE = [
    # pool, nodes, jobs, device of each task
    ("", "n1:2", ["x a g0.3", "y a g0.3", "z a g0.3"], [["n1.0"], ["n1.0"], ["n1.0"]]),
    ("default:devices", "n1:2", ["x a g0.3", "y a g0.3", "z a g0.3"], [["n1.0"], ["n1.1"], ["n1.0"]]),
    ("default:devices", "n1:3", ["x a g0.5x2", "y a g0.5x2"], [["n1.0", "n1.1"], ["n1.0", "n1.2"]]),
    ("", "n1:3", ["x a g0.5x2", "y a g0.5x2"], [["n1.0", "n1.1"], ["n1.0", "n1.1"]]),
    ("default:devices", "n1:2", ["x a m4G", "y a m4G"], [["n1.0"], ["n1.1"]]),
    ("", "n1:2", ["x a m4G", "y a m4G"], [["n1.0"], ["n1.0"]]),
    ("default:devices", "n1:2", ["x a g0.3", "y a g1"], [["n1.0"], ["n1.1"]]),
]


@pytest.mark.parametrize(("pool", "nodes", "jobs", "devices"), LIE)
def test_where_fractions_lie(pool, nodes, jobs, devices):
    t = settled(nodes, "a=9", *jobs, pools=pool)
    found = [task.claims for task in t.scene.tasks.values()]
    assert [list(claim.uuids) for claim in found if claim] == devices


def test_each_pool_has_its_own():
    jobs = [f"{name} a g0.3 pool={pool}" for pool in ("default", "wide") for name in (f"{pool}1", f"{pool}2")]
    t = settled("n1:2 n2:2:pool=wide", "a=0:pools=default,wide", *jobs, pools="wide:devices")
    found = [task.claims.uuids[0] for task in t.scene.tasks.values() if task.claims]
    assert found == ["n1.0", "n1.0", "n2.0", "n2.1"]


LIMITS = [
    # jobs, rows: the request is what counts, on the device, in quota and for the limit of its project
    (
        ["x a g0.5 upto=0.9", "y a g0.5 upto=0.9", "z a g0.5"],
        ["x Running 0.5 n1", "y Running 0.5 n1", "z Pending 0"],
    ),
    (
        ["x a g0.5 upto=0.9 np", "y a g0.5 np", "z a g0.1"],
        ["x Running 0.5 n1", "y Running 0.5 n1", "z Pending 0"],
    ),
    (["x a m8G upto=16G", "y a m8G upto=16G"], ["x Running 0.466 n1", "y Running 0.466 n1"]),
]


@pytest.mark.parametrize(("jobs", "rows"), LIMITS)
def test_what_may_be_used_above_the_request_is_not_given_to_anybody(jobs, rows):
    assert settled("n1:1", "a=1:max=1", *jobs).rows() == rows


def test_a_device_on_which_it_can_start_goes_before_one_that_is_used_more():
    """On n1.0 0.3 is claimed and 0.5 is still being released."""
    t = Ticker(world("n1:2", "a=9", "x a g0.5 ~n1.0", "y a g0.3 @n1.0", "z a g0.2 @n1.1", "w a g0.5 p90"))
    assert [start.placement.uuids for start in t.cycle().starts] == [("n1.1",)]
