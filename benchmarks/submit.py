"""From Submit to Running, with real processes on simulated GPUs.

Three times of each submission: the API's answer (the workload is on disk), the phase Running as a watching
client sees it, and the task's first instruction, by the time that it writes down. Then `pliant submit`, from
the start of the program to Running. Goals: Running p50 150 ms, p99 500 ms.

Input: made here. `sh -c 'date ...; exec sleep infinity'` on one of 4 GPUs, one after the other, each deleted
as soon as it runs.
References in the same run: 4 KiB synced to the same disk, `python -c pass`.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field

from measure import Server, alternately, head, percentile, python_pass, row, synced_write, tiny, training

from pliant.client import Client
from pliant.client.errors import Unreachable

STAMP = 'date +%s.%N > "$0"; exec sleep infinity'


@dataclass
class Watch:
    """Records when each workload is first seen in the phase Running."""

    client: Client
    seen: dict[str, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        changes = self.client.watch()
        threading.Thread(target=self._follow, args=(changes,), daemon=True).start()

    def _follow(self, changes) -> None:
        with contextlib.suppress(Unreachable):  # the server has ended, and so has the benchmark
            for change in changes:
                if change.item.get("phase") == "Running":
                    with self.changed:
                        self.seen.setdefault(change.item["name"], time.time())
                        self.changed.notify_all()

    def running(self, name: str) -> float:
        """When it was first seen in the phase Running; waits for that."""
        with self.changed:
            assert self.changed.wait_for(lambda: name in self.seen, 60), f"{name} does not run"
            return self.seen[name]


def main() -> int:
    rounds, typed = (3, 2) if tiny(__doc__) else (100, 15)
    with Server("1x4") as server, server.client() as client, server.client() as other:
        watch = Watch(other)
        watch.start()
        answered, running, began = [], [], []
        for number in range(rounds):
            name, stamp = f"w{number}", server.folder / f"stamp-{number}"
            at = time.time()
            made = client.submit("Training", training(name, "sh", "-c", STAMP, str(stamp)))
            answered.append((time.time() - at) * 1e3)
            running.append((watch.running(name) - at) * 1e3)
            began.append((first_instruction(stamp) - at) * 1e3)
            client.delete(made["workloadId"])
        by_hand = []
        for number in range(typed):
            name, at = f"t{number}", time.time()
            server.run("submit", name, "-i", "ubuntu", "-g", "1", "--", "sleep", "infinity")
            by_hand.append((watch.running(name) - at) * 1e3)
            server.run("delete", name)
        disk, python = alternately(3 if rounds < 10 else 15, lambda: synced_write(server.folder), python_pass)
    to_disk, to_python = (disk, "4 KiB synced to disk"), (python, "python -c pass")
    head(
        f"{rounds} submissions by the API, {typed} typed; synced write {disk:.2f} ms, python {python:.2f} ms"
    )
    row("submit: the answer, p50", statistics.median(answered), "ms", to=to_disk)
    row("submit to the task's first instruction, p50", statistics.median(began), "ms", to=to_disk)
    row("submit to Running, p50", statistics.median(running), "ms", target=150, to=to_disk)
    row("submit to Running, p99", percentile(running, 0.99), "ms", target=500, to=to_disk)
    row("`pliant submit` to Running, p50", statistics.median(by_hand), "ms", to=to_python)
    return 0


def first_instruction(stamp) -> float:
    """The time that the task wrote down; waits until it has."""
    deadline = time.monotonic() + 60
    while not (stamp.exists() and (text := stamp.read_text())):
        assert time.monotonic() < deadline, f"nothing wrote {stamp}"
        time.sleep(0.001)
    return float(text)


if __name__ == "__main__":
    sys.exit(main())
