"""Fair share in practice: how many GPUs each project runs on while all want more."""

from fractions import Fraction

import pytest

from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world

CASES = {
    # name: (GPUs, projects, jobs wanted of each, GPUs each runs on)
    "weights 2:3:1 of 20 unused": (
        30,
        "p1=4:w=2 p2=6:w=3 p3=0:w=1",
        {"p1": 30, "p2": 30, "p3": 30},
        "11 16 3",
    ),
    "equal": (20, "p1=5 p2=5", {"p1": 20, "p2": 20}, "10 10"),
    "one asks for its quota only": (20, "p1=5 p2=5", {"p1": 5, "p2": 20}, "5 15"),
    "quota is the weight": (8, "p1=3 p2=1", {"p1": 8, "p2": 8}, "6 2"),
    "weights 1:3": (8, "p1=2:w=1 p2=2:w=3", {"p1": 8, "p2": 8}, "3 5"),
    "no quota comes last": (8, "p1=4 p2=0", {"p1": 8, "p2": 8}, "8 0"),
    "no quota takes what is left": (8, "p1=4 p2=0", {"p1": 5, "p2": 8}, "5 3"),
    "nobody has quota": (8, "p1=0 p2=0", {"p1": 8, "p2": 8}, "4 4"),
    "weight 0 beside a weight": (8, "p1=2:w=1 p2=2:w=0", {"p1": 8, "p2": 8}, "6 2"),
    "weight 0 uses what nobody is due": (8, "p1=2:w=1 p2=2:w=0", {"p1": 3, "p2": 8}, "3 5"),
    "unused quota is lent": (8, "p1=6 p2=2", {"p1": 1, "p2": 8}, "1 7"),
    "a limit gives the rest to others": (12, "p1=2:max=3 p2=2", {"p1": 12, "p2": 12}, "3 9"),
    "rank before weight": (12, "p1=2:rank=200:w=1 p2=2:w=9", {"p1": 12, "p2": 12}, "10 2"),
    "rank takes only what it wants": (12, "p1=2:rank=200 p2=2", {"p1": 5, "p2": 12}, "5 7"),
    "largest remainder": (10, "p1=2:w=1 p2=2:w=1 p3=2:w=1", {"p1": 9, "p2": 9, "p3": 9}, "4 3 3"),
    "departments first": (
        12,
        "d1/=4 d2/=4 d1/p1=2 d1/p2=2 d2/p3=4",
        {"p1": 12, "p2": 12, "p3": 12},
        "3 3 6",
    ),
    "what one department leaves": (
        12,
        "d1/=4 d2/=4 d1/p1=4 d2/p2=2 d2/p3=2",
        {"p1": 2, "p2": 9, "p3": 9},
        "2 5 5",
    ),
    "department limit": (12, "d1/=4:max=5 d2/=4 d1/p1=4 d2/p2=4", {"p1": 12, "p2": 12}, "5 7"),
    "a small project in a big department": (
        12,
        "d1/=6 d2/=6 d1/p1=5 d1/p2=1 d2/p3=6",
        {"p1": 9, "p2": 9, "p3": 9},
        "5 1 6",
    ),
}


def _jobs(wanted):
    return [f"{p}-{i} {p} g1" for p, count in wanted.items() for i in range(count)]


def _nodes(gpus):
    return " ".join(f"n{i}:{min(4, gpus - 4 * i)}" for i in range(-(-gpus // 4)))


@pytest.mark.parametrize(("gpus", "projects", "wanted", "expected"), CASES.values(), ids=CASES)
def test_all_at_once(gpus, projects, wanted, expected):
    t = settled(_nodes(gpus), projects, *_jobs(wanted))
    assert t.split() == dict(zip(wanted, map(int, expected.split()), strict=True))
    assert not t.decisions(verb="evict"), "allocation alone gets there"


@pytest.mark.parametrize("first", [0, -1], ids=["first takes all", "last takes all"])
@pytest.mark.parametrize(("gpus", "projects", "wanted", "expected"), CASES.values(), ids=CASES)
def test_taken_back(gpus, projects, wanted, expected, first):
    """One project fills the idle cluster; when the others come, reclaim ends at the same shares."""
    t = Ticker(world(_nodes(gpus), projects))
    jobs = _jobs(wanted)
    hog = list(wanted)[first]
    t.submit(*(job for job in jobs if job.split()[1] == hog))
    t.settle()
    t.submit(*(job for job in jobs if job.split()[1] != hog))
    t.settle()
    assert t.split() == dict(zip(wanted, map(int, expected.split()), strict=True))


def test_fractional_quotas():
    t = settled("n1:4", "p1=1.5 p2=2.5", *(f"{p}-{i} {p} g0.5" for p in ("p1", "p2") for i in range(8)))
    assert t.split() == {"p1": 1.5, "p2": 2.5}


def test_first_come_when_nobody_is_entitled():
    """Two gangs of ten on ten GPUs, quota five each: the first one runs and is not evicted."""
    t = settled("n1:10", "p1=5 p2=5", "j1 p1 g1 x10", "j2 p2 g1 x10")
    assert t.rows() == ["j1 Running 10 n1", "j2 Pending 0"]


def test_above_fair_share_while_nobody_else_asks():
    assert settled("n1:8", "p1=1 p2=1", *_jobs({"p1": 8})).split() == {"p1": 8, "p2": 0}


def test_shares_are_per_pool():
    t = settled(
        "n1:4 n2:4:pool=fast",
        "p1=4+fast=1 p2=0+fast=3",
        *(f"{p}-{i} {p} g1 pool=fast" for p in ("p1", "p2") for i in range(4)),
        pools="fast",
    )
    assert t.split() == {"p1": 1, "p2": 3}


def test_changed_quota_moves_the_share():
    t = settled("n1:4", "p1=2 p2=2", *_jobs({"p1": 4, "p2": 4}))
    assert t.split() == {"p1": 2, "p2": 2}
    t.quota("p1=3")
    t.quota("p2=1")
    t.settle()
    assert t.split() == {"p1": 3, "p2": 1}


@pytest.mark.parametrize("seed", range(6))
def test_whole_shares_by_largest_remainder(seed):
    """Without quotas idle GPUs are divided by weight: floors first, the rest to the largest remainders."""
    weights = [1 + (seed * 7 + i * 5) % 6 for i in range(4)]
    total = 9 + seed
    exact = [Fraction(total * weight, sum(weights)) for weight in weights]
    whole = [int(part) for part in exact]
    order = sorted(range(4), key=lambda i: (-(exact[i] - whole[i]), i))
    for i in order[: total - sum(whole)]:
        whole[i] += 1
    projects = " ".join(f"p{i}=0:w={weight}" for i, weight in enumerate(weights))
    t = settled(_nodes(total), projects, *_jobs({f"p{i}": total for i in range(4)}))
    assert list(t.split().values()) == whole
