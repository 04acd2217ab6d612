"""What questions cost and how they affect the loop: why, what-if of a lost rack, the recording of cycles.

Input: synthetic, from cycle.py (8 nodes of 8 GPUs) with 500 and 20,000 pending workloads, and 1,000 nodes of
8 GPUs in 50 racks, 4 of 5 GPUs in use. Reference in the same run: one cycle of the core on the same world.
Goals: why within 50 ms at 500 pending and 500 ms at 20,000, a lost rack of 1,000 nodes within 2 s, recording
under 2 % of the time of a cycle, and cycles no slower while questions are asked.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import cycle as small
from measure import cpu_seconds, tiny

from pliant.api.routes.workloads.waiting import AHEAD
from pliant.control.board.view import Board
from pliant.control.decider.child import ChildDecider
from pliant.control.explain.questions import Questions
from pliant.control.loop import Loop
from pliant.control.ports import Batch, Saved
from pliant.control.recording import Cycled
from pliant.control.state.draft import Draft
from pliant.model.machine import Gpu, Node, Placement, Share
from pliant.model.workload import Kind, Launch, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.store import open_store
from pliant.store.ring import Ring


class Clock:
    def now(self) -> int:
        return small.NOW


class NoStore:
    """Has its initial rows and stores nothing else."""

    def __init__(self, rows: list) -> None:
        self._rows = rows

    def lead(self) -> int:
        return 1

    def load(self) -> Saved:
        return Saved(self._rows, {})

    def ended(self, project: str | None = None, limit: int = 500) -> tuple:
        return ()

    def commit(self, epoch: int, batch: object) -> None:
        pass


def loop_over(rows: list) -> Loop:
    loop = Loop(NoStore(rows), {}, Clock(), decider=ChildDecider())  # type: ignore[arg-type]
    loop.decider.open(loop._arrived)
    loop.state.epoch = 1
    loop.state.rebuild(loop.store.load())
    loop.cycle([], 60)
    return loop


def times(run, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        found.append((time.perf_counter() - began) * 1000)
    return found


def whys(pending: int, rounds: int) -> None:
    rows = [*small.cluster(), *small.workloads(pending)]
    loop = loop_over(rows)
    loop.start()
    questions = Questions(loop)
    verdicts = loop.state.verdicts.workloads
    chosen = [verdicts[len(verdicts) * part // 7] for part in (0, 1, 2, 3, 4, 5, 6)]
    turn = iter(chosen * rounds)
    took = times(lambda: questions.unblock(next(turn)), rounds)
    cycle = statistics.median(times(lambda: loop.look(lambda s: decide(s.world, small.NOW, s.settings)), 5))
    goal = 50 if pending <= 500 else 500
    print(
        f"why, {pending:,} pending: median {statistics.median(took):.0f} ms, worst {max(took):.0f} ms"
        f" (goal {goal}); {statistics.median(took) / cycle:.2f} x a cycle of {cycle:.1f} ms"
    )
    alone, own = during(loop, lambda: None, rounds)
    beside, shared = during(loop, lambda: questions.unblock(chosen[3]), rounds)
    routed(loop.board)
    print(
        f"  cycles: {statistics.median(alone):.1f} ms alone (worst {max(alone):.1f}),"
        f" {statistics.median(beside):.1f} ms (worst {max(beside):.1f}) while questions are asked without a"
        f" pause: {statistics.median(beside) / statistics.median(alone):.2f} x; processor time of loop and"
        f" decider a cycle: {own:.1f} and {shared:.1f} ms"
    )
    loop.close()


def routed(board: Board) -> None:
    """The route's other work, for the last in the queue: the workloads before it, and the answer as JSON."""

    def run() -> None:
        first = map(board.workloads.__getitem__, islice(board.queue, AHEAD))
        ahead = [(it.workload.name, it.project.name, it.missing) for it in first]
        json.dumps([ahead, len(board.queue)])

    print(f"  the route besides: {min(times(run, 5)):.1f} ms")


def spent(loop: Loop) -> float:
    """CPU time (ms) of the loop's thread and the decider so far, which other load does not increase."""
    assert isinstance(loop.decider, ChildDecider) and loop.decider.pid is not None
    own = time.clock_gettime(time.pthread_getcpuclockid(loop._thread.ident))
    return 1000 * (own + cpu_seconds(loop.decider.pid))


def during(loop: Loop, ask, rounds: int) -> tuple[list[float], float]:
    """Times (ms) of cycles, from the board, while another thread asks; and the CPU time (ms) of a cycle."""
    going = True

    def asking() -> None:
        while going:
            ask()
            time.sleep(0.001)

    thread = threading.Thread(target=asking)
    thread.start()
    found = []
    began = spent(loop)
    for _ in range(max(10, rounds)):
        before = loop.board.cycles
        loop.wake()
        while loop.board.cycles == before:
            time.sleep(0.001)
        found.append(loop.board.cycle_us / 1000)
        time.sleep(0.01)
    each = (spent(loop) - began) / len(found)
    going = False
    thread.join()
    return found, each


def hall(count: int) -> list:
    """Nodes of 8 GPUs in racks of 20, four of five GPUs in use, no workload pending."""
    rows: list = [row for row in small.cluster() if not isinstance(row, Node)]
    serial = 0
    for n in range(count):
        cards = tuple(Gpu(f"n{n:04}.{i}", i, small.CARD) for i in range(8))
        labels = (("rack", f"r{n // 20:02}"),)
        rows.append(Node(f"n{n:04}", cards, 128_000, 8 * 2**36, labels))
        for i in range(0, 6 if n % 2 else 7, 2):
            serial += 1
            size = min(2, (6 if n % 2 else 7) - i)
            name, group = f"w{serial}", TaskGroup("main", Request(size))
            place = Placement(
                f"n{n:04}", tuple(Share(f"n{n:04}.{i + k}", memory=small.CARD) for k in range(size))
            )
            rows.append(
                Workload(name, name, f"p{serial % 4}", Kind.TRAINING, Launch("i"), (group,), serial=serial)
            )
            task = Task(name, "main-0", "main", 0, TaskPhase.RUNNING, place, place, 1, small.NOW - 3_600_000)
            rows.append(task)
    return rows


def rack(count: int, rounds: int) -> None:
    loop = loop_over(hall(count))
    loop.start()
    questions = Questions(loop)
    rack = {"label": "rack", "value": "r01"}
    cycle = statistics.median(times(lambda: loop.look(lambda s: decide(s.world, small.NOW, s.settings)), 3))
    for kind, words in (("fail", "fails"), ("drain", "is drained")):
        took = times(lambda said=[{"kind": kind, **rack}]: questions.what_if(said), rounds)
        found = questions.what_if([{"kind": kind, **rack}]).found
        median = statistics.median(took)
        print(
            f"what-if, a rack of 20 of {count:,} nodes {words}: median {median:.0f} ms (goal 2000),"
            f" {len(found.differences)} workloads fare otherwise; {median / cycle:.0f} x a cycle"
        )
    names = [name for name, node in loop.world.nodes.items() if node.row.label("rack") == "r01"]
    seen = statistics.median(times(lambda: questions.preview(names, stop=False), rounds))
    moves = sum(what == "moves" for _, what in questions.preview(names, stop=False).workloads)
    print(f"  preview of its drain: {seen:.0f} ms, {moves} workloads move")
    alone, _ = during(loop, lambda: None, rounds)
    beside, _ = during(loop, lambda: questions.what_if([{"kind": "drain", **rack}]), rounds)
    print(
        f"  cycles: {statistics.median(alone):.1f} ms alone (worst {max(alone):.1f}),"
        f" {statistics.median(beside):.1f} ms (worst {max(beside):.1f}) while that is asked without a pause"
    )
    empty = statistics.median(times(lambda: loop.question(bool), 5))
    print(f"  an empty question beside the loop: {empty:.1f} ms")
    loop.close()


def recording(pending: int, rounds: int) -> None:
    """Submits one workload in each cycle of a loop with a store on disk. Prints the CPU time by thread."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [*small.cluster(), *small.workloads(pending)]
        store = open_store(Path(folder) / "pliant.db")
        store.commit(store.lead(), Batch(put=rows))
        ring = Ring(Path(folder) / "replay")
        loop = Loop(store, {}, Clock(), recorder=ring)
        loop.state.epoch = store.lead()
        loop.state.rebuild(store.load())
        loop.cycle([])
        ring.drained()
        take, decided, taking, written = ring.take, 0, 0, ring.spent

        def timed(cycled: Cycled) -> None:
            nonlocal taking, decided
            began = time.thread_time_ns()
            take(cycled)
            taking += time.thread_time_ns() - began
            decided += cycled.took * 1000

        ring.take = timed  # type: ignore[method-assign]
        began = time.thread_time_ns()
        for number in range(rounds):
            loop.submit(lambda draft, at=number: submitted(loop, draft, at))
            loop.cycle()
        whole = time.thread_time_ns() - began - taking
        ring.drained()
        writing = ring.spent - written
        print(
            f"record of {rounds} cycles of {whole / rounds / 1e6:.1f} ms, {pending} pending:"
            f" {100 * (taking + writing) / whole:.2f} % of their time (goal: under 2 %),"
            f" {100 * taking / whole:.2f} % on the loop, {100 * writing / whole:.2f} % in the writing thread;"
            f" {100 * (taking + writing) / decided:.2f} % of deciding alone;"
            f" {ring.held().size / rounds:.0f} bytes a cycle, a whole world included"
        )
        ring.close()
        store.close()


def submitted(loop: Loop, draft: Draft, number: int) -> None:
    """Puts a copy of a pending workload and its tasks."""
    known = loop.world.workloads[f"w{64 + number}"]
    name = f"more-{number}"
    draft.put(replace(known, id=name, name=name, serial=100_000 + number))
    for task in loop.world.tasks_of(known.id):
        draft.put(replace(task, workload=name))


if __name__ == "__main__":
    few = tiny(__doc__)
    whys(100 if few else 500, 2 if few else 21)
    if not few:
        whys(20_000, 7)
    rack(60 if few else 1_000, 1 if few else 5)
    recording(100 if few else 500, 5 if few else 200)
