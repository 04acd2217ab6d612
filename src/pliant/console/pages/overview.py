"""What there is, what is free, and why anything waits."""

from typing import Any

from nicegui import ui

from pliant.console.frame import Frame, tag, words
from pliant.console.texts import age, gpus

LONGEST = 50
"""Entries of the queue that are shown; the rest is counted."""


class Overview:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.shown: Any = None

    def draw(self) -> None:
        words("h1", "Overview")
        self.totals = tag("div").classes("tiles")
        with tag("section").classes("card").props('aria-labelledby="waits"'):
            words("h2", "Why is anything waiting").props("id=waits")
            self.queue = tag("div")

    async def refresh(self) -> None:
        calls = self.frame.calls
        nodes = await calls.all("/api/v1/nodes", "nodes")
        phases = await calls.get(
            "/api/v1/workloads/telemetry", [("telemetryType", "WORKLOADS_COUNT"), ("groupBy", "Phase")]
        )
        waiting = (await calls.get("/api/v1/queue"))["entries"]
        count = {it["groups"][0]["value"]: it["value"] for it in phases["values"]}
        cards = [gpu for node in nodes for gpu in node["gpus"]]
        shown = (cards, count, [{**it, "since": age(it["since"])} for it in waiting])
        if shown == self.shown:
            return
        self.shown = shown
        self._show(cards, count, waiting)

    def _show(
        self, cards: list[dict[str, Any]], count: dict[str, str], waiting: list[dict[str, Any]]
    ) -> None:
        used = sum(gpu["allocated"] for gpu in cards)
        self.totals.clear()
        with self.totals:
            for label, number, path in (
                ("Allocated/total GPUs", f"{gpus(used)}/{len(cards)}", "nodes"),
                ("Running workloads", count.get("Running", "0"), "workloads"),
                ("Waiting workloads", str(len(waiting)), "workloads"),
                ("Failed workloads", count.get("Failed", "0"), "workloads"),
            ):
                with tag("a").classes("tile").props(f'href="/console/{path}"').style("text-decoration: none"):
                    words("div", label).classes("soft")
                    words("div", number).classes("number")
        self.queue.clear()
        with self.queue:
            if not waiting:
                words("p", "The queue is empty.").classes("empty")
                return
            with tag("ol"):
                for it in waiting[:LONGEST]:
                    said = it["reason"]["message"] if it["reason"] else ""
                    asks = f"{gpus(it['gpus'])} GPU, for {age(it['since'])}"
                    words("li", f"{it['name']} ({it['project']}), {asks}: {said}")
            if len(waiting) > LONGEST:
                words("p", f"{len(waiting) - LONGEST} more wait behind these.").classes("soft")


@ui.page("/overview")
async def overview() -> None:
    frame = Frame("Overview")
    with frame.shown("overview"):
        page = Overview(frame)
        page.draw()
        await frame.look(page.refresh)
        frame.follow(page.refresh)
