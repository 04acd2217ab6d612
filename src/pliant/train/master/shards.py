"""A queue of record ranges for workers that differ in speed: leases, work stealing, bounded retries,
quarantine.

A state machine without I/O or clock (`now` is ms). Workers claim a shard's records in strides. Records that
were claimed and reported count; those that a dead worker had claimed are done again; those that were not
claimed yet can be stolen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pliant.train.data.order import Order
from pliant.train.errors import Refused


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Waiting records [start, stop), and how often they failed or were lost."""

    start: int
    stop: int
    failures: int = 0
    losses: int = 0


@dataclass(slots=True)
class Lease:
    """A range leased to a worker, identified by `number`."""

    number: int
    worker: str
    start: int
    stop: int  # a thief may lower it, never below `claimed`
    done: int  # [start, done) counts
    claimed: int  # [done, claimed) is being computed
    until: int
    failures: int
    losses: int


@dataclass(slots=True)
class ShardQueue:
    """`records` in shards of `size`, for each of `epochs`. An epoch begins when the previous one is done."""

    records: int
    size: int
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True
    lease_ms: int = 60_000
    max_failures: int = 3
    max_losses: int = 10
    record: Callable[[dict[str, object]], None] = lambda _event: None  # called before any worker learns of it
    epoch: int = 0
    todo: list[Range] = field(default_factory=list)
    leases: dict[int, Lease] = field(default_factory=dict)
    quarantined: list[tuple[int, Range, str]] = field(default_factory=list)  # (epoch, range, last error)
    numbers: int = 0
    finished: bool = False

    def __post_init__(self) -> None:
        if self.records < 1 or self.size < 1 or self.epochs < 1:
            raise Refused(
                f"A queue needs records, a size and epochs; got {self.records}, {self.size}, {self.epochs}"
            )
        self._fill()

    def _fill(self) -> None:
        count = -(-self.records // self.size)
        order = Order(count, self.seed, self.epoch, shuffle=self.shuffle).indices(0, count).tolist()
        self.todo = [Range(i * self.size, min((i + 1) * self.size, self.records)) for i in order]

    # -- calls of workers ------------------------------------------------------------------------------

    def lease(self, worker: str, now: int) -> Lease | None:
        """A range for the worker. None: the queue is `finished`, or wait while others hold ranges."""
        self.expire(now)
        if self.finished:
            return None
        if self.todo:
            return self._grant(worker, self.todo.pop(0), now)
        return self._steal(worker, now)

    def claim(self, number: int, worker: str, done: int, upto: int, now: int) -> int:
        """Report the records before `done` as computed and claim those before `upto`. Returns the end of the
        claimed records (`done`: nothing is left, or the rest was stolen). Raises Refused if the lease is not
        the worker's any more."""
        lease = self._mine(number, worker)
        if not lease.done <= done <= lease.claimed or upto < done:
            raise Refused(
                f"Shard {number}: done {done}, claimed to {upto}, but its position is {lease.done} of "
                f"{lease.claimed}"
            )
        self._count(lease, done)
        lease.claimed = max(lease.claimed, min(upto, lease.stop))
        lease.until = now + self.lease_ms
        if lease.done == lease.stop:
            self._drop(lease)
            return done
        return lease.claimed

    def fail(self, number: int, worker: str, error: str) -> None:
        """The claimed records could not be computed: they count a failure. The unclaimed rest goes back."""
        lease = self._mine(number, worker)
        bad = Range(lease.done, max(lease.claimed, lease.done + 1), lease.failures + 1, lease.losses)
        self._back(Range(bad.stop, lease.stop, lease.failures, lease.losses))
        self._retry(bad, error)
        self._drop(lease)

    def lose(self, worker: str) -> None:
        """The worker is gone: the records that it had not reported are done again."""
        for lease in [lease for lease in self.leases.values() if lease.worker == worker]:
            self._lost(lease)

    def expire(self, now: int) -> None:
        """Take back the leases that were not renewed in time."""
        for lease in [lease for lease in self.leases.values() if now >= lease.until]:
            self._lost(lease)

    def skipped(self) -> int:
        """The number of records in quarantine, over all epochs."""
        return sum(bad.stop - bad.start for _, bad, _ in self.quarantined)

    def replay(self, event: dict[str, object]) -> None:
        """Take over an event that an earlier master recorded. Only before the first lease."""
        if event["epoch"] != self.epoch:
            return
        start, stop = int(str(event["start"])), int(str(event["stop"]))
        left = []
        for r in self.todo:
            left += [
                Range(a, b) for a, b in ((r.start, min(r.stop, start)), (max(r.start, stop), r.stop)) if a < b
            ]
        self.todo = left
        if event["kind"] == "quarantine":
            self.quarantined.append((self.epoch, Range(start, stop), str(event["error"])))
        self._advance()

    # -- inside ----------------------------------------------------------------------------------------

    def _mine(self, number: int, worker: str) -> Lease:
        lease = self.leases.get(number)
        if lease is None or lease.worker != worker:
            raise Refused(f"Shard {number} is not {worker}'s now: drop it and ask for another", "stale", 410)
        return lease

    def _grant(self, worker: str, r: Range, now: int) -> Lease:
        self.numbers += 1
        until = now + self.lease_ms
        lease = Lease(self.numbers, worker, r.start, r.stop, r.start, r.start, until, r.failures, r.losses)
        self.leases[lease.number] = lease
        return lease

    def _steal(self, worker: str, now: int) -> Lease | None:
        """Lease the second half of the largest unclaimed rest, if another worker holds it."""
        rich = max(self.leases.values(), key=lambda lease: lease.stop - lease.claimed, default=None)
        if rich is None or rich.worker == worker or rich.stop - rich.claimed < 2:
            return None
        middle = (rich.claimed + rich.stop + 1) // 2
        loot = Range(middle, rich.stop, rich.failures, rich.losses)
        rich.stop = middle
        return self._grant(worker, loot, now)

    def _count(self, lease: Lease, done: int) -> None:
        if done > lease.done:
            self.record({"kind": "done", "epoch": self.epoch, "start": lease.done, "stop": done})
            lease.done = done

    def _lost(self, lease: Lease) -> None:
        self._retry(Range(lease.done, lease.claimed, lease.failures, lease.losses + 1), "its worker was lost")
        self._back(Range(lease.claimed, lease.stop, lease.failures, lease.losses))
        self._drop(lease)

    def _retry(self, bad: Range, error: str) -> None:
        if bad.start >= bad.stop:
            return
        if bad.failures < self.max_failures and bad.losses < self.max_losses:
            self._back(bad)
        elif bad.stop - bad.start > 1:  # one of them is bad: bisect
            middle = (bad.start + bad.stop) // 2
            self._back(Range(bad.start, middle, self.max_failures - 1, 0))
            self._back(Range(middle, bad.stop, self.max_failures - 1, 0))
        else:
            event = {
                "kind": "quarantine",
                "epoch": self.epoch,
                "start": bad.start,
                "stop": bad.stop,
                "error": error,
            }
            self.record(event)
            self.quarantined.append((self.epoch, bad, error))

    def _back(self, r: Range) -> None:
        if r.start < r.stop:
            self.todo.append(r)

    def _drop(self, lease: Lease) -> None:
        del self.leases[lease.number]
        self._advance()

    def _advance(self) -> None:
        if self.todo or self.leases or self.finished:
            return
        if self.epoch + 1 < self.epochs:
            self.epoch += 1
            self._fill()
        else:
            self.finished = True
