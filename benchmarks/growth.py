"""How decision time grows with the cluster: inputs of reclaim.py at many sizes, as a table and as a picture.

`--picture FILE` draws the curves (PNG). Each time is the whole decision, building the world from its rows
included, in CPU seconds of this process, which has one thread; the reference is `calibrate()` of cycle.py,
measured again before each size. The peer's points were measured once, beside ours on one machine: see
docs/reference/measurements.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cycle import calibrate
from reclaim import EPOCH, begin, build, cpu_seconds, inputs, median, rows_of, settings_for

Points = list[tuple[int, float, float]]
"""(nodes, seconds, seconds in units of the reference) of each size."""

GANG = "one gang takes back half of the cluster"
SINGLES = "as many single GPUs are exchanged as there are"
HOPELESS = "a gang that cannot be had"
PEER = {
    GANG: ((500, 7.11), (1000, 30.1)),
    SINGLES: ((100, 3.07), (200, 12.4), (500, 235.0)),
    HOPELESS: ((1000, 138.0),),
}
"""KAI-Scheduler's own benchmarks on 2026-11-22: (nodes, seconds)."""

CURVES: dict[str, tuple[Callable[[int], dict[str, Any]], tuple[int, ...]]] = {
    GANG: (inputs.reclaim_large_job, (100, 200, 500, 1000, 2000, 5000)),
    SINGLES: (inputs.reclaim_many_jobs, (50, 100, 200, 500)),
    HOPELESS: (inputs.unschedulable, (100, 200, 500, 1000, 2000, 5000)),
}


def curve(name: str, make: Callable[[int], dict[str, Any]], sizes: tuple[int, ...]) -> Points:
    found: Points = []
    for nodes in sizes:
        scenario = make(nodes)
        rows = rows_of(build(begin(scenario, EPOCH), EPOCH, EPOCH).world)
        reference = min(cpu_seconds(calibrate) for _ in range(5))
        took = median(rows, settings_for(scenario, defaults=True), 1 if nodes > 1000 else 3)[0]
        before = found[-1][1] / found[-1][0] if found else 0
        grown = f"{took / nodes / before:8.2f}" if before else ""
        found.append((nodes, took, took / reference))
        print(f"{name:50}{nodes:7}{took:9.3f}{took / reference:9.1f}  {grown}", flush=True)
    return found


def draw(curves: dict[str, Points], target: Path) -> None:
    """Both axes logarithmic, so that a straight line of slope 1 is linear growth."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, points in curves.items():
        (line,) = axes.plot([it[0] for it in points], [it[1] for it in points], marker="o", label=name)
        peer = PEER.get(name, ())
        if peer:
            axes.plot(
                [it[0] for it in peer],
                [it[1] for it in peer],
                marker="x",
                linestyle="--",
                color=line.get_color(),
                label="the same by KAI-Scheduler",
            )
    axes.set(xscale="log", yscale="log", xlabel="nodes of 8 GPUs", ylabel="seconds of one core")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(target, dpi=120, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="small sizes, whose numbers mean nothing")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the curves")
    options = parser.parse_args()
    print(f"{'':50}{'nodes':>7}{'s':>9}{'ratio':>9}  growth per node")
    curve("(the first one also imports)", inputs.reclaim_large_job, (5,))
    found: dict[str, Points] = {}
    for name, (make, sizes) in CURVES.items():
        found[name] = curve(name, make, (5, 10) if options.tiny else sizes)
    if options.picture is not None:
        draw(found, options.picture)
        print(f"drawn: {options.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
