"""What shares of GPUs cost the server: handing one out, and checking all of them about once a second.

Input: synthetic, made here. 200 tasks with half of a simulated GPU each, on nodes of 4. Reference in the same
run: `calibrate()`. The goal of a check is 5 % of a core, in CPU time, because it has its own thread.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from measure import calibrate, head, row, tiny, took

from pliant.devices.handout import Handout
from pliant.devices.place import Place
from pliant.model.machine import Gpu, Node, Placement, Share
from pliant.model.order import Start
from pliant.model.workload import AttemptId, Kind, Launch, Request, TaskGroup, Workload

TASKS, CARD = 200, 16 * 2**30
NODE = Node(
    "n0",
    tuple(Gpu(f"GPU-00000000-0000-0000-0000-{index:012}", index, CARD) for index in range(4)),
    simulated=True,
)


def order(number: int) -> Start:
    group = TaskGroup("task", Request(1, 500))
    row = Workload(f"w{number}", f"w{number}", "p", Kind.TRAINING, Launch("ubuntu"), (group,))
    share = Share(NODE.gpus[number % 4].uuid, 500, CARD // 2)
    return Start(AttemptId(row.id, "task-0", 1), Placement(NODE.name, (share,)), row, "d", 1)


def main() -> int:
    tasks = 10 if tiny(__doc__) else TASKS
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as name:
        place = Place(Path(name), {})
        handout = Handout(place)
        handout.observer.close()  # look() is called below
        try:
            given = []
            for number in range(tasks):
                folder = Path(name) / str(number)
                folder.mkdir()
                given.append(took(lambda n=number, f=folder: handout.hand_out(order(n), NODE, f, "")))
            looks = []
            for _ in range(5):
                began = time.thread_time()
                handout.observer.look()
                looks.append((time.thread_time() - began) * 1000)
            reference = (statistics.median(took(calibrate) for _ in range(5)), "calibrate()")
        finally:
            place.remove()
    head("Shares of GPUs")
    row("hand a share out", statistics.median(given), "ms", to=reference)
    row(f"look at {tasks} tasks, CPU", statistics.median(looks), "ms", target=50, to=reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())
