"""Charts (ECharts, drawn as SVG, so that the style sheet colours them), each with its numbers as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from pliant.console.frame import tag, words

COLOURS = ("#3d6df2", "#c7730f", "#1f8f55", "#a04bc4", "#c2415a", "#2a8aa8", "#7a7f1f", "#6b6fcf")
"""The colours of series; each has a contrast of 3 : 1 or more on the light and on the dark card."""

HEIGHT = 240


class Chart:
    """Several series over the same steps: stacked areas, lines or bars."""

    def __init__(self, label: str, *, kind: str = "line", stacked: bool = False) -> None:
        self._kind, self._stacked = kind, stacked
        self._shown: Any = None
        self._box = tag("div").classes("chart")
        with self._box:
            self._chart = ui.echart({"series": []}, renderer="svg").style(f"height: {HEIGHT}px")
            self._chart.props["role"] = "img"
            self._chart.props["aria-label"] = label
        with tag("details") as self._numbers:
            words("summary", "The numbers")
            self._table = tag("div").classes("scroll").props('tabindex=0 role=region aria-label="Numbers"')
        self._empty = words("p", "Nothing was measured yet.").classes("empty")

    def show(self, steps: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
        """Show the series, each with one value per step."""
        shown = (tuple(steps), {name: tuple(values) for name, values in series.items()})
        if shown == self._shown:
            return
        self._shown = shown
        self._empty.visible = not steps
        self._box.visible = self._numbers.visible = bool(steps)
        options = self._chart.options
        options.clear()
        options.update(self._options(steps, series))
        self._table.clear()
        with self._table, tag("table").classes("numbers"):
            with tag("tr"):
                for title in ("", *series):
                    words("th", title).props("scope=col")
            for at, step in enumerate(steps):
                with tag("tr"):
                    words("th", step).props("scope=row")
                    for values in series.values():
                        words("td", f"{values[at]:g}")

    def _options(self, steps: Sequence[str], series: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        return {
            "animation": False,
            "color": list(COLOURS),
            "grid": {"left": 8, "right": 16, "top": 36, "bottom": 8, "containLabel": True},
            "legend": {"top": 0, "right": 0, "type": "scroll"},
            "tooltip": {"trigger": "axis"},
            "xAxis": {
                "type": "category",
                "data": list(steps),
                "boundaryGap": self._kind == "bar",
                "axisLabel": {"hideOverlap": True, "alignMinLabel": "left", "alignMaxLabel": "right"},
            },
            "yAxis": {"type": "value", "minInterval": 0.5},
            "series": [
                {
                    "name": name,
                    "type": self._kind,
                    "data": list(values),
                    "showSymbol": len(steps) < 3,
                    **({"stack": "all"} if self._stacked else {}),
                    **({"areaStyle": {"opacity": 0.35}} if self._stacked and self._kind == "line" else {}),
                }
                for name, values in series.items()
            ],
        }
