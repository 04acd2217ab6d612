"""How full a cluster gets before work no longer fits: the openb trace, pods one by one, nobody ends.

Input: benchmarks/traces/openb (its README says where it comes from). Reference: the means that FGD recorded
for the same lists. `--list` and `--seed` may be given several times; else all five lists and seeds run.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
from pathlib import Path

from pliant.sim.openb import read_nodes, read_pods
from pliant.sim.packing import Packing, pack

TRACES = Path(__file__).parent / "traces" / "openb"
LISTS = ("default", "gpuspec10", "multigpu20", "gpushare40", "cpu100")
SEEDS = (42, 43, 44, 45, 46)


def recorded() -> dict[tuple[str, int], float]:
    with (TRACES / "fgd.csv").open(newline="") as file:
        return {(row["list"], int(row["point"])): float(row["fgd_mean"]) for row in csv.DictReader(file)}


def run(name: str, seed: int, pods: int | None) -> Packing:
    nodes = read_nodes(TRACES / "nodes.csv.gz")
    return pack(nodes, read_pods(TRACES / f"{name}-{seed}.csv.gz", nodes)[:pods])


def line(name: str, found: list[Packing], reference: dict[tuple[str, int], float]) -> bool:
    """Print one list; whether it is above the reference by two standard errors at both points."""
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
    parser.add_argument("--tiny", action="store_true", help="a few pods, whose numbers mean nothing")
    given = parser.parse_args()
    lists, seeds = given.lists or LISTS, given.seeds or SEEDS
    if given.tiny:
        lists, seeds = lists[:1], seeds[:1]
    points = f"{'at 100 %, %':>14}{'FGD':>10}{'at 130 %, %':>14}{'FGD':>10}"
    print(f"{'list':12}{'seeds':>6}{points}{'mean ms':>9}{'longest':>9}")
    reference, above = recorded(), 0
    for name in lists:
        above += line(name, [run(name, seed, 200 if given.tiny else None) for seed in seeds], reference)
    print(f"{len(lists) - above} not above FGD by two standard errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
