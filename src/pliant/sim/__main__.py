"""`python -m pliant.sim`: what `pliant sim` runs, as a process of its own."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pliant.sim.openb import TraceError, read_nodes, read_pods
from pliant.sim.packing import Packing, pack

WRONG_INPUT = 2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant sim")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("packing")
    packing.add_argument("--nodes", type=Path, required=True)
    packing.add_argument("--pods", type=Path, required=True)
    packing.add_argument("--progress", action="store_true")
    packing.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    try:
        nodes = read_nodes(given.nodes)
        pods = read_pods(given.pods, nodes)
    except TraceError as error:
        sys.stderr.write(f"Error: {error}\n")
        return WRONG_INPUT
    found = pack(nodes, pods, _progress if given.progress else None)
    sys.stdout.write(json.dumps(found.document()) + "\n" if given.json else _table(found))
    return 0


def _progress(done: int, total: int) -> None:
    if done % 100 == 0 or done == total:
        sys.stderr.write(f"\r{done} of {total} pods" + ("\n" if done == total else ""))
        sys.stderr.flush()


def _table(found: Packing) -> str:
    def percent(share: float | None) -> str:
        return "never reached" if share is None else f"{share:.2f} %"

    lines = (
        ("Nodes", found.nodes),
        ("GPUs", found.gpus),
        ("Pods", f"{found.pods}, {found.placed} placed"),
        ("GPUs asked for", percent(found.arrived)),
        ("Allocated when 100 % had arrived", percent(found.allocated_at_100)),
        ("Allocated when 130 % had arrived", percent(found.allocated_at_130)),
        ("Allocated in the end", percent(found.allocated)),
        ("Mean decision", f"{found.mean_decision_ms:.2f} ms"),
        ("Longest decision", f"{found.longest_decision_ms:.2f} ms"),
    )
    return "".join(f"{name + ':':35}{value}\n" for name, value in lines)


if __name__ == "__main__":
    sys.exit(main())
