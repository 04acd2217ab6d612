"""Replay: a slider over the decisions of the last day, each with its reason and who had which GPU then."""

from datetime import datetime
from typing import Any

from nicegui import background_tasks

from pliant.console.calls import Refusal
from pliant.console.frame import Frame, button, card, heading, page, tag, words
from pliant.console.past import World, world_at
from pliant.console.texts import clock, gpus

DAY = 24 * 3600
MOST = 2_000
KINDS = (
    *("Pending", "Started", "Grown", "Shrunk", "Moved", "Reclaimed", "Preempted", "Suspended", "Resumed"),
    *("Cancelled", "Completed", "Failed", "Lost", "Retrying", "Deleted"),
)
"""Kinds of events that the slider stops at."""


FOREVER = 2**62


def milliseconds(moment: str) -> int:
    """Ms since the epoch of an ISO 8601 time."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


class Replay:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.events: list[dict[str, Any]] = []  # oldest first

    async def load(self) -> None:
        query: list[tuple[str, Any]] = [("sinceSeconds", DAY), ("limit", 500)]
        query += [("kind", kind) for kind in KINDS]
        found: list[dict[str, Any]] = []
        before: list[tuple[str, Any]] = []
        while len(found) < MOST:
            told = await self.frame.calls.get("/api/v1/decisions", [*query, *before])
            found += told["events"]
            if "next" not in told:
                break
            before = [("before", told["next"])]
        self.events = found[:MOST][::-1]
        self.held = await self.frame.calls.get("/api/v1/replay")

    async def draw(self) -> None:
        with heading("Replay"):
            pass
        if not self.events:
            words("p", "Nothing was decided in the last day.").classes("empty")
            return
        with tag("section").classes("card").props("aria-label=Time"):
            with tag("div").classes("bar"):
                button("First", lambda: self._move(-len(self.events)), icon="first_page")
                button("Back", lambda: self._move(-1), icon="chevron_left")
                button("Forward", lambda: self._move(1), icon="chevron_right")
                self.where = words("strong", "").props("aria-live=polite")
            last = len(self.events) - 1
            self.at = last
            self.slider = tag("input").props(f"type=range min=0 max={max(1, last)} aria-label=Decision")
            self.slider.style("width: 100%; accent-color: var(--brand)")
            self.slider.on(
                "input",
                lambda event: self._go(int(event.args)),
                throttle=0.1,
                js_handler="event => emit(event.target.value)",
            )
        with card("Decision"):
            self.decision = tag("div").props("aria-live=polite")
        with card("GPUs after it"):
            self.picture = tag("div")
        if self.held["began"]:
            lacks = f" {self.held['missed']} cycles could not be recorded." if self.held["missed"] else ""
            words("p", f"GPUs are recorded since {clock(self.held['began'])}.{lacks}").classes("soft")
        await self._go(last)

    def _move(self, by: int) -> None:
        """Move by this many decisions. Each press counts, also while the previous one is still drawn."""
        self.at = min(len(self.events) - 1, max(0, self.at + by))
        background_tasks.create(self._go(self.at), name="replay")

    async def _go(self, at: int) -> None:
        """Show the decision at that index."""
        self.at = at
        self.slider.props["value"] = at
        event = self.events[at]
        self.where.text = f"{at + 1} of {len(self.events)}: {clock(event['createdAt'])}"
        self.decision.clear()
        with self.decision:
            name, who = event["involvedObject"]["name"], event["who"]
            words("h3", f"{name}: {event['reason']}")
            words("p", event["message"])
            words("p", f"By {who}{', reason ' + event['code'] if event['code'] else ''}.").classes("soft")
        later = (it["createdAt"] for it in self.events[at:] if it["createdAt"] > event["createdAt"])
        await self.frame.look(lambda: self._draw_world(event["createdAt"], next(later, "")))

    async def _draw_world(self, moment: str, later: str) -> None:
        """Draw the world after the decision: as it was just before the next one."""
        at = milliseconds(moment)
        began = self.held["began"]
        world = World()
        if began and datetime.fromisoformat(began) <= datetime.fromisoformat(moment):
            try:
                answer = await self.frame.calls.send("GET", "/api/v1/replay/record", query=[("at", at)])
            except Refusal:  # cycles of that time could not be recorded
                self.picture.clear()
                raise
            world = world_at(answer.body, milliseconds(later) - 1 if later else FOREVER)
        if self.events[self.at]["createdAt"] != moment:
            return  # the reader has moved on meanwhile
        self.picture.clear()
        with self.picture:
            if not world.nodes:
                words("p", "The record of that time is no longer kept.").classes("empty")
                return
            shares = ", ".join(f"{name} {gpus(amount)}" for name, amount in world.by_project().items())
            words("p", f"By project: {shares or 'none'}.")
            holders: dict[str, list[str]] = {}
            for uuid, milli, workload in world.held():
                part = "" if milli >= 1000 else f" {milli / 1000:g}"
                holders.setdefault(uuid, []).append(f"{workload['name']}{part}")
            for name, node in sorted(world.nodes.items()):
                words("h3", name)
                with tag("div").classes("tiles small"):
                    for gpu in node.get("gpus", ()):
                        with tag("div").classes("tile"):
                            words("strong", f"GPU {gpu['index']}")
                            words("div", ", ".join(holders.get(gpu["uuid"], ())) or "free")


@page("/replay", "Replay", "replay:read")
async def replay(frame: Frame) -> None:
    shown = Replay(frame)
    if await frame.look(shown.load):
        await shown.draw()
