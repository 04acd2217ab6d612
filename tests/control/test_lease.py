"""When a leader counts as gone: by looks and renewals, never by another machine's clock."""

import threading

import pytest

from pliant.control.lease import LOOKS, Renewal, Seen, Vigil
from pliant.control.ports import StaleEpoch

LEASE = 8.0
LOOK = LEASE / LOOKS


def looks(vigil: Vigil, count: int, begin: float = 0.0, seen: Seen | None = None) -> bool:
    """The result of the last of `count` looks in a row."""
    return [vigil.look(seen or Seen(1, 0, 0), begin + number * LOOK) for number in range(count)][-1]


def test_a_leader_that_is_silent_for_a_lease_is_followed() -> None:
    vigil = Vigil(LEASE)
    assert not looks(vigil, LOOKS)
    assert looks(vigil, 1, LEASE)


@pytest.mark.parametrize("heard", [Seen(1, 1, 0), Seen(2, 0, 0)], ids=["renewed", "another leader"])
def test_each_word_of_a_leader_counts_from_then(heard: Seen) -> None:
    vigil = Vigil(LEASE)
    assert not looks(vigil, LOOKS)
    assert not looks(vigil, LOOKS, LEASE, heard)
    assert looks(vigil, 1, 2 * LEASE, heard)


def test_what_a_leader_writes_is_no_sign_of_life_without_renewals() -> None:
    """Transactions of others, such as a restore, must not make a leader count as alive."""
    vigil = Vigil(LEASE)
    assert [vigil.look(Seen(1, 0, number), number * LOOK) for number in range(LOOKS + 1)][-1]


def test_a_watcher_that_slept_itself_takes_nothing_for_it() -> None:
    """While a machine is suspended, the leader on it is silent too."""
    vigil = Vigil(LEASE)
    assert not looks(vigil, 2)
    assert not vigil.look(Seen(1, 0, 0), 1000.0)
    assert looks(vigil, LOOKS, 1000.0)


def test_time_in_which_the_store_did_not_answer_does_not_count() -> None:
    vigil = Vigil(LEASE)
    assert not looks(vigil, LOOKS)
    vigil.blind()
    assert not looks(vigil, LOOKS, LEASE)
    assert looks(vigil, 1, 2 * LEASE)


class Lead:
    """A store as a leader sees it."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.error, self.answers = error, threading.Event()
        self.asked = threading.Event()
        if not hangs:
            self.answers.set()

    def renew(self, epoch: int) -> None:
        self.asked.set()
        self.answers.wait(120)
        if self.error is not None:
            raise self.error

    def seen(self) -> Seen:
        return Seen(1, 0, 0)

    def claim(self, seen: Seen) -> int | None:
        return None


def told(lead: Lead, lease: float) -> tuple[Renewal, "list[BaseException]", threading.Event]:
    over: list[BaseException] = []
    said = threading.Event()

    def end(error: BaseException) -> None:
        over.append(error)
        said.set()

    renewal = Renewal(lead, 1, lease, end)
    renewal.start()
    return renewal, over, said


def test_a_leader_that_was_replaced_learns_of_it() -> None:
    renewal, over, said = told(Lead(StaleEpoch("epoch 1 is over")), 2.0)
    assert said.wait(120)
    renewal.close()
    assert isinstance(over[0], StaleEpoch)


def test_a_leader_to_which_nothing_answers_steps_back() -> None:
    lead = Lead(hangs=True)
    renewal, over, said = told(lead, 0.2)
    assert said.wait(120)
    lead.answers.set()
    renewal.close()
    assert "has not answered" in str(over[0])


def test_a_store_that_says_no_is_trouble_and_no_reason_to_step_back() -> None:
    lead = Lead(OSError("refused"))
    renewal, over, said = told(lead, 2.0)
    assert lead.asked.wait(120)
    while not renewal.trouble:
        said.wait(0.01)
    assert "refused" in renewal.trouble
    renewal.close()
    assert not over


def test_a_leader_that_was_silent_is_in_doubt_until_it_has_looked() -> None:
    lead = Lead(hangs=True)
    renewal, _, _ = told(lead, 1000.0)  # it renews nothing in this test
    assert not renewal.doubtful
    renewal._tried -= 1001.0
    assert renewal.doubtful
    renewal.close()
