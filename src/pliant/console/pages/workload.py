"""One workload: the reason for its state, its metrics, its events, its logs and a terminal."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from nicegui import background_tasks, ui

from pliant.console.actions import RIGHTS, act, possible
from pliant.console.calls import Refusal
from pliant.console.charts import Chart
from pliant.console.design import tone
from pliant.console.frame import LONGEST, Frame, button, card, page, tag, words
from pliant.console.remedies import RIGHTS as CURES
from pliant.console.remedies import allowed, can_be_made, offer
from pliant.console.terminal import Terminal
from pliant.console.texts import age, clock, gpus, plain, size

KEPT = 200_000
"""Characters of a log that a page holds."""

MOST_ATTEMPTS = 50
"""The most attempts, the newest, whose logs can be chosen."""

NOTHING = "Nothing was printed yet."

LOSS, RATE = "Loss by step", "Records per second by step"
USE, MEMORY = "GPU use over time, in %", "Memory over time, in GiB"
PERCENT = {"GPU_UTILIZATION": ("GPU use", 1.0)}
BYTES = {
    "GPU_MEMORY_USAGE_BYTES": ("GPU memory", 2.0**30),
    "CPU_MEMORY_USAGE_BYTES": ("Main memory", 2.0**30),
}
MEASURED = (*PERCENT, *BYTES)
"""The API's metrics that are shown; PERCENT and BYTES: metric -> (name in the chart, divisor)."""

MINUTE, SAMPLES = timedelta(minutes=1), 60

STEP = 2.0
"""Seconds until a log that has ended, or not begun, is read again."""

TAIL = 500
"""Lines of the log shown when the page opens."""


class Details:
    def __init__(self, frame: Frame, identity: str) -> None:
        self.frame, self.path = frame, f"/api/v1/workloads/{identity}"
        self.item: dict[str, Any] = {}
        self.told: list[tuple[str, str]] = []
        self.because: dict[str, Any] = {}
        self.started: dict[str, int] = {}  # task -> its newest attempt
        self.other = asyncio.Event()  # another log was chosen
        self.reads_log = False
        self.used: list[tuple[str, str]] = []
        self.measured = datetime.fromtimestamp(0, UTC)  # when its past use was last read

    def draw(self) -> None:
        with tag("div").classes("bar"):
            self.name = words("h1", "")
            self.chip = words("span", "").classes("chip")
            tag("div").classes("space")
            self.buttons = tag("div").classes("bar")
        with tag("section").classes("card").props('aria-labelledby="why"'):
            words("h2", "Why").props("id=why")
            self.why = tag("div")
        with tag("section").classes("card").props('aria-labelledby="details"'):
            words("h2", "Details").props("id=details")
            self.facts = tag("dl").classes("facts")
        with card("Metrics"):
            self.now = tag("dl").classes("facts")
            with tag("div").classes("charts"):
                self.charts = {title: titled(title) for title in (LOSS, RATE, USE, MEMORY)}
        with tag("section").classes("card").props('aria-labelledby="history"'):
            words("h2", "Event history").props("id=history")
            self.history = ui.table(
                rows=[],
                columns=[
                    {"name": key, "label": label, "field": key, "align": "left", "style": style}
                    for key, label, style in (
                        ("at", "Time", "min-width: 100px"),
                        ("reason", "Event", ""),
                        ("message", "Details", "min-width: 240px"),
                        ("who", "By", ""),
                    )
                ],
                row_key="id",
                pagination=10,
            ).props("flat wrap-cells")
        self.logs = tag("section").classes("card").props('aria-labelledby="logs"')
        with self.logs:
            with tag("div").classes("bar"):
                words("h2", "Logs").props("id=logs")
                tag("div").classes("space")
                self.task = _select("Task", {"": "the first"}, self._choose_task)
                self.attempt = _select("Attempt", {0: "newest"}, self._read_again)
            self.log = (
                words("pre", NOTHING).classes("log").props('role=log aria-labelledby="logs" tabindex=0')
            )
        self.shell = tag("section").classes("card").props("aria-label=Terminal")
        with self.shell:
            Terminal(self.frame, self.path, lambda: self.task.value)

    async def refresh(self) -> None:
        calls = self.frame.calls
        item = await calls.get(self.path)
        why = await calls.get(f"{self.path}/why")
        told = await calls.get(f"{self.path}/events", [("sortOrder", "desc"), ("limit", 200)])
        await self._show_metrics()
        self._show_tasks(await calls.all(f"{self.path}/pods", "pods", most=500))
        self._show_item(item)
        await self._show_why(why)
        rows = [
            {
                "id": it["id"],
                "at": clock(it["createdAt"]),
                "reason": it["reason"],
                "message": it["message"],
                "who": it["who"],
            }
            for it in told["events"]
        ]
        if rows != self.history.rows:
            self.history.rows = rows

    def _show_item(self, item: dict[str, Any]) -> None:
        self.name.text = item["name"]
        self.chip.text = item["status"]
        self.chip.classes(replace=f"chip {tone(item['status'])}")
        rights = self.frame.rights
        place, own = (item["departmentId"], item["projectId"]), item["submittedBy"] == rights.name
        self.reads_log = own or rights.where("workloads:logs").covers(*place, mine=own)
        self.logs.visible = self.reads_log
        running = item["runningPods"] > 0
        self.shell.visible = running and (own or rights.where("workloads:exec").covers(*place, mine=own))
        labels = possible(item, rights)
        if labels != (possible(self.item, rights) if self.item else None):
            self.buttons.clear()
            with self.buttons:
                for label in labels:
                    look = "danger" if label in ("Cancel", "Delete") else "plain"
                    button(label, partial(self._acted, label), look)
        self.item = item
        if (told := self._told(item)) == self.told:
            return
        self.told = told
        self.facts.clear()
        with self.facts:
            for label, value in told:
                words("dt", label)
                words("dd", value or "–")

    async def _show_metrics(self) -> None:
        """Show what the workload uses now and what its job has reported."""
        load = (await self.frame.calls.get("/api/v1/workloads/load"))["workloads"]
        own = next((it for it in load if self.path.endswith(it["id"])), None)
        told = _used(own) if own else [("Now", "It does not run.")]
        if told != self.used:
            self.used = told
            self.now.clear()
            with self.now:
                for label, value in told:
                    words("dt", label)
                    words("dd", value)
        points = (await self.frame.calls.get(f"{self.path}/progress"))["points"]
        steps = [str(it["step"]) for it in points]
        loss = [it["loss"] or 0 for it in points]
        rate = [round(it["goodput"], 3) for it in points]
        self.charts[LOSS].show(steps, {"Loss": loss} if points else {})
        self.charts[RATE].show(steps, {"Records per second": rate} if points else {})
        await self._show_past()

    async def _show_past(self) -> None:
        """Show its use since its creation, in SAMPLES samples; reads it at most once a minute."""
        now = datetime.now(UTC)
        if self.item and now - self.measured > MINUTE:
            self.measured = now
            span = [("start", self.item["createdAt"]), ("end", now.isoformat()), ("numberOfSamples", SAMPLES)]
            span += [("metricType", name) for name in MEASURED]
            told = (await self.frame.calls.get(f"{self.path}/metrics", span))["measurements"]
            for title, names in ((USE, PERCENT), (MEMORY, BYTES)):
                self.charts[title].show(*over_time(told, names))

    def _told(self, item: dict[str, Any]) -> list[tuple[str, str]]:
        pods = item["requestedPods"]
        return [
            ("Type", item["type"]),
            ("Project", item["projectName"]),
            ("Created by", item["submittedBy"]),
            ("Age", age(item["createdAt"])),
            ("Priority", f"{item['priorityClassName']} ({item['priority']})"),
            ("Preemptible", "Yes" if item["preemptible"] else "No"),
            ("Running/requested pods", f"{item['runningPods']}/{pods['number']}"),
            ("GPU allocation", gpus(item["allocatedResources"]["gpu"])),
            ("Over quota", gpus(item["overQuotaGpus"])),
            ("GPU fraction", item["fraction"] or ""),
            ("Nodes", ", ".join(item["nodes"])),
            ("Node pools", ", ".join(item["currentNodePools"] or item["requestedNodePools"])),
            ("Image", ", ".join(item["images"])),
            ("Command", f"{item['command']} {item['arguments']}".strip()),
            ("Labels", ", ".join(f"{key}={value}" for key, value in item["labels"].items())),
        ]

    async def _show_why(self, why: dict[str, Any]) -> None:
        """Show the reason, its numbers, and the remedies."""
        reason, unblock = why["reason"], why["unblock"]
        remedies = unblock["remedies"] if unblock else []
        because = {"reason": reason, "remedies": remedies, "position": why["position"]}
        if because == self.because:
            return
        made = [
            can_be_made(it) and await allowed(self.frame.calls, self.frame.rights, it, self.item)
            for it in remedies
        ]
        self.because = because
        self.why.clear()
        with self.why:
            words("p", reason["message"] if reason else "It has what it asked for.")
            if why["position"] is not None:
                words("p", f"Place {why['position']} in the queue.")
            if remedies:
                words("h3", "What would let it start")
                with tag("ul"):
                    for remedy, offered in zip(remedies, made, strict=True):
                        self._show_remedy(remedy, offered)
            if reason and reason["numbers"]:
                with tag("details"):
                    words("summary", "The numbers (thousandths of a GPU, bytes, milliseconds)")
                    with tag("dl").classes("facts"):
                        for key, value in reason["numbers"].items():
                            words("dt", key)
                            words("dd", str(value))

    def _show_remedy(self, remedy: dict[str, Any], offered: bool) -> None:
        with tag("li"):
            words("span", f"{remedy['text']} ")
            if offered:
                shown = button("Dry run", partial(offer, self.frame, remedy, self.item["id"]))
                shown.props["aria-label"] = f"Dry run: {remedy['text']}"
                shown.props("dense").classes("q-px-sm")

    async def _acted(self, label: str) -> None:
        await act(self.frame, label, self.item["id"], self.item["name"], self.item["type"])

    # -- logs -------------------------------------------------------------------------------------------

    def _show_tasks(self, pods: list[dict[str, Any]]) -> None:
        """Offer the tasks and attempts whose logs can be read."""
        self.started = {pod["name"]: pod["attempt"] for pod in pods}
        names = {"": "the first"} if len(pods) < 2 else {name: name for name in self.started}
        if names != self.task.options:
            kept = self.task.value if self.task.value in names else next(iter(names))
            self.task.set_options(names, value=kept)
        self.task.visible = len(names) > 1
        self._show_attempts()

    def _choose_task(self) -> None:
        self._show_attempts()
        self._read_again()

    def _show_attempts(self) -> None:
        chosen: Any = self.task.value
        first = next(iter(self.started.values()), 0)
        newest = self.started.get(chosen, first)
        numbers = {0: "newest"} | {number: str(number) for number in range(newest, 0, -1)[:MOST_ATTEMPTS]}
        if numbers != self.attempt.options:
            self.attempt.set_options(
                numbers, value=self.attempt.value if self.attempt.value in numbers else 0
            )
        self.attempt.visible = newest > 1

    def follow_log(self) -> None:
        """Show the chosen log as it grows."""
        client = self.frame.client

        async def run() -> None:
            await client.connected()
            while not client.is_deleted:
                self.other.clear()
                reading = asyncio.create_task(self._read_log())
                await self._until_another()
                reading.cancel()

        background_tasks.create(run(), name="follow a log")

    async def _until_another(self) -> None:
        """Wait until another log is chosen or the page is closed."""
        while not (self.frame.client.is_deleted or self.other.is_set()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST):
                    await self.other.wait()

    def _read_again(self) -> None:
        """Call it when another task or attempt was chosen."""
        self.log.text = NOTHING
        self.other.set()

    async def _read_log(self) -> None:
        """Show the chosen attempt's log until it ends; after the newest, wait for the next attempt's."""
        chosen = self.attempt.value
        while not self._has_log() and not self.frame.client.is_deleted:
            await asyncio.sleep(STEP)
        query = [("follow", True), ("tail", TAIL), ("pod", self.task.value), ("attempt", chosen)]
        while True:
            text = ""
            try:
                async for piece in self.frame.calls.stream(f"{self.path}/logs", query):
                    text = (text + plain(piece.decode(errors="replace")))[-KEPT:]
                    self.log.text = text
            except Refusal as error:
                if error.status == 401:
                    return
                if error.status != 404:  # the page shows already that there is no log yet
                    self.log.text = f"{text}{error}"
            if chosen:
                return
            await asyncio.sleep(STEP)

    def _has_log(self) -> bool:
        """True if there is a log that the reader may read; a refused request would go to the audit log."""
        first = next(iter(self.started.values()), 0)
        return self.reads_log and bool(self.started.get(str(self.task.value), first))


def _select(label: str, options: dict[Any, str], chosen: Callable[[], None]) -> ui.select:
    field = ui.select(options, label=label, value=next(iter(options)), on_change=chosen)
    return field.props("outlined dense options-dense").style("min-width: 110px")


def titled(title: str) -> Chart:
    with tag("div"):
        words("h3", title)
        return Chart(title)


def over_time(
    measured: Sequence[Mapping[str, Any]], names: Mapping[str, tuple[str, float]]
) -> tuple[list[str], dict[str, list[float]]]:
    """(steps, series) of a chart of the metrics in `names` that have values."""
    found = {
        names[it["type"]]: {one["timestamp"]: float(one["value"]) for one in it["values"]}
        for it in measured
        if it["type"] in names and it["values"]
    }
    times = sorted({at for values in found.values() for at in values})
    steps = [datetime.fromisoformat(at).strftime("%H:%M") for at in times]
    return steps, {
        label: [round(values.get(at, 0.0) / by, 3) for at in times] for (label, by), values in found.items()
    }


def _used(load: dict[str, Any]) -> list[tuple[str, str]]:
    cpu, memory = load["cpuCores"], load["memoryBytes"]
    percent, gpu_memory = load["gpuPercent"], load["gpuMemoryBytes"]
    unknown = "not measured here"
    return [
        ("GPU use", f"{percent:g} %" if percent is not None else unknown),
        ("GPU memory", size(gpu_memory) if gpu_memory is not None else unknown),
        ("Processors", f"{cpu:g} cores" if cpu is not None else unknown),
        ("Memory", size(memory) if memory is not None else unknown),
    ]


@page("/workloads/{identity}", "Workload", "workloads:read", "workloads")
async def workload(frame: Frame, identity: str) -> None:
    details = Details(frame, identity)

    async def begin() -> None:
        await frame.rights.learn(frame.calls, *RIGHTS, *CURES, "workloads:logs", "workloads:exec")
        await frame.calls.get(details.path)  # refused before anything is drawn, if the reader may not see it
        details.draw()
        await details.refresh()

    if await frame.look(begin):
        frame.follow(details.refresh)
        details.follow_log()
    else:
        words("h1", "Workload")
