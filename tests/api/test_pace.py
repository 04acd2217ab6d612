"""How fast one account may submit."""

import pytest

from pliant.api.pace import BURST, REMEMBERED, Pace
from pliant.control.errors import OverLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(pace: Pace, person: str, tries: int) -> int:
    found = 0
    for _ in range(tries):
        try:
            pace.take(person)
        except OverLimit:
            continue
        found += 1
    return found


def test_a_burst_and_then_so_many_in_a_second() -> None:
    clock = Clock()
    pace = Pace(20, clock)
    assert taken(pace, "bob", 500) == 20 * BURST
    assert taken(pace, "alice", 1) == 1, "others have their own"
    with pytest.raises(OverLimit, match="bob submits faster than 20 jobs in a second"):
        pace.take("bob")
    clock.now = 0.5
    assert taken(pace, "bob", 500) == 10
    clock.now = 3600
    assert taken(pace, "bob", 500) == 20 * BURST, "no more is saved up"


def test_without_a_limit_and_with_more_accounts_than_are_remembered() -> None:
    assert taken(Pace(0), "bob", 5000) == 5000
    clock = Clock()
    pace = Pace(1, clock)
    for number in range(REMEMBERED + 10):
        pace.take(str(number))
    assert len(pace._left) == REMEMBERED
