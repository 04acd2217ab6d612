"""The audit log with filters and export: who changed what, from where, with which result."""

from datetime import UTC, datetime, timedelta
from typing import Any

from nicegui import ui

from pliant.console.frame import Frame, button, heading, page, tag, words
from pliant.console.tables import Column, Table
from pliant.console.texts import clock

PATH = "/api/v1/audit/log"
NEWEST = 1000
PERIODS = {"1": "the last hour", "24": "the last day", "168": "the last week", "0": "all that is kept"}


class History:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.items: dict[str, dict[str, Any]] = {}

    def draw(self) -> None:
        with heading("Event history"):
            button("CSV of all", lambda: self._export("csv"), icon="download")
            button("JSON of all", lambda: self._export("json"), icon="download")
        with tag("div").classes("bar"):
            self.user = ui.input("By whom", on_change=self._again).props(
                "outlined dense clearable debounce=300"
            )
            self.entity = ui.input("About what", on_change=self._again)
            self.entity.props("outlined dense clearable debounce=300")
            self.period = ui.select(PERIODS, label="When", value="24", on_change=self._again)
            self.period.props("outlined dense options-dense").style("min-width: 160px")
        columns = (
            Column("at", "Date"),
            Column("name", "Subject"),
            Column("action", "Event"),
            Column("status", "Status", "chip"),
            Column("what", "Entity type"),
            Column("entity", "Entity name"),
            Column("source", "Source IP"),
            Column("changed", "What changed"),
            Column("kind", "Subject type", hidden=True),
            Column("number", "Event ID", hidden=True),
            Column("identity", "Entity ID", hidden=True),
            Column("method", "Method", hidden=True),
            Column("url", "URL", hidden=True),
        )
        self.count = words("p", "").classes("soft")
        self.table = Table(
            columns, empty="Nothing was changed in that time.", file="events", act=self._act, search=False
        )

    def _query(self) -> list[tuple[str, Any]]:
        query: list[tuple[str, Any]] = [("user", self.user.value or ""), ("entity", self.entity.value or "")]
        if hours := int(self.period.value):
            since = datetime.now(UTC) - timedelta(hours=hours)
            query.append(("start", int(since.timestamp() * 1000)))
        return query

    async def refresh(self) -> None:
        told = await self.frame.calls.get(PATH, [*self._query(), ("limit", NEWEST)])
        self.items = {it["id"]: it for it in told["audit_logs"]}
        shown = f", the newest {NEWEST} are shown" if told["total"] > NEWEST else ""
        self.count.text = f"{told['total']} events{shown}."
        self.table.show([row_of(it) for it in self.items.values()])

    async def _again(self) -> None:
        await self.frame.look(self.refresh)

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        changes = self.items[row["id"]]["changes"]
        with ui.dialog().props('aria-labelledby="changed"') as dialog, tag("div").classes("card wide"):
            words("h2", f"{row['action']} {row['entity']}: what changed").props("id=changed")
            with tag("dl").classes("facts"):
                for it in changes:
                    words("dt", it["field"])
                    words("dd", f"{it['before'] or 'nothing'} → {it['after'] or 'nothing'}")
            with tag("div").classes("bar"):
                tag("div").classes("space")
                button("Close", lambda: dialog.submit(True))
        await dialog
        dialog.delete()

    async def _export(self, form: str) -> None:
        async def make() -> None:
            answer = await self.frame.calls.send(
                "GET", f"{PATH}/file", query=[*self._query(), ("format", form)]
            )
            ui.download.content(answer.body, f"pliant-events.{form}")

        await self.frame.look(make)


def row_of(item: dict[str, Any]) -> dict[str, Any]:
    fields = [it["field"].rpartition(".")[2] for it in item["changes"]]
    more = f" and {len(fields) - 3} more" if len(fields) > 3 else ""
    return {
        "id": item["id"],
        "at": clock(item["timestamp"]),
        "name": item["subject"],
        "action": item["action"],
        "status": item["result"],
        "tone": "good" if item["result"] == "Succeeded" else "bad",
        "what": item["entity_type"],
        "entity": item["entity_name"],
        "source": item["source_ip"],
        "changed": f"{', '.join(fields[:3])}{more}",
        "kind": item["subject_type"],
        "number": item["id"],
        "identity": item["entity_id"],
        "method": item["http_method"],
        "url": item["url"],
        "actions": "Show what changed" if item["changes"] else "",
    }


@page("/event-history", "Event history", "audit:read")
async def event_history(frame: Frame) -> None:
    history = History(frame)
    history.draw()
    await frame.live(history.refresh)
