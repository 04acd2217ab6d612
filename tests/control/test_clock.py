"""The server's clock while the machine's clock is set."""

import threading

import pytest

from pliant.control.clock import SteadyClock, stamp

START = 1_700_000_000_000


class Times:
    """The machine's two clocks, in ms."""

    def __init__(self) -> None:
        self.wall, self.steady = START, 5_000

    def clock(self, floor: int = 0) -> SteadyClock:
        """A server's clock on this machine."""
        return SteadyClock(floor, wall=lambda: self.wall * 1_000_000, steady=lambda: self.steady * 1_000_000)

    def pass_(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms


@pytest.fixture
def times() -> Times:
    return Times()


def test_set_back_it_goes_on(times: Times) -> None:
    clock = times.clock()
    times.pass_(10_000)
    assert clock.now() == START + 10_000
    times.wall -= 3_600_000
    assert clock.now() == START + 10_000
    times.pass_(500)
    assert clock.now() == START + 10_500


def test_set_forward_it_follows_and_small_steps_are_left_out(times: Times) -> None:
    clock = times.clock()
    times.wall += 900
    assert clock.now() == START
    times.wall += 3_600_000
    assert clock.now() == START + 3_600_900
    times.pass_(7)
    assert clock.now() == START + 3_600_907


def test_a_new_server_begins_no_earlier_than_what_is_recorded(times: Times) -> None:
    clock = times.clock(START + 60_000)
    assert clock.now() == START + 60_000
    times.pass_(1_000)
    assert clock.now() == START + 61_000


def test_a_step_that_many_threads_see_is_taken_once(times: Times) -> None:
    together, said = threading.Barrier(4), list[int]()
    met = False

    def slow() -> int:
        value = times.wall * 1_000_000
        if met:
            together.wait(60)  # all have read the machine's clock before the first may act on it
        return value

    clock = SteadyClock(wall=slow, steady=lambda: times.steady * 1_000_000)
    times.wall += 3_600_000
    met = True
    threads = [threading.Thread(target=lambda: said.append(clock.now())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    met = False
    assert said == [START + 3_600_000] * 4
    assert clock.now() == START + 3_600_000


def test_a_moment_is_written_as_the_standard_says() -> None:
    assert stamp(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert stamp(-57_621_632_336_000 + 7) == "0144-01-16T23:01:04.007Z"
    assert len(stamp(-62_135_596_800_000)) == len("0001-01-01T00:00:00.000Z")
