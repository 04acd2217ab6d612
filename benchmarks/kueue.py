"""Kueue's performance test through the server's loop and a store that syncs to disk: 15,000 workloads.

Input: tests/sim/data/kueue.csv, the baseline of its generator (5 cohorts of 6 queues). Each cohort has a
quota of 120 units, each queue 20, and may borrow 100. Workloads are created and end on a virtual clock that
jumps, so the time taken is that of deciding, recording and acting, without waiting. Kueue's own recorded run
took 351.1 s in real time with an API server; the bound is 66 s, the least that the run times of the workloads
allow. Every admission is in the store (SQLite, synced) before its order is sent.
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from pliant.control.ports import Store
from pliant.sim import kueue
from pliant.sim.simulation import Assumed, Simulation
from pliant.store import open_store

INPUT = Path(__file__).parents[1] / "tests" / "sim" / "data" / "kueue.csv"
BOUND, RECORDED = 66.0, 351.1


class OnDisk(Simulation):
    """A simulation whose server writes to a real store."""

    def __init__(self, *given: object, path: Path) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.path = path

    def store(self) -> Store:
        store = open_store(self.path)
        self.seed(store)
        return store


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a few workloads, whose numbers mean nothing")
    given = parser.parse_args()
    trace = kueue.read(INPUT)
    if given.tiny:
        trace = replace(trace, jobs=trace.jobs[:200])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pliant.db"
        simulation = OnDisk(trace, Assumed(), 0, path=path)
        gc.collect()
        gc.freeze()  # as the server does after its start
        began, spent = time.perf_counter(), time.process_time()
        meter = simulation.run().meter
        took, cpu = time.perf_counter() - began, time.process_time() - spent
        with sqlite3.connect(path) as store:
            (stored,) = store.execute("SELECT count(DISTINCT workload) FROM attempts").fetchone()
    virtual = (meter.now - meter.began) / 1000
    ended = sum(1 for job in meter.jobs.values() if job.ended is not None)
    print(f"{len(meter.jobs)} workloads, {ended} ended, {stored} admissions in the store")
    print(f"{took:.1f} s, {cpu:.1f} s of processor time; {took / BOUND:.2f} of the bound of {BOUND:.0f} s")
    print(f"virtual time {virtual:.1f} s; Kueue recorded {RECORDED} s in real time")
    for kind in ("large", "medium", "small"):
        waits = [
            job.started - job.submitted
            for name, job in meter.jobs.items()
            if f"-{kind}-" in name and job.started is not None
        ]
        if waits:
            print(f"{kind:8}{len(waits):8} admitted after {sum(waits) / len(waits) / 1000:8.1f} s on average")
    return 0 if ended == len(meter.jobs) == stored else 1


if __name__ == "__main__":
    sys.exit(main())
