"""The shard queues of a job, by name, and the calls to them."""

from typing import Any

from pliant.train.errors import Refused
from pliant.train.master.httpd import Answer, Call
from pliant.train.master.ledger import Ledger
from pliant.train.master.shards import Lease, ShardQueue

_SHAPE = ("records", "size", "epochs", "seed", "shuffle")


class Queues:
    """The first `lease` that names a queue creates it; the ledger keeps its finished records."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queues: dict[str, ShardQueue] = {}
        self._shapes: dict[str, dict[str, Any]] = {}

    def call(self, what: str, worker: str, call: Call, now: int) -> Answer:
        """Answer a lease, claim, done (a claim of no more records) or return."""
        name = call.get("queue", str)
        if what == "lease":
            queue = self._named(name, {key: call.body.get(key) for key in _SHAPE})
            return self._lease(queue, worker, now)
        if name not in self._queues:
            raise Refused(f"There is no queue {name!r}", "unknown", 404)
        queue, number = self._queues[name], call.get("shard", int)
        if what == "return":
            queue.fail(number, worker, call.get("error", str))
            return {}
        done = call.get("done", int)
        return {"claimed": queue.claim(number, worker, done, call.get("upto", int, done), now)}

    def _lease(self, queue: ShardQueue, worker: str, now: int) -> Answer:
        lease: Lease | None = queue.lease(worker, now)
        if lease is not None:
            return {
                "what": "shard",
                "shard": lease.number,
                "start": lease.start,
                "stop": lease.stop,
                "epoch": queue.epoch,
            }
        if queue.finished:
            return {"what": "end", "skipped": queue.skipped()}
        return None

    def _named(self, name: str, shape: dict[str, Any], *, fresh: bool = True) -> ShardQueue:
        if name not in self._queues:
            if fresh:
                self._ledger.append("queue", {"queue": name, **shape})
            queue = ShardQueue(**shape)
            queue.record = lambda event: self._write(name, event)
            self._queues[name], self._shapes[name] = queue, shape
        elif self._shapes[name] != shape:
            raise Refused(f"Queue {name!r} is {self._shapes[name]}, not {shape}", "settings", 409)
        return self._queues[name]

    def _write(self, name: str, event: dict[str, object]) -> None:
        self._ledger.append("shard", {"queue": name, **event})

    def tick(self, now: int, gone: set[str]) -> None:
        """Take back the leases of workers that are gone, and those not renewed in time."""
        for queue in self._queues.values():
            queue.expire(now)
            for worker in {lease.worker for lease in queue.leases.values()} & gone:
                queue.lose(worker)

    def replay(self, kind: str, body: dict[str, Any]) -> None:
        """Take over a `queue` or `shard` event of the ledger."""
        if kind == "queue":
            self._named(body["queue"], {key: body[key] for key in _SHAPE}, fresh=False)
        else:
            self._queues[body["queue"]].replay(body)

    def skipped(self) -> int:
        """The number of records in quarantine."""
        return sum(queue.skipped() for queue in self._queues.values())

    def status(self) -> dict[str, Any]:
        """Each queue's part of the job's status, by name."""
        return {
            name: {
                "epoch": queue.epoch,
                "waiting": sum(r.stop - r.start for r in queue.todo),
                "leased": sum(lease.stop - lease.done for lease in queue.leases.values()),
                "skipped": queue.skipped(),
                "finished": queue.finished,
            }
            for name, queue in self._queues.items()
        }
