"""Consumption, waiting times and fairness over a period, hour by hour, with export."""

from statistics import median
from typing import Any

from nicegui import ui

from pliant.console.charts import Chart
from pliant.console.frame import Frame, card, heading, page, tag, words
from pliant.console.pages.overview import by_project, tile
from pliant.console.tables import Column, Table
from pliant.console.texts import duration

PERIODS = {12: "the last 12 hours", 24: "the last day", 168: "the last week", 744: "the last 31 days"}
MOST = 500
"""The most workloads whose waiting times are shown: the newest."""


class Reports:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def draw(self) -> None:
        with heading("Reports"):
            self.period = ui.select(PERIODS, label="Period", value=12, on_change=self._again)
            self.period.props("outlined dense options-dense").style("min-width: 180px")
        self.totals = tag("div").classes("tiles")
        with card("Consumption by project, in GPU hours"):
            columns = (
                Column("name", "Project"),
                Column("received", "Used", "gpus"),
                Column("entitled", "Entitled", "gpus"),
                Column("borrowed", "Borrowed", "gpus"),
                Column("lent", "Lent", "gpus"),
                Column("late", "Lacked within quota", "gpus"),
                Column("violated", "Time below entitlement"),
            )
            self.consumption = Table(columns, empty="Nothing was used.", file="consumption")
            with tag("details"):
                words("summary", "What these words mean")
                self.meanings = tag("dl").classes("facts")
        with card("GPUs of each project, hour by hour"):
            self.used = Chart("GPUs of each project over the period", stacked=True)
        with card("GPUs that projects lacked within their quota"):
            self.late = Chart("GPUs that each project lacked within its quota", kind="bar", stacked=True)
        with card("Waiting times"):
            shown = (
                Column("name", "Project"),
                Column("count", "Workloads", "number"),
                Column("median", "Median wait"),
                Column("longest", "Longest wait"),
                Column("hours", "GPU hours", "gpus"),
                Column("failed", "Failed", "number"),
            )
            self.waits = Table(shown, empty="Nothing was submitted.", file="waiting-times")

    async def _again(self) -> None:
        await self.frame.look(self.refresh)

    async def refresh(self) -> None:
        window = [("windowSeconds", self.period.value * 3600)]
        sums = await self.frame.calls.get("/api/v1/audit/fairness", window)
        hours = (await self.frame.calls.get("/api/v1/audit/fairness/hours", window))["hours"]
        query = [("sinceSeconds", self.period.value * 3600), ("limit", MOST)]
        entries = (await self.frame.calls.get("/api/v1/history", query))["entries"]
        self._show_totals(sums, entries)
        self._show_meanings(sums["definitions"])
        self.consumption.show(
            [
                {
                    **it,
                    "id": it["project"],
                    "name": it["project"],
                    "violated": duration(it["violatedSeconds"]) if it["violatedSeconds"] else "",
                }
                for it in sums["projects"]
            ]
        )
        self.used.show(*by_project(hours))
        self.late.show(*by_project(hours, "late"))
        self.waits.show(waits_of(entries))

    def _show_totals(self, sums: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        used = sum(it["received"] for it in sums["projects"])
        waits = [it["waitedSeconds"] for it in entries]
        self.totals.clear()
        with self.totals:
            tile("GPU hours used", f"{used:.2f}")
            jain = sums["jain"]
            tile("Fairness (Jain's index)", "–" if jain is None else f"{jain:.3f}", note="1 is fair")
            tile("Workloads submitted", f"{len(entries)}{'+' if len(entries) == MOST else ''}")
            tile("Median wait", duration(median(waits)) if waits else "–")

    def _show_meanings(self, meanings: dict[str, str]) -> None:
        self.meanings.clear()
        with self.meanings:
            for word, meaning in meanings.items():
                words("dt", word)
                words("dd", meaning)


def waits_of(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each project."""
    found: dict[str, list[dict[str, Any]]] = {}
    for it in entries:
        found.setdefault(it["projectName"], []).append(it)
    return [
        {
            "id": name,
            "name": name,
            "count": len(own),
            "median": duration(median(it["waitedSeconds"] for it in own)),
            "longest": duration(max(it["waitedSeconds"] for it in own)),
            "hours": round(sum(it["outcome"]["gpuHours"] for it in own), 4),
            "failed": sum(it["outcome"]["phase"] == "Failed" for it in own),
        }
        for name, own in sorted(found.items())
    ]


@page("/reports", "Reports", "reports:read")
async def reports(frame: Frame) -> None:
    shown = Reports(frame)
    shown.draw()
    await frame.live(shown.refresh)
