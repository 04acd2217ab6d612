"""The worker's side of shard queues, for evaluation, prediction and preprocessing by workers of different
speed."""

import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from pliant.train.errors import BadData, Left, Refused, count
from pliant.train.master.calls import MasterClient
from pliant.train.master.shards import ShardQueue

LEASE_WAIT_MS = 2_000


def work(
    client: MasterClient | None,
    worker: str,
    name: str,
    records: int,
    function: Callable[[range], None],
    *,
    size: int,
    stride: int | None = None,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool = False,
    max_skipped_records: int = 0,
) -> int:
    """Call function(range) until the workers have done all records of all epochs. Returns the number skipped.

    Raises BadData if more than max_skipped_records records failed at every try: the job has not succeeded
    then. Raises Left between two shards if this worker is to leave.
    """
    shape = {"records": records, "size": size, "epochs": epochs, "seed": seed, "shuffle": shuffle}
    ask = _remote(client, worker, name, shape) if client is not None else _local(shape)
    while True:
        answer = ask("lease", {})
        if answer["what"] == "leave":
            raise Left(0)
        if answer["what"] == "end":
            skipped = int(answer["skipped"])
            if skipped > max_skipped_records:
                raise BadData(
                    f"{count(skipped, 'record')} of {name!r} failed at every try and were left out; "
                    f"max_skipped_records is {max_skipped_records}. See the job's ledger for which and why."
                )
            return skipped
        if answer["what"] == "shard":
            try:
                _one(ask, answer, function, stride or size)
            except Refused as error:
                if error.code != "stale":
                    raise  # another worker has that range by now: ask for a new lease


def _one(
    ask: Callable[..., dict[str, Any]], lease: dict[str, Any], run: Callable[[range], None], stride: int
) -> None:
    for piece in _pieces(ask, lease, stride):
        try:
            run(piece)
        except Exception:  # noqa: BLE001 - whatever the script raised: others try, then it is quarantined
            ask("return", {"shard": lease["shard"], "error": traceback.format_exc(limit=-1).strip()})
            return


def _pieces(ask: Callable[..., dict[str, Any]], lease: dict[str, Any], stride: int) -> Iterator[range]:
    done = lease["start"]
    while True:
        upto = ask("claim", {"shard": lease["shard"], "done": done, "upto": done + stride})["claimed"]
        if upto == done:
            return
        yield range(done, upto)
        done = upto


def _remote(
    client: MasterClient, worker: str, name: str, shape: dict[str, Any]
) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    def ask(what: str, body: dict[str, Any]) -> dict[str, Any]:
        wait = LEASE_WAIT_MS if what == "lease" else 0
        return client.call(what, {"worker": worker, "queue": name, **shape, **body}, wait_ms=wait)

    return ask


def _local(shape: dict[str, Any]) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    queue = ShardQueue(**shape)

    def ask(what: str, body: dict[str, Any]) -> dict[str, Any]:
        now = time.monotonic_ns() // 1_000_000
        if what == "lease":
            lease = queue.lease("here", now)
            if lease is None:
                return {"what": "end", "skipped": queue.skipped()}
            return {"what": "shard", "shard": lease.number, "start": lease.start, "stop": lease.stop}
        if what == "return":
            queue.fail(body["shard"], "here", body["error"])
            return {}
        return {"claimed": queue.claim(body["shard"], "here", body["done"], body["upto"], now)}

    return ask
