"""`python -m pliant.sim`: what `pliant sim` runs. Prints one JSON object; {"error": TEXT} for wrong input."""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pliant.compiled  # noqa: F401 - before anything that imports the core
from pliant import __version__
from pliant.sim.facts import facts_of
from pliant.sim.lines import TraceError
from pliant.sim.openb import read_nodes, read_pods
from pliant.sim.packing import pack
from pliant.sim.policy import read_policy
from pliant.sim.reading import read
from pliant.sim.report import report
from pliant.sim.results import Results, first_difference, read_result
from pliant.sim.simulation import Assumed, Simulation
from pliant.store.codec import FORMAT

WRONG_INPUT = 2
TOLD_EVERY, TOLD_ELSEWHERE = 0.5, 30.0
"""Seconds between two progress lines: on a terminal, and elsewhere."""

KEEP_EVERY = 20.0
"""Seconds between two writes of the state from which an interrupted run continues."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant.sim")
    verbs = parser.add_subparsers(dest="command", required=True)
    packing = verbs.add_parser("packing")
    packing.add_argument("--nodes", type=Path, required=True)
    packing.add_argument("--pods", type=Path, required=True)
    packing.add_argument("--moves", type=int, default=0, help="in any 1,000 arrivals")
    run = verbs.add_parser("run")
    run.add_argument("trace", type=Path)
    run.add_argument("--nodes", type=Path)
    run.add_argument("--policy", type=Path)
    run.add_argument("--config", default="")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--checkpoint", type=int, default=0, help="ms")
    run.add_argument("--restart", type=int, default=0, help="ms")
    run.add_argument("--out", type=Path)
    for verb in (packing, run):
        verb.add_argument("--progress", action="store_true", help="count on standard error")
    compare = verbs.add_parser("compare")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    given = parser.parse_args(argv)
    try:
        found = {"packing": _packing, "run": _run, "compare": _compare}[given.command](given)
    except TraceError as error:
        print(json.dumps({"error": str(error)}))
        return WRONG_INPUT
    if getattr(given, "progress", False) and sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    print(json.dumps(found))
    return 0


def _packing(given: argparse.Namespace) -> dict[str, Any]:
    nodes = read_nodes(given.nodes)
    pods = read_pods(given.pods, nodes)
    return pack(nodes, pods, _counting("pods") if given.progress else None, given.moves).document()


def _run(given: argparse.Namespace) -> dict[str, Any]:
    policy = read_policy(given.policy)
    trace = read(given.trace, given.nodes, given.config)
    policy.check_names(trace)
    trace = policy.over(trace)
    inputs = {
        "trace": _digest(given.trace), "nodes": _digest(given.nodes), "policy": _digest(given.policy),
        "config": given.config, "seed": given.seed, "checkpointMs": given.checkpoint,
        "restartMs": given.restart, "program": __version__, "format": FORMAT,
    }  # fmt: skip
    simulation = Simulation(trace, Assumed(given.checkpoint, given.restart), given.seed)
    results = Results(given.out, inputs) if given.out is not None else None
    if results is not None and (saved := results.interrupted()) is not None:
        simulation.resume(saved)
    gc.collect()
    gc.freeze()  # the trace stays alive: scanning it for garbage takes a tenth of a run
    tell = _counting("jobs") if given.progress else lambda done, of, more="": None
    kept = time.monotonic()

    def between() -> None:
        nonlocal kept
        if results is not None and time.monotonic() - kept > KEEP_EVERY:
            results.keep(simulation.saved())
            kept = time.monotonic()

    progress = simulation.run(between, tell)
    found = report(trace, progress, inputs)
    if results is not None:
        results.finish(found, progress, facts_of(found))
    return found | {"facts": facts_of(found)}


def _compare(given: argparse.Namespace) -> dict[str, Any]:
    one, other = read_result(given.a), read_result(given.b)
    pairs = zip(facts_of(one), facts_of(other), strict=True)
    rows = [[name, mine, theirs] for (name, mine), (_, theirs) in pairs]
    return {"facts": rows, "firstDifference": first_difference(given.a, given.b)}


def _digest(path: Path | None) -> str:
    """A hash of a file, or of all files in a folder; "" for None."""
    if path is None:
        return ""
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()[:16]


def _counting(what: str) -> Callable[..., None]:
    """A function that reports progress: on a terminal on one changing line, elsewhere on a new line each."""
    line = sys.stderr.isatty()
    every = TOLD_EVERY if line else TOLD_ELSEWHERE
    due = time.monotonic() + every

    def tell(done: int, total: int, more: str = "") -> None:
        nonlocal due
        if (now := time.monotonic()) < due:
            return
        due = now + every
        text = f"{done * 100 // max(total, 1):3} %  {done} of {total} {what}" + (f", {more}" if more else "")
        sys.stderr.write(f"\r\033[K{text}" if line else f"{text}\n")
        sys.stderr.flush()

    return tell


if __name__ == "__main__":
    sys.exit(main())
