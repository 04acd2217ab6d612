"""The report as one HTML page that contains its plots and loads nothing: no script."""

from collections.abc import Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, BELOW = 860, 240, 60, 24
COLOURS = ("#2166ac", "#b2182b", "#4d9221", "#f1a340", "#777777")
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;"
    "text-align:right}td:first-child,th:first-child{text-align:left}svg{max-width:100%}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#444}}"
)

Line = tuple[str, Sequence[tuple[float, float]]]


def page(found: dict[str, Any], facts: Sequence[tuple[str, str]]) -> str:
    samples, jain = found["samples"], found["jain"]

    def series(name: str) -> Line:
        return name, [(it["second"], it[name]) for it in samples]

    waits = [[name, *_cells(of)] for name, of in found["waiting"]["sizes"].items()]
    waits += [[name, *_cells(of)] for name, of in found["waiting"]["projects"].items()]
    head = ["of", "jobs", "never started", "mean", "median", "95 %", "longest"]
    shares = [
        [name, str(it["quota"]), f"{it['gpuHours']:.1f}", f"{it['entitledGpuHours']:.1f}",
         str(it["belowQuotaSeconds"]), str(it["longestBelowSeconds"])]
        for name, it in found["fairness"]["projects"].items()
    ]  # fmt: skip
    parts = [
        f"<h1>Simulation of {escape(found['trace'])}</h1>",
        _table(["", ""], [list(fact) for fact in facts]),
        "<h2>GPUs</h2>", _plot([series("gpus"), series("allocated"), series("asked")], "GPUs"),
        "<h2>Idle GPUs that are hard to use</h2>", _plot([series("broken"), series("stranded")], "GPUs"),
        "<h2>Jobs that wait</h2>", _plot([series("waiting")], "jobs"),
        "<h2>Fairness</h2>",
        _plot([("Jain's index", [(it["second"], it["index"]) for it in jain])], "of 1"),
        _table(["project", "quota", "GPU-hours", "entitled to", "s below quota", "longest, s"], shares),
        "<h2>Waiting, seconds</h2>", _table(head, waits),
    ]  # fmt: skip
    title = escape(found["trace"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style>{''.join(parts)}</html>\n"
    )


def _cells(of: dict[str, Any]) -> list[str]:
    times = ["" if of[name] is None else f"{of[name]:.0f}" for name in ("mean", "p50", "p95", "max")]
    return [str(of["jobs"]), str(of["neverStarted"]), *times]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(it)}</th>" for it in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(it)}</td>" for it in row) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{top}</tr>' if any(head) else ''}{body}</table>"


def _plot(lines: Sequence[Line], unit: str) -> str:
    """A plot of lines over the days since the start; the y axis begins at 0."""
    points = [point for _, some in lines for point in some]
    if not points:
        return "<p>There is nothing to show.</p>"
    last = max(at for at, _ in points) or 1
    most = max(value for _, value in points) or 1

    def where(at: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * at / last
        return f"{x:.1f},{(HEIGHT - BELOW) * (1 - value / most) + 8:.1f}"

    drawn = "".join(
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" '
        f'points="{" ".join(where(*point) for point in some)}"/>'
        f'<text x="{LEFT + 10 + 140 * at}" y="{HEIGHT + 14}" fill="{colour}">{escape(name)}</text>'
        for at, ((name, some), colour) in enumerate(zip(lines, COLOURS, strict=False))
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" font-size="12" fill="currentColor" role="img">'
        f'<text x="0" y="18">{most:g}</text><text x="0" y="34">{escape(unit)}</text>'
        f'<text x="30" y="{HEIGHT - BELOW + 8}">0</text>'
        f'<text x="{WIDTH - 70}" y="{HEIGHT - 2}">{last / 86_400:.2f} days</text>{drawn}</svg>'
    )
