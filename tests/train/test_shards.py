"""The shard queue as a state machine: each record of each epoch counts exactly once, or is put aside."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pliant.train.errors import Refused
from pliant.train.master.shards import Lease, ShardQueue


class Model(RuleBasedStateMachine):
    """Workers lease, claim, finish, fail, die, fall silent; the master is restarted from its records."""

    @initialize(records=st.integers(1, 40), size=st.integers(1, 12), epochs=st.integers(1, 3))
    def begin(self, records: int, size: int, epochs: int) -> None:
        self.shape = {"records": records, "size": size, "epochs": epochs, "seed": 1}
        self.events: list[dict[str, Any]] = []
        self.now = 0
        self.held: dict[int, tuple[Lease, int]] = {}  # number -> (lease, claimed by us)
        self.q = ShardQueue(**self.shape, record=self.events.append)

    def workers(self) -> st.SearchStrategy[str]:
        return st.sampled_from(["a", "b", "c"])

    @rule(data=st.data())
    def lease(self, data: Any) -> None:
        found = self.q.lease(data.draw(self.workers()), self.now)
        if found is not None:
            self.held[found.number] = (found, found.start)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), stride=st.integers(1, 6))
    def claim(self, data: Any, stride: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        lease, claimed = self.held[number]
        try:
            upto = self.q.claim(number, lease.worker, claimed, claimed + stride, self.now)
        except Refused as error:
            self.stale(error)
            del self.held[number]
            return
        if upto == claimed:
            del self.held[number]
        else:
            self.held[number] = (lease, upto)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        lease, _ = self.held.pop(number)
        try:
            self.q.fail(number, lease.worker, "no good")
        except Refused as error:
            self.stale(error)

    def stale(self, error: Refused) -> None:
        assert error.code == "stale"

    @rule(data=st.data())
    def die(self, data: Any) -> None:
        self.q.lose(data.draw(self.workers()))

    @rule(ms=st.integers(0, 90_000))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def restart(self) -> None:
        fresh = ShardQueue(**self.shape)
        for event in self.events:
            fresh.replay(event)
        fresh.record = self.events.append
        fresh.numbers = self.q.numbers + 1_000  # an old lease's number means nothing to the new master
        self.q = fresh

    @invariant()
    def the_books_balance(self) -> None:
        if not hasattr(self, "q"):
            return
        q = self.q
        for epoch in range(self.shape["epochs"]):
            counted = [i for e in self.events if e["epoch"] == epoch for i in range(e["start"], e["stop"])]
            assert len(counted) == len(set(counted)), "a record was counted twice"
            if epoch < q.epoch or q.finished:
                assert sorted(counted) == list(range(self.shape["records"])), (
                    "an epoch ended without all records"
                )
            if epoch > q.epoch:
                assert counted == [], "an epoch began before the one before it had ended"
        waiting = [i for r in q.todo for i in range(r.start, r.stop)]
        leased = [i for lease in q.leases.values() for i in range(lease.done, lease.stop)]
        done = [i for e in self.events if e["epoch"] == q.epoch for i in range(e["start"], e["stop"])]
        if not q.finished:
            assert sorted(waiting + leased + done) == list(range(self.shape["records"]))

    def teardown(self) -> None:
        """One worker finishes the queue from its present state."""
        if not hasattr(self, "q"):
            return
        for _ in range(10_000):
            found = self.q.lease("z", self.now)
            if found is None:
                if self.q.finished:
                    break
                self.now += 61_000  # the others have fallen silent
                continue
            upto = self.q.claim(found.number, "z", found.start, found.stop, self.now)
            while upto > found.done:
                upto = self.q.claim(found.number, "z", upto, found.stop, self.now)
        assert self.q.finished
        self.the_books_balance()


Model.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestModel = Model.TestCase


def test_an_idle_worker_takes_what_a_slow_one_has_not_claimed() -> None:
    q = ShardQueue(100, 100, shuffle=False)
    slow = q.lease("slow", 0)
    assert slow is not None
    assert q.claim(slow.number, "slow", 0, 10, 0) == 10
    fast = q.lease("fast", 0)
    assert fast is not None and (fast.start, fast.stop) == (55, 100)
    assert q.claim(slow.number, "slow", 10, 100, 0) == 55, "the slow one learns how far it may go"


def test_a_record_that_always_fails_is_found_and_put_aside_alone() -> None:
    q = ShardQueue(16, 8, shuffle=False)
    while (lease := q.lease("a", 0)) is not None:
        claimed = q.claim(lease.number, "a", lease.start, lease.stop, 0)
        if lease.start <= 5 < claimed:
            q.fail(lease.number, "a", "ValueError: record 5")
        else:
            q.claim(lease.number, "a", claimed, claimed, 0)
    assert q.finished and [(r.start, r.stop) for _, r, _ in q.quarantined] == [(5, 6)]


def test_what_was_done_in_another_epoch_counts_in_none_but_that() -> None:
    q = ShardQueue(10, 5, epochs=2, shuffle=False)
    later = {"kind": "done", "epoch": 1, "start": 0, "stop": 5}
    q.replay(later)
    assert (q.epoch, [(r.start, r.stop) for r in q.todo]) == (0, [(0, 5), (5, 10)])
    q.replay({"kind": "done", "epoch": 0, "start": 0, "stop": 10})
    q.replay({"kind": "done", "epoch": 0, "start": 0, "stop": 10})
    assert (q.epoch, [(r.start, r.stop) for r in q.todo], q.finished) == (1, [(0, 5), (5, 10)], False)
    q.replay(later)
    assert [(r.start, r.stop) for r in q.todo] == [(5, 10)]


@pytest.mark.parametrize("shape", [(0, 1, 1), (5, 0, 1), (5, 1, 0)])
def test_nothing_to_do_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(Refused, match="needs records"):
        ShardQueue(*shape)
