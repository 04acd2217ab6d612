"""`python -m pliant.sim`: what `pliant sim` runs. Prints one JSON object; {"error": TEXT} for wrong input."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pliant.sim.openb import TraceError, read_nodes, read_pods
from pliant.sim.packing import pack

WRONG_INPUT = 2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant.sim")
    packing = parser.add_subparsers(dest="command", required=True).add_parser("packing")
    packing.add_argument("--nodes", type=Path, required=True)
    packing.add_argument("--pods", type=Path, required=True)
    packing.add_argument("--progress", action="store_true", help="count pods on standard error")
    given = parser.parse_args(argv)
    try:
        nodes = read_nodes(given.nodes)
        pods = read_pods(given.pods, nodes)
    except TraceError as error:
        print(json.dumps({"error": str(error)}))
        return WRONG_INPUT
    found = pack(nodes, pods, _progress if given.progress else None)
    print(json.dumps(found.document()))
    return 0


def _progress(done: int, total: int) -> None:
    if done % 100 == 0 or done == total:
        sys.stderr.write(f"\r{done} of {total} pods" + ("\n" if done == total else ""))
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
