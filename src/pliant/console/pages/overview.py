"""The overview: GPUs and nodes, the queue with its reasons, GPUs by hour, and what was taken today."""

from collections.abc import Sequence
from typing import Any

from pliant.console.charts import Chart
from pliant.console.frame import Frame, button, card, heading, page, tag, words
from pliant.console.texts import age, clock, counted_gpus, gpus, hour

LONGEST = 50
"""Entries of the queue that are shown; the rest is counted."""

FORETOLD = 5
"""Entries at the head of the queue whose starts are estimated."""

TAKEN = ("Shrunk", "Preempted", "Reclaimed", "Moved")
"""Kinds of events by which the scheduler took something."""

DAY = 24 * 3600


def tile(label: str, number: str, path: str = "", note: str = "") -> None:
    """A number with its name; with a path, a link to where it comes from."""
    with tag("a" if path else "div").classes("tile") as made:
        if path:
            made.props(f'href="/console/{path}"')
        words("div", label).classes("soft")
        words("div", number).classes("number")
        if note:
            words("div", note).classes("soft")


class Overview:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.shown: Any = None
        self.taken: Any = None
        self.first: Any = None

    def draw(self) -> None:
        with heading("Overview"):
            pass
        self.welcome = tag("div")
        self.welcome.visible = False
        self.totals = tag("div").classes("tiles")
        if self.frame.may("queue:read"):
            with card("Why is anything waiting"):
                self.queue = tag("div")
        if self.frame.may("reports:read"):
            with card("Allocated GPUs by project, hour by hour"):
                self.chart = Chart("Allocated GPUs of each project in the last day", stacked=True)
        with card("What was shrunk, moved or preempted today"):
            self.losses = tag("div")

    async def refresh(self) -> None:
        calls = self.frame.calls
        pools = await calls.all("/api/v1/org-unit/projects", "projects")
        nodes = await calls.all("/api/v1/nodes", "nodes") if self.frame.may("nodes:read") else []
        phases = await calls.get(
            "/api/v1/workloads/telemetry", [("telemetryType", "WORKLOADS_COUNT"), ("groupBy", "Phase")]
        )
        load = (await calls.get("/api/v1/workloads/load"))["workloads"]
        waiting = []
        if self.frame.may("queue:read"):
            waiting = (await calls.get("/api/v1/queue", [("starts", FORETOLD)]))["entries"]
        count = {it["groups"][0]["value"]: it["value"] for it in phases["values"]}
        idle = sum(it["gpuPercent"] == 0 for it in load)
        use = [it["gpuPercent"] for it in load if it["gpuPercent"] is not None]
        shown = (pools, nodes, count, idle, use, [{**it, "since": age(it["since"])} for it in waiting])
        if shown != self.shown:
            self.shown = shown
            self._show_totals(pools, nodes, count, len(waiting), idle, use)
            if self.frame.may("queue:read"):
                self._show_queue(waiting)
        await self._refresh_taken()
        if self.frame.may("reports:read"):
            await self._refresh_hours()

    async def _refresh_taken(self) -> None:
        query = [("kind", kind) for kind in TAKEN] + [("sinceSeconds", str(DAY)), ("limit", "10")]
        events = (await self.frame.calls.get("/api/v1/decisions", query))["events"]
        if events == self.taken:
            return
        self.taken = events
        self.losses.clear()
        with self.losses:
            if not events:
                words("p", "Nothing: every workload kept what it had.").classes("empty")
            with tag("ul"):
                for it in events:
                    name = it["involvedObject"]["name"]
                    with tag("li"):
                        words("span", f"{clock(it['createdAt'])}, {it['reason'].lower()}: ").classes("soft")
                        link = words("a", name)
                        link.props(f'href="/console/workloads/{it["involvedObject"]["uid"]}"')
                        words("span", f". {it['message']}")

    async def _refresh_hours(self) -> None:
        told = await self.frame.calls.get("/api/v1/audit/fairness/hours", [("windowSeconds", DAY)])
        self.chart.show(*by_project(told["hours"]))

    def _show_totals(
        self,
        projects: Sequence[Any],
        nodes: Sequence[Any],
        count: dict[str, str],
        waiting: int,
        idle: int,
        use: Sequence[float],
    ) -> None:
        cards = [gpu for node in nodes for gpu in node["gpus"]]
        used = sum(gpu["allocated"] for gpu in cards)
        free = sum(not gpu["allocated"] and not gpu["foreign"] for gpu in cards)
        ready = sum(node["status"] == "Ready" for node in nodes)
        own = sum(it["status"]["quotaStatus"]["allocated"]["gpu"] for it in projects)
        quota = sum(part["gpu"]["deserved"] or 0 for it in projects for part in it["resources"])
        self.totals.clear()
        with self.totals:
            if nodes:
                tile("Ready/total nodes", f"{ready}/{len(nodes)}", "nodes")
                share = f"{round(100 * used / len(cards))} % allocated" if cards else ""
                tile("Allocated/total GPUs", f"{gpus(used)}/{len(cards)}", "nodes", share)
                tile("Free GPUs", str(free), "nodes")
            else:
                tile("Allocated/quota GPUs", f"{gpus(own)}/{gpus(quota)}", "projects", "of your projects")
            mean = f"{sum(use) / len(use):.0f} %" if use else "–"
            tile("GPU use", mean, note="mean of the workloads that run" if use else "not measured here")
            tile("Idle workloads with GPUs", str(idle), "workloads", "GPU use of 0 % now")
            tile("Running workloads", count.get("Running", "0"), "workloads")
            tile("Waiting workloads", str(waiting), "workloads")
            tile("Failed workloads", count.get("Failed", "0"), "workloads")
        own_projects = any(it["name"] != "default" for it in projects)
        if (first := not own_projects and self.frame.may("projects:create")) != self.first:
            self.first = first
            self._show_welcome(first)

    def _show_welcome(self, first: bool) -> None:
        self.welcome.clear()
        self.welcome.visible = first
        if first:
            with self.welcome, card("Nothing is set up yet"):
                words("p", "Four steps lead from an empty server to a first workload. Each can be skipped.")
                button("Set up", lambda: self.frame.client.open("/welcome"), "primary")

    def _show_queue(self, waiting: list[dict[str, Any]]) -> None:
        self.queue.clear()
        with self.queue:
            if not waiting:
                words("p", "The queue is empty.").classes("empty")
                return
            with tag("ol"):
                for it in waiting[:LONGEST]:
                    said = it["reason"]["message"] if it["reason"] else ""
                    asks = f"{counted_gpus(it['gpus'])}, for {age(it['since'])}"
                    words("li", f"{it['name']} ({it['project']}), {asks}: {said}{expected(it['start'])}")
            if len(waiting) > LONGEST:
                words("p", f"{len(waiting) - LONGEST} more wait behind these.").classes("soft")


def expected(start: dict[str, Any] | None) -> str:
    """The expected start as a sentence; "" if it is not known."""
    if start is None or not start["earliest"]:
        return ""
    return f" Expected to start between {clock(start['earliest'])} and {clock(start['latest'])}."


def by_project(hours: Sequence[Any], part: str = "received") -> tuple[list[str], dict[str, list[float]]]:
    """(hours, project -> mean GPUs in each), over the part of each hour in which a server ran."""
    names = sorted({it["project"] for one in hours for it in one["projects"] if it[part]})
    found: dict[str, list[float]] = {name: [] for name in names}
    for one in hours:
        amounts = {it["project"]: (it[part], it["seenSeconds"]) for it in one["projects"]}
        for name in names:
            amount, seen = amounts.get(name, (0, 0))
            found[name].append(round(amount * 3600 / seen, 2) if seen else 0)
    return [hour(one["began"]) for one in hours], found


@page("/overview", "Overview", "clusters:read")
async def overview(frame: Frame) -> None:
    shown = Overview(frame)
    shown.draw()
    await frame.live(shown.refresh)
