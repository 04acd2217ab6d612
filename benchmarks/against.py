"""How long the core takes beside an earlier one: both alternating, in one run, on the same inputs.

    python benchmarks/against.py e901042
    python benchmarks/against.py e901042 --compiled

The earlier core and its inputs come from the repository's history. Each core runs in its own process for the
whole run. In a round of an input every core runs it once, so that other load on the machine affects all of
them. Times are CPU seconds of processes with one thread; a ratio is that of the medians. Inputs: those of
reclaim.py, scale.py and cycle.py. The numbers of tasks started and stopped are compared, too: a core that
does less is not faster.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Round = tuple[float, int, int]
"""CPU seconds, number of tasks started, number of tasks stopped."""


@dataclass(frozen=True, slots=True)
class Input:
    label: str
    key: str  # of the generator in Core.rounds
    size: int
    rounds: int
    goals: tuple[float, float]  # at most this part of the earlier core's time: plain, compiled


WHOLE = (
    Input("a gang takes back half of 1,000 nodes", "gang", 1000, 7, (0.95, 0.5)),
    Input("4,000 single GPUs are exchanged, 500 nodes", "exchange", 500, 5, (0.95, 0.5)),
    Input("a gang that cannot be had, 1,000 nodes", "refused", 1000, 7, (0.95, 0.5)),
    Input("allocate 500 jobs, 100 nodes", "allocate", 0, 41, (0.5, 0.27)),
    Input("5,000 single GPUs on 5,000 nodes", "singles", 5000, 7, (1 / 1.6, 1 / 3)),
    Input("a cycle after an end, 500 pending", "end", 500, 41, (0.95, 0.5)),
    Input("20,000 wait on 1,000 full nodes: a cycle", "full", 1000, 7, (0.95, 0.5)),
    Input("10,000 nodes, 100,000 tasks: from scratch", "scratch", 10_000, 3, (0.95, 0.5)),
    Input("a cycle there with 100 changes", "changes", 10_000, 9, (0.95, 0.5)),
)
TINY = (
    Input("a gang takes back half of 10 nodes", "gang", 10, 1, (0.95, 0.5)),
    Input("5 single GPUs on 5 nodes", "singles", 5, 1, (1, 1)),
    Input("a cycle after an end, 20 pending", "end", 20, 1, (0.95, 0.5)),
    Input("10 nodes, 60 tasks: from scratch", "scratch", 10, 1, (0.95, 0.5)),
)


# -- one core ------------------------------------------------------------------------------------------


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and result of run(), without garbage collection, as in the decider until it answers."""
    gc.collect()
    gc.disable()
    began = time.process_time()
    found = run()
    took = time.process_time() - began
    gc.enable()
    return took, found


def counted(took: float, plan: Any) -> Round:
    return took, len(plan.starts), len(plan.stops)


class Core:
    """The core that this process imports, with the benchmarks of the same tree."""

    def __init__(self) -> None:
        self.reclaim = importlib.import_module("reclaim")
        self.scale = importlib.import_module("scale")
        self.cycle = importlib.import_module("cycle")
        self.inputs = importlib.import_module("tests.conformance.inputs")
        self.settings = self.reclaim.Settings()

    def rounds(self, key: str, size: int) -> Iterator[Round]:
        """Endless rounds of an input."""
        kinds: dict[str, Callable[[int], Iterator[Round]]] = {
            "gang": lambda n: self.whole(self.inputs.reclaim_large_job(n)),
            "exchange": lambda n: self.whole(self.inputs.reclaim_many_jobs(n)),
            "refused": lambda n: self.whole(self.inputs.unschedulable(n, "")),
            "allocate": lambda _: self.whole(self.inputs.inputs()["AllocateAction_Large"]()),
            "singles": self.singles,
            "end": self.end,
            "full": self.full,
            "scratch": self.scratch,
            "changes": self.changes,
        }
        return kinds[key](size)

    def whole(self, scenario: dict[str, Any]) -> Iterator[Round]:
        """A round builds the world from its rows and decides."""
        it = self.reclaim
        rows = it.rows_of(it.build(it.begin(scenario, it.EPOCH), it.EPOCH, it.EPOCH).world)
        while True:
            _, (took, _, plan) = timed(partial(it.measured, rows, self.settings))
            yield counted(took, plan)

    def singles(self, nodes: int) -> Iterator[Round]:
        it = self.scale
        rows = [*it.cluster(nodes, 10), *it.jobs(0, nodes, 10, it.WHOLE)]
        while True:
            world = it.built(rows)
            yield counted(*timed(partial(it.decide, world, it.NOW, self.settings)))

    def full(self, nodes: int) -> Iterator[Round]:
        it = self.scale
        world = it.built([*it.cluster(nodes, 100), *it.jobs(0, nodes * 8, 100, it.WHOLE)])
        it.carry_out(world, it.decide(world, it.NOW, self.settings))
        for row in it.jobs(nodes * 8, nodes * 20, 100, it.WHOLE):
            world.put(row)
        it.decide(world, it.NOW, self.settings)
        while True:
            yield counted(*timed(lambda: it.decide(world, it.NOW, self.settings)))

    def crowd(self, nodes: int) -> list[Any]:
        """6 jobs of a GPU and 4 of half a GPU for each node, a project for each ten nodes."""
        it, projects = self.scale, nodes // 10
        rows = it.cluster(nodes, projects)
        return [
            *rows,
            *it.jobs(0, nodes * 6, projects, it.WHOLE),
            *it.jobs(nodes * 6, nodes * 4, projects, it.HALF),
        ]

    def scratch(self, nodes: int) -> Iterator[Round]:
        it, rows = self.scale, self.crowd(nodes)
        while True:
            yield counted(*timed(lambda: it.decide(it.built(rows), it.NOW, self.settings)))

    def changes(self, nodes: int) -> Iterator[Round]:
        """In a round 50 tasks end, 50 workloads arrive, and the core decides."""
        it = self.scale
        world, serial, gone = it.built(self.crowd(nodes)), nodes * 10, 0
        it.carry_out(world, it.decide(world, it.NOW, self.settings))

        def change() -> Any:
            for number in range(gone, gone + 50):
                task = world.tasks[f"w{number}", "main-0"]
                world.put(replace(task, phase=it.TaskPhase.SUCCEEDED, claims=None, carries=None))
            for row in it.jobs(serial, 50, nodes // 10, it.WHOLE):
                world.put(row)
            return it.decide(world, it.NOW, self.settings)

        while True:
            took, plan = timed(change)
            it.carry_out(world, plan)
            serial, gone = serial + 50, gone + 50
            yield counted(took, plan)

    def end(self, pending: int) -> Iterator[Round]:
        it = self.cycle
        rows = [*it.cluster(), *it.workloads(pending)]
        world = it.World()
        for row in rows:
            world.put(row)
        it.decide(world, it.NOW, self.settings)
        one = next(row for row in rows if isinstance(row, it.Workload))
        running = world.tasks[one.id, "main-0"]
        ended = replace(running, phase=it.TaskPhase.WAITING, carries=None, claims=None, started=None)

        def change() -> Any:
            world.put(replace(one, desired=it.Desired.DELETED))
            world.put(ended)
            plan = it.decide(world, it.NOW, self.settings)
            world.put(one)
            world.put(running)
            return plan

        while True:
            yield counted(*timed(change))


def serve() -> None:
    """Runs one round per line of stdin and prints its result as one line."""
    core, at = Core(), ("", 0)
    playing: Iterator[Round] = iter(())
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        if (asked["key"], asked["size"]) != at:
            at = (asked["key"], asked["size"])
            del playing
            gc.collect()
            playing = core.rounds(*at)
        print(json.dumps(next(playing)), flush=True)


# -- several cores, alternating ------------------------------------------------------------------------


class Side:
    """A core in a process of its own."""

    def __init__(self, name: str, tree: Path, source: Path) -> None:
        self.name = name
        path = os.pathsep.join(map(str, (tree / "benchmarks", source, tree)))
        env = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        words = [sys.executable, "-P", __file__, "--serve"]  # -P: this script's folder is of this tree
        self.process = subprocess.Popen(
            words, env=env, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def play(self, it: Input) -> Round:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"key": it.key, "size": it.size}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the core {self.name} ended with {self.process.wait()} in {it.label!r}")
        took, starts, stops = json.loads(line)
        return took, starts, stops

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def taken_out(commit: str, folder: Path) -> Path:
    """Extracts the tree of a commit into folder, which is returned."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    return folder


def compiled(folder: Path) -> Path:
    """Compiles the core of this tree under folder. Returns the folder to import it from."""
    sys.path.insert(0, str(ROOT))
    build = importlib.import_module("hatch_build")
    folder.mkdir(parents=True)
    build.compile_core(ROOT, folder)
    return folder / "src"


def compare(sides: list[Side], inputs: tuple[Input, ...]) -> int:
    """Prints one line for each input. Returns how many goals were missed."""
    missed = 0
    print("CPU seconds, medians; in brackets the goal for time / the first one's time")
    print(f"{'':46}{sides[0].name:>12}" + "".join(f"{side.name:>12}{'ratio':>16}" for side in sides[1:]))
    for it in inputs:
        rounds: list[list[Round]] = [[] for _ in sides]
        for _ in range(it.rounds):
            for side, mine in zip(sides, rounds, strict=True):
                mine.append(side.play(it))
        first, *others = [statistics.median(took for took, _, _ in mine) for mine in rounds]
        line = f"{it.label:46}{first:12.4f}"
        for took, goal in zip(others, it.goals, strict=False):
            missed += took / first > goal
            line += f"{took:12.4f}{took / first:8.3f} ({goal:5.2f})"
        done = [{(starts, stops) for _, starts, stops in mine} for mine in rounds]
        if any(it != done[0] for it in done[1:]):
            line += f"  starts and stops differ: {done}"
        print(line, flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", nargs="?", default="HEAD", help="the earlier core (default: HEAD)")
    parser.add_argument("--compiled", action="store_true", help="compile this core, too: 150 s of one core")
    parser.add_argument("--built", type=Path, metavar="SRC", help="folder src of one that is compiled")
    parser.add_argument("--only", nargs="*", metavar="KEY", help="inputs: gang, exchange, allocate, ...")
    parser.add_argument("--tiny", action="store_true", help="a few rounds, whose numbers mean nothing")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.serve:
        serve()
        return 0
    inputs = tuple(it for it in (TINY if said.tiny else WHOLE) if said.only is None or it.key in said.only)
    sides: list[Side] = []
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        try:
            earlier = taken_out(said.commit, Path(folder) / "earlier")
            sides.append(Side(said.commit, earlier, earlier / "src"))
            sides.append(Side("plain", ROOT, ROOT / "src"))
            if said.built or said.compiled:
                source = said.built or compiled(Path(folder) / "compiled")
                sides.append(Side("compiled", ROOT, source))
            missed = compare(sides, inputs)
        finally:
            for side in sides:
                side.close()
    print(f"{missed} over their goal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
