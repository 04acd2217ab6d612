"""What prune deletes and what it keeps."""

import pytest

from pliant.control.ports import Batch, Remembered
from pliant.store import Database, retention
from pliant.store.retention import EVENTS_KEPT
from tests.store.samples import attempt, event, running, task, workload


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", 7)


def messages(store: Database, subject: str) -> list[int]:
    return [e.at for _, e in store.events(subject, limit=10_000)]


def test_deleted_workloads_go_with_all_of_theirs(store: Database) -> None:
    epoch = store.lead()
    for number in (1, 2, 3):
        store.commit(epoch, running(number))
    gone = [workload(1, deleted=50), attempt(1, ended=40), workload(2, deleted=100), attempt(2, ended=40)]
    store.commit(epoch, Batch(put=gone))
    assert store.prune(100) == 1 + 1 + 1  # workload, attempt, event of w-1
    assert [w.id for w in store.ended()] == ["w-2"]
    assert not store.attempts("w-1") and not store.events("w-1")
    assert len(store.attempts("w-2")) == len(store.events("w-2")) == len(store.attempts("w-3")) == 1
    assert store.prune(100) == 0


def test_of_each_task_the_last_attempt_stays(store: Database) -> None:
    epoch = store.lead()
    old = [attempt(1, n, ended=n) for n in range(1, 31)]
    store.commit(epoch, Batch(put=[workload(1), task(1, attempt=30), *old, attempt(1, 31)]))
    assert store.prune(20) == 19
    assert [a.id.number for a in store.attempts("w-1")] == [*range(20, 32)]
    assert store.prune(10_000) == 10
    assert [a.id.number for a in store.attempts("w-1")] == [30, 31]


def test_of_a_stored_workload_the_newest_events_stay(store: Database) -> None:
    epoch = store.lead()
    count = EVENTS_KEPT + 50
    history = [event(subject, at) for at in range(count) for subject in ("w-1", "w-2", "server", "w-9")]
    store.commit(epoch, Batch(put=[workload(1), workload(2, deleted=10_000)], events=history))
    store.commit(epoch, Batch(put=[workload(3)], events=[event("w-3", at) for at in range(10)]))
    store.prune(20)
    assert (
        messages(store, "w-1") == messages(store, "w-2") == messages(store, "server") == [*range(20, count)]
    )
    store.prune(count + 1)
    assert messages(store, "w-1") == messages(store, "w-2") == [*range(50, count)]
    assert messages(store, "w-3") == [*range(10)]
    assert messages(store, "server") == messages(store, "w-9") == []


def test_events_from_a_clock_that_was_set_back_are_judged_by_their_time(store: Database) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(events=[event("server", at) for at in (10, 50, 20, 60)]))
    assert store.prune(30) == 2
    assert messages(store, "server") == [50, 60]


def test_remembered_answers_go(store: Database) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(put=[Remembered(f"k-{at}", "f", 200, "{}", at) for at in range(20)]))
    assert store.prune(15) == 15
    assert store.remembered("k-14") is None
    assert store.remembered("k-15") is not None
