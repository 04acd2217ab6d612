"""Verdicts made from earlier ones equal those made from scratch, and earlier ones do not change."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.model.reason import NeverFits, NoCapacity, Reason
from pliant.sched.verdicts import Verdicts, shared

REASONS: list[Reason] = [NeverFits(4000, 2000, 1), NeverFits(4000, 3000, 1), NoCapacity(1000, 1, 0, 0, 2)]
IDS = st.lists(st.sampled_from([f"w{number}" for number in range(12)]), unique=True, max_size=12)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdicts:
    workloads, reasons = draw(IDS), list[Reason]()
    while len(reasons) < len(workloads):
        left = len(workloads) - len(reasons)
        reasons += [draw(st.sampled_from(REASONS))] * draw(st.one_of(st.just(1), st.integers(1, left)))
    return Verdicts.of_each(workloads, reasons)


def codes(these: Verdicts) -> dict[str, str]:
    return {it.workload: it.reason.code for it in these}


@given(st.lists(verdicts(), min_size=1, max_size=8))
def test_each_of_a_chain_answers_as_if_it_were_made_from_nothing(plain: list[Verdicts]) -> None:
    chain, before = [Verdicts()], Verdicts()
    for these in plain:
        now = these.follow(before)
        assert now == these
        old, new = codes(before), codes(these)
        changed = {wid: code for wid, code in new.items() if old.get(wid) != code}
        assert [(wid, reason.code) for wid, reason in now.recoded(before)] == list(changed.items())
        assert now.lost(before) == old.keys() - new.keys()
        chain.append(now)
        before = now
        for earlier, alone in zip(chain[1:], plain, strict=False):
            for wid in (f"w{number}" for number in range(12)):
                assert earlier.of(wid) == alone.of(wid), "also of those that others follow by now"


@given(verdicts(), st.sets(st.sampled_from([f"w{number}" for number in range(12)])))
def test_without_some_the_others_keep_their_order_and_reasons(these: Verdicts, gone: set[str]) -> None:
    left = these.without(gone)
    assert [(it.workload, it.reason) for it in left] == [
        (it.workload, it.reason) for it in these if it.workload not in gone
    ]


@given(IDS, IDS)
def test_what_is_shared_is_the_same_in_both(old: list[str], new: list[str]) -> None:
    kept = shared(tuple(old), tuple(new))
    for (at, place, length), (next_at, next_place, _) in pairwise((*kept, (len(old), len(new), 0))):
        assert length and old[at : at + length] == new[place : place + length]
        assert at + length <= next_at and place + length <= next_place


@pytest.mark.parametrize(
    "change",
    [
        lambda order: [*order, "new"],
        lambda order: order[3:],
        lambda order: [*order[1:], "new"],
        lambda order: [*order[:400], "new", "newer", *order[400:]],
        lambda order: [*order[2:100], "new", *order[101:500], *order[502:], "newer"],
        lambda order: [order[-1], *order[:-1]],
    ],
)
def test_of_an_order_that_differs_at_few_places_nearly_all_is_shared(
    change: Callable[[list[str]], list[str]],
) -> None:
    old = [f"w{number}" for number in range(1000)]
    new = change(old)
    assert sum(length for _, _, length in shared(tuple(old), tuple(new))) == len({*old} & {*new}) - (
        new[0] == old[-1]
    )


def test_between_two_neighbours_there_is_always_room() -> None:
    """Each new one goes just before the previous: keys between two run out and are assigned again."""
    order = ["first", "last"]
    now = Verdicts.of_each(order, [REASONS[0]] * 2).follow(Verdicts())
    for number in range(100):
        order.insert(1, f"w{number}")
        now = Verdicts.of_each(order, [REASONS[0]] * len(order)).follow(now)
        assert [now.position(wid) for wid in order] == list(range(1, len(order) + 1))
