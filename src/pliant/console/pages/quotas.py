"""A sheet that edits the quotas of all projects in one node pool, with a preview and one save."""

import re
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from pliant.console.calls import Refusal
from pliant.console.charts import COLOURS
from pliant.console.forms import meant, number_problem
from pliant.console.frame import Frame, button, card, heading, page, tag, told, words
from pliant.console.remedies import lines
from pliant.console.texts import counted_gpus, gpus

PATH = "/api/v1/org-unit/projects"
FIELDS = (
    ("deserved", "GPU quota"),
    ("limit", "Max GPU allocation"),
    ("overQuotaWeight", "Over-quota weight"),
)


class QuotaSheet:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.items: list[dict[str, Any]] = []
        self.etags: dict[str, str] = {}
        self.inputs: dict[tuple[str, str], ui.number] = {}
        self.notes: dict[str, TextElement] = {}  # project -> the server's error about its row
        self.changed: dict[str, dict[str, Any]] = {}  # project -> field -> value

    async def load(self) -> None:
        calls = self.frame.calls
        await self.frame.rights.learn(calls, "projects:quota")
        reach = self.frame.rights.where("projects:quota")
        every = await calls.all(PATH, "projects", most=500)
        self.items, self.etags, self.changed = [], {}, {}
        for it in every:
            if reach.covers(it["parentId"], it["id"]) and not it["quotaDerived"]:
                read = await calls.send("GET", f"{PATH}/{it['id']}")
                self.items.append(read.json())
                self.etags[it["id"]] = read.headers["etag"]
        self.pools = sorted({row["nodePool"]["name"] for it in self.items for row in it["resources"]})
        nodes = await calls.all("/api/v1/nodes", "nodes") if self.frame.may("nodes:read") else []
        self.sizes = {
            pool: sum(len(it["gpus"]) for it in nodes if it["nodePool"] == pool) for pool in self.pools
        }

    def draw(self) -> None:
        with heading("Quotas"):
            self.preview = button("Preview", self._preview)
            button("Save", self._save, "primary")
        if not self.items:
            words("p", "There is no project with a quota of its own yet.").classes("empty")
            return
        self.pool = ui.select(self.pools, label="Node pool", value=self.pools[0], on_change=self._draw_rows)
        self.pool.props("outlined dense options-dense").style("max-width: 240px")
        with card("What it comes to"):
            self.sum = words("p", "").props("aria-live=polite")
            self.bar = tag("div").classes("meter tall").props("role=img")
            self.legend = tag("div").classes("bar legend")
        self.rows = tag("div").classes("card scroll").props('tabindex=0 role=region aria-label="Quotas"')
        self.told = tag("div").props("aria-live=polite")
        self._draw_rows()

    def _draw_rows(self) -> None:
        self.rows.clear()
        self.inputs, self.notes, self.changed = {}, {}, {}
        with self.rows, tag("table").classes("numbers"):
            with tag("tr"):
                for title in ("Project", "Department", *(label for _, label in FIELDS), "Allocated GPUs"):
                    words("th", title).props("scope=col")
            for it in self.items:
                gpu = self._gpu(it)
                with tag("tr"):
                    words("th", it["name"]).props("scope=row")
                    words("td", it["departmentName"])
                    for key, label in FIELDS:
                        with tag("td"):
                            self.inputs[it["id"], key] = self._input(it, key, label, gpu[key])
                    words("td", gpus(it["status"]["quotaStatus"]["allocated"]["gpu"]))
                with tag("tr"), tag("td").props("colspan=6").style("padding: 0; border: 0"):
                    self.notes[it["id"]] = words("p", "").classes("note bad").props("role=alert")
                    self.notes[it["id"]].visible = False
        self._show_sum()

    def _input(self, item: dict[str, Any], key: str, label: str, value: Any) -> ui.number:
        field = ui.number(
            value=value,
            on_change=partial(self._typed, item["id"], key),
            validation=lambda amount: self._problem(item["id"], key, amount) or None,
        )
        field.props("outlined dense hide-bottom-space").style("width: 110px")
        field.props["aria-label"] = f"{label} of {item['name']}"
        return field

    def _problem(self, identity: str, key: str, amount: Any) -> str:
        quota = self.inputs[identity, "deserved"].value if key == "limit" else None
        return number_problem(amount, quota)

    def _gpu(self, item: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = next(
            it["gpu"] for it in item["resources"] if it["nodePool"]["name"] == self.pool.value
        )
        return found

    def _typed(self, identity: str, key: str, event: Any) -> None:
        self.changed.setdefault(identity, {})[key] = event.value
        self._show_sum()

    def _quotas(self) -> list[tuple[str, float]]:
        """(project, its quota by the current fields), of each project."""
        found = []
        for it in self.items:
            value = self.changed.get(it["id"], {}).get("deserved", self._gpu(it)["deserved"])
            found.append((it["name"], float(value or 0)))
        return found

    def _show_sum(self) -> None:
        quotas = self._quotas()
        total, size = sum(it for _, it in quotas), self.sizes[self.pool.value]
        known = f" of {counted_gpus(size)} in the pool" if size else ""
        over = f": {counted_gpus(total - size)} more than there are" if size and total > size else ""
        self.sum.text = f"{counted_gpus(total)} promised{known}{over}."
        self.bar.clear()
        self.legend.clear()
        self.bar.props["aria-label"] = ", ".join(f"{name} {amount:g}" for name, amount in quotas)
        with self.bar:
            for at, (name, amount) in enumerate(quotas):
                part = tag("div").classes("part")
                width = 100 * amount / (max(total, size) or 1)
                part.style(f"width: {width:.1f}%; background: {COLOURS[at % len(COLOURS)]}")
                part.props["title"] = f"{name}: {amount:g}"
        with self.legend:
            for at, (name, amount) in enumerate(quotas):
                with tag("span").classes("soft"):
                    tag("span").classes("dot").style(f"background: {COLOURS[at % len(COLOURS)]}")
                    words("span", f"{name} {amount:g}")

    def _body(self) -> dict[str, Any] | None:
        """The body of the request; None if a field is invalid, which then shows the error."""
        for note in self.notes.values():
            note.visible = False
        for (identity, key), field in self.inputs.items():
            field.error = self._problem(identity, key, field.value) or None
        if any(field.error for field in self.inputs.values()):
            return None
        pool = self.pool.value
        entries = [
            {
                "id": identity,
                "resources": [{"nodePool": {"name": pool}, "gpu": {**values}}],
                "etag": self.etags[identity],
            }
            for identity, values in self.changed.items()
        ]
        return {"entries": entries}

    async def _preview(self) -> None:
        """Show what the new quotas would change for each workload, by a dry run."""
        body = self._body()
        self.told.clear()
        if not body or not body["entries"]:
            return
        with self.told:
            try:
                path = f"{PATH}/node-pool-resources/batch-patch"
                answer = await self.frame.calls.send("POST", path, body, query=[("dryRun", True)])
            except Refusal as error:
                self._tell(error)
                words("p", f"{error} ({error.status})").classes("note bad")
                return
            with card("Preview"):
                found = answer.json()
                for line in lines(found) or ["No workload would start, move or be taken from."]:
                    words("p", line)

    async def _save(self) -> None:
        body = self._body()
        if not body or not body["entries"]:
            return
        path = f"{PATH}/node-pool-resources/batch-patch"
        try:
            await self.frame.calls.send("POST", path, body)
        except Refusal as error:
            self._tell(error)
            self.frame.trouble(error)
            return
        count = len(body["entries"])
        told(f"{count} projects were changed." if count > 1 else "1 project was changed.")
        self.frame.client.open("/projects")

    def _tell(self, error: Refusal) -> None:
        """Show the server's errors at their rows and fields: another user may have changed a quota."""
        rows = list(self.changed)
        for path, message in error.fields.items():
            if (found := re.match(r"entries\[(\d+)\]", path)) is None:
                continue
            row = rows[int(found[1])]
            key = meant(path, dict(FIELDS), {}) or next(iter(self.changed[row]))
            self.inputs[row, key].error = f"refused ({error.status})"
            self.notes[row].text, self.notes[row].visible = message, True


@page("/quotas", "Quotas", "projects:quota")
async def quotas(frame: Frame) -> None:
    sheet = QuotaSheet(frame)
    if await frame.look(sheet.load):
        sheet.draw()
