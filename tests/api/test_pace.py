"""How fast one account may submit."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pliant.api.pace import BURST, REMEMBERED, AtOnce, Pace
from pliant.control.errors import OverLimit
from pliant.model.rights import TENANT, VIEWER
from tests.api.conftest import Api
from tests.api.people import program


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


def pace_of(rate: int, clock: Clock | None = None) -> Pace:
    return Pace(lambda: rate, "submits more than {rate} jobs per second", "Wait.", clock or Clock())


def test_a_burst_and_then_so_many_in_a_second() -> None:
    clock = Clock()
    pace = pace_of(20, clock)
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
    assert taken(pace_of(0), "bob", 5000) == 5000
    clock = Clock()
    pace = pace_of(1, clock)
    for number in range(REMEMBERED + 10):
        pace.take(str(number))
    assert len(pace._left) == REMEMBERED


def test_one_identity_has_so_many_requests_in_a_second_and_is_told_when_to_come_again(api: Api) -> None:
    bot, other = (program(api, name, (VIEWER.id, TENANT)) for name in ("bot", "other"))
    api.call("PUT", "/api/v1/security/settings/request-rate", json={"value": "1"})
    answers = [api.http.get("/api/v1/whoami", headers=bot) for _ in range(BURST + 1)]
    assert [it.status_code for it in answers] == [200] * BURST + [429]
    assert answers[-1].headers["Retry-After"] == "1"
    assert "bot sends more than 1 requests in a second" in answers[-1].json()["message"]
    api.call("GET", "/api/v1/whoami", headers=other)
    for _ in range(3 * BURST):  # the owner of the state folder is never limited
        api.get("/api/v1/whoami")
    api.call("PUT", "/api/v1/security/settings/request-rate", json={"value": "off"})
    api.call("GET", "/api/v1/whoami", headers=bot)
