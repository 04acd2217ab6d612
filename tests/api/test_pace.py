"""How fast one account may submit."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pliant.api.pace import BURST, REMEMBERED, AtOnce, Pace
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
    with pytest.raises(OverLimit, match="bob submits more than 20 jobs per second"):
        pace.take("bob")
    clock.now = 0.5
    assert taken(pace, "bob", 500) == 10
    clock.now = 3600
    assert taken(pace, "bob", 500) == 20 * BURST, "no more is saved up"


def test_so_many_at_a_time_of_one_account() -> None:
    held = AtOnce(2, "streams", "Close one.")
    with held.hold("bob"), held.hold("bob"), held.hold("alice"):
        for refused in (held.check, held.hold("bob").__enter__):
            with pytest.raises(OverLimit, match="bob has 2 streams"):
                refused("bob") if refused == held.check else refused()
    with held.hold("bob", beside=1), pytest.raises(OverLimit):
        held.check("bob", 1)
    held.check("bob", 1)
    with AtOnce(0, "", "").hold("bob", 10**6):
        pass


def test_a_stream_counts_while_it_is_read_and_no_longer() -> None:
    held, ended = AtOnce(1, "streams", "Close one."), []

    async def source() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            ended.append(True)

    async def read() -> None:
        stream = held.counted("bob", source())
        assert await anext(stream) == b"more"
        with pytest.raises(OverLimit):
            held.check("bob")
        await stream.aclose()  # type: ignore[attr-defined]
        held.check("bob")
        assert ended == [True]

    asyncio.run(read())


def test_without_a_limit_and_with_more_accounts_than_are_remembered() -> None:
    assert taken(Pace(0), "bob", 5000) == 5000
    clock = Clock()
    pace = Pace(1, clock)
    for number in range(REMEMBERED + 10):
        pace.take(str(number))
    assert len(pace._left) == REMEMBERED
