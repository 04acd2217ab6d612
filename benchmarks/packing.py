"""How full a cluster gets before work no longer fits: the openb trace, pods one by one, none ends.

Input: benchmarks/traces/openb (its README says where it comes from). Reference: the means that FGD recorded
for the same lists. `--list` and `--seed` may be given several times; without them all lists and seeds run.
`--moves N` lets the scheduler move N pods in any 1,000 arrivals.

`--bound` prints instead what no moves could exceed. All pods that arrive before the first one that does not
fit stay; of the later ones the best are chosen, with all arrivals known in advance; GPUs may be repacked at
any time, without regard to cores, memory, models and nodes. That is a linear program over the ways to fill
one GPU.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pliant.model.quantity import GPU
from pliant.sim.openb import Pod, read_nodes, read_pods
from pliant.sim.packing import Packing, pack

TRACES = Path(__file__).parent / "traces" / "openb"
LISTS = ("default", "gpuspec10", "multigpu20", "gpushare40", "cpu100")
SEEDS = (42, 43, 44, 45, 46)


def recorded() -> dict[tuple[str, int], float]:
    with (TRACES / "fgd.csv").open(newline="") as file:
        return {(row["list"], int(row["point"])): float(row["fgd_mean"]) for row in csv.DictReader(file)}


def run(name: str, seed: int, pods: int | None, moves: int = 0) -> Packing:
    nodes = read_nodes(TRACES / "nodes.csv.gz")
    return pack(nodes, read_pods(TRACES / f"{name}-{seed}.csv.gz", nodes)[:pods], moves=moves)


def bound(name: str, seed: int) -> tuple[float, float]:
    """The most that can be allocated, in percent of all GPUs, when 100 % and 130 % have arrived."""
    nodes = read_nodes(TRACES / "nodes.csv.gz")
    pods = read_pods(TRACES / f"{name}-{seed}.csv.gz", nodes)
    gpus = sum(len(node.gpus) for node in nodes)
    stay = Counter(_parts(pods[: pack(nodes, pods).before_first_drop]))
    found: list[float] = []
    for point in (100, 130):
        arrived, count = 0, 0
        while arrived * 100_000 < point * 999 * gpus * GPU and count < len(pods):
            arrived, count = arrived + pods[count].request.gpu, count + 1
        found.append(_most(stay, Counter(_parts(pods[:count])), gpus) * 100 / (gpus * GPU))
    return found[0], found[1]


def _parts(pods: list[Pod]) -> Iterator[int]:
    """The request on each GPU, in thousandths."""
    for pod in pods:
        yield from [pod.request.portion] * pod.request.devices


def _most(stay: Counter[int], all_: Counter[int], gpus: int) -> float:
    """Milli-GPUs of all of `stay` and the best of the rest: a linear program with column generation."""
    from ortools.linear_solver import pywraplp  # only for this

    sizes = sorted(all_, reverse=True)
    assert not any(size % 10 for size in sizes)
    ways = [{size: GPU // size} for size in sizes]
    while True:
        solver = pywraplp.Solver.CreateSolver("GLOP")
        used = [solver.NumVar(0, solver.infinity(), "") for _ in ways]
        got = {size: solver.NumVar(0, all_[size], "") for size in sizes}
        lacks = {size: solver.NumVar(0, solver.infinity(), "") for size in sizes}  # 0 in the solution
        rows = {
            size: solver.Add(
                sum(way.get(size, 0) * it for way, it in zip(ways, used, strict=True))
                + lacks[size] - got[size] >= 0
            )
            for size in sizes
        }  # fmt: skip
        for size in sizes:
            got[size].SetLb(stay[size])
        room = solver.Add(sum(used) <= gpus)
        solver.Maximize(sum(size * (got[size] - 100 * lacks[size]) for size in sizes))
        assert solver.Solve() == solver.OPTIMAL
        worth, way = _best_way({size: -row.dual_value() for size, row in rows.items()})
        if worth <= room.dual_value() + 1e-6:
            assert all(it.solution_value() < 1e-6 for it in lacks.values())
            return float(solver.Objective().Value())
        ways.append(way)


def _best_way(prices: dict[int, float]) -> tuple[float, dict[int, int]]:
    """The way to fill one GPU that is worth most: a knapsack, in units of 10 thousandths."""
    best: list[tuple[float, dict[int, int]]] = [(0.0, {})]
    for room in range(1, GPU // 10 + 1):
        found = best[-1]
        for size, price in prices.items():
            if (left := room - -(-size // 10)) >= 0 and best[left][0] + price > found[0] + 1e-9:
                found = best[left][0] + price, best[left][1] | {size: best[left][1].get(size, 0) + 1}
        best.append(found)
    return best[-1]


def line(name: str, found: list[Packing], reference: dict[tuple[str, int], float]) -> bool:
    """Print one list. True if it is above the reference by two standard errors at both points."""
    cells, above = [], True
    for point in (100, 130):
        shares = [share for it in found if (share := getattr(it, f"allocated_at_{point}")) is not None]
        if not shares:
            cells.append(f"{'never reached':>24}")
            continue
        error = statistics.stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else 0.0
        mean, goal = statistics.mean(shares), reference[name, point]
        above &= mean - 2 * error > goal
        cells.append(f"{mean:8.2f} ±{error:4.2f}{goal:10.2f}")
    mean_ms = statistics.mean(it.mean_decision_ms for it in found)
    longest = max(it.longest_decision_ms for it in found)
    print(
        f"{name:12}{len(found):6}{''.join(cells)}{mean_ms:9.2f}{longest:9.1f}{'' if above else '  below'}",
        flush=True,
    )
    return above


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="append", choices=LISTS, dest="lists")
    parser.add_argument("--seed", action="append", type=int, choices=SEEDS, dest="seeds")
    parser.add_argument("--moves", type=int, default=0, help="moves in any 1,000 arrivals")
    parser.add_argument("--bound", action="store_true", help="what no moves could exceed")
    parser.add_argument("--tiny", action="store_true", help="a few pods, whose numbers mean nothing")
    given = parser.parse_args()
    lists, seeds = given.lists or LISTS, given.seeds or SEEDS
    if given.tiny:
        lists, seeds = lists[:1], seeds[:1]
    if given.bound:
        print(f"{'list':12}{'seeds':>6}{'at 100 %, %':>14}{'at 130 %, %':>14}")
        for name in lists:
            bounds = [bound(name, seed) for seed in seeds]
            means = "".join(f"{statistics.mean(it[at] for it in bounds):14.2f}" for at in (0, 1))
            print(f"{name:12}{len(seeds):6}{means}", flush=True)
        return 0
    points = f"{'at 100 %, %':>14}{'FGD':>10}{'at 130 %, %':>14}{'FGD':>10}"
    print(f"{'list':12}{'seeds':>6}{points}{'mean ms':>9}{'longest':>9}")
    reference, above = recorded(), 0
    for name in lists:
        above += line(
            name, [run(name, seed, 200 if given.tiny else None, given.moves) for seed in seeds], reference
        )
    print(f"{len(lists) - above} not above FGD by two standard errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
