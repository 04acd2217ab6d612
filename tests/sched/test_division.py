"""The arithmetic of fair shares by itself, on random siblings."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.model.quantity import GPU
from pliant.sched.shares.fair_share import Claimant, divide


@st.composite
def _siblings(draw):
    unit = draw(st.sampled_from([GPU, 1]))
    amounts = st.integers(0, 12_000) if draw(st.booleans()) else st.integers(0, 12).map(lambda n: n * GPU)
    weights = st.one_of(st.none(), st.integers(0, 5))
    found = [
        Claimant(f"q{i}", draw(amounts), draw(amounts), draw(weights), draw(st.sampled_from([100, 200])), i)
        for i in range(draw(st.integers(1, 5)))
    ]
    return draw(amounts), found, unit


def _weight(claimant):
    return claimant.deserved if claimant.weight is None else claimant.weight


@settings(max_examples=300)
@given(_siblings())
def test_shares(case):
    total, siblings, unit = case
    given = divide(total, siblings, unit)
    floor = {c.key: min(c.deserved, c.wants) for c in siblings}
    assert sum(given.values()) <= max(total, sum(floor.values())), "no more than there is, quotas apart"
    for c in siblings:
        assert floor[c.key] <= given[c.key] <= c.wants, "quota first, never more than asked for"
    hungry = [c for c in siblings if given[c.key] < c.wants]
    if sum(given.values()) < total:
        assert not any(c.weight != 0 for c in hungry), "nothing stays unshared that somebody may have"
    for c in siblings:
        assert c.weight != 0 or given[c.key] == floor[c.key], "weight 0 has its quota and no more"
    for c in hungry:
        for other in siblings:
            lent = given[other.key] - floor[other.key]
            if other.rank < c.rank and c.weight != 0:
                assert not lent, "a lower rank waits until the higher one has all it wants"
            if other.rank == c.rank and _weight(c) and not _weight(other):
                assert not lent, "without weight only what the others leave"
    for a in hungry:
        for b in hungry:
            if a.rank == b.rank and _weight(a) and _weight(b):
                over_a, over_b = given[a.key] - floor[a.key], given[b.key] - floor[b.key]
                off = abs(over_a * _weight(b) - over_b * _weight(a))
                assert off <= unit * (_weight(a) + _weight(b)), "in proportion to weight, up to one unit"


@settings(max_examples=200)
@given(_siblings(), st.randoms(use_true_random=False))
def test_the_order_in_which_they_are_named_is_nothing(case, dice):
    total, siblings, unit = case
    shuffled = list(siblings)
    dice.shuffle(shuffled)
    assert divide(total, shuffled, unit) == divide(total, siblings, unit)


@settings(max_examples=200)
@given(_siblings())
def test_one_more_gpu_takes_from_nobody_in_a_rank_of_its_own(case):
    """With one claimant a rank there are no remainders to compare: more to share never means less."""
    total, siblings, unit = case
    ladder = [Claimant(c.key, c.deserved, c.wants, c.weight, 100 + i, i) for i, c in enumerate(siblings)]
    less, more = divide(total, ladder, unit), divide(total + GPU, ladder, unit)
    assert all(more[c.key] >= less[c.key] for c in ladder)
