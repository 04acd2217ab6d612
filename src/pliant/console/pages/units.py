"""Projects and departments: who owns quota, what it is and what is used of it."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from pliant.console.actions import sure
from pliant.console.forms import Sheet
from pliant.console.frame import Frame, button, tag, told, words
from pliant.console.texts import gpus

_BAR = """<q-td :props="props"><div class="meter" role="img" :aria-label="props.row.said">
  <div class="part" :style="{width: props.row.within + '%'}"></div>
  <div class="part over" :style="{width: props.row.over + '%'}"></div></div></q-td>"""

_ACTIONS = """<q-td :props="props">
  <q-btn flat dense no-caps class="plain q-px-sm" :aria-label="'Edit ' + props.row.name"
    @click="$parent.$emit('edit', props.row.id)">Edit</q-btn>
  <q-btn flat dense no-caps class="danger q-px-sm q-ml-sm" :aria-label="'Delete ' + props.row.name"
    @click="$parent.$emit('drop', [props.row.id, props.row.name])">Delete</q-btn>
</q-td>"""


def row_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """`within` and `over`: percent of the bar's width; the bar is as long as the quota or what is used."""
    quota = sum(it["gpu"]["deserved"] or 0 for it in item["resources"])
    use = item["status"]["quotaStatus"]
    used, asked, over = use["allocated"]["gpu"], use["requested"]["gpu"], item["overQuotaGpus"]
    longest = max(quota, used) or 1
    return {
        "id": item["id"],
        "name": item["name"],
        "department": item["departmentName"],
        "quota": gpus(quota),
        "used": gpus(used),
        "fair": gpus(item["fairShareGpus"]),
        "overQuota": gpus(over),
        "asked": gpus(asked),
        "within": round(100 * (used - over) / longest, 1),
        "over": round(100 * over / longest, 1),
        "said": f"{gpus(used)} GPUs allocated of a quota of {gpus(quota)}, {gpus(over)} over quota",
    }


class Units:
    """The table of one kind, and the dialogs that change it."""

    def __init__(self, frame: Frame, what: str) -> None:
        self.frame, self.what = frame, what
        self.path = f"/api/v1/org-unit/{what}s"

    def draw(self) -> None:
        with tag("div").classes("bar"):
            words("h1", self.frame.title)
            tag("div").classes("space")
            button(f"+ New {self.what}", self._create, "primary")
        columns = [("name", self.what.capitalize())]
        columns += [("department", "Department")] if self.what == "project" else []
        columns += [("quota", "GPU quota"), ("used", "Allocated GPUs"), ("fair", "Fair share")]
        columns += [
            ("overQuota", "Over quota"),
            ("asked", "Requested"),
            ("bar", "Quota in use"),
            ("act", "Actions"),
        ]
        numbers = {"quota", "used", "fair", "overQuota", "asked", "act"}
        self.table = ui.table(
            rows=[],
            columns=[
                {"name": key, "label": label, "field": key, "align": "right" if key in numbers else "left"}
                for key, label in columns
            ],
            row_key="id",
            pagination=50,
        ).props("flat")
        self.table.add_slot("body-cell-bar", _BAR)
        self.table.add_slot("body-cell-act", _ACTIONS)
        self.table.on("edit", self._edit)
        self.table.on("drop", self._drop)

    async def refresh(self) -> None:
        rows = [row_of(it) for it in await self.frame.calls.all(self.path, f"{self.what}s")]
        if rows != self.table.rows:
            self.table.rows = rows

    async def _create(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            body: dict[str, Any] = {
                "name": values["name"],
                "resources": [quota_of("default", values["deserved"])],
            }
            if values.get("parentId"):
                body["parentId"] = values["parentId"]
            return (await self.frame.calls.send("POST", self.path, body)).json()

        sheet = Sheet(f"New {self.what}", f"Create {self.what}", send)
        sheet.text("name", f"{self.what.capitalize()} name")
        if self.what == "project":
            found = await self.frame.calls.all("/api/v1/org-unit/departments", "departments")
            departments = {it["id"]: it["name"] for it in found}
            default = next(
                (key for key, name in departments.items() if name == "default"), next(iter(departments))
            )
            sheet.choice("parentId", "Department", departments, default)
        sheet.number("deserved", "GPU quota", 0, "GPUs")
        if (made := await sheet.asked()) is not None:
            told(f"{made['name']} was created.")
            await self.frame.look(self.refresh)

    async def _edit(self, event: GenericEventArguments) -> None:
        """Quotas in each node pool; saved only if nothing has changed since they were read."""
        read = await self.frame.calls.send("GET", f"{self.path}/{event.args}")
        item = read.json()

        async def send(values: dict[str, Any]) -> Any:
            pools = [it["nodePool"]["name"] for it in item["resources"]]
            asked = [
                quota_of(pool, *(values[f"{part} {pool}"] for part in ("deserved", "limit", "weight")))
                for pool in pools
            ]
            change = {"description": values["description"], "resources": asked}
            headers = {"If-Match": read.headers["etag"]}
            return await self.frame.calls.send("PATCH", f"{self.path}/{item['id']}", change, headers=headers)

        sheet = Sheet(f"Edit {item['name']}", "Save", send)
        sheet.text("description", "Description", item["description"])
        for row in item["resources"]:
            pool, gpu = row["nodePool"]["name"], row["gpu"]
            where = f" in {pool}" if len(item["resources"]) > 1 else ""
            sheet.number(f"deserved {pool}", f"GPU quota{where}", gpu["deserved"], "GPUs")
            sheet.number(f"limit {pool}", f"Max GPU allocation{where}", gpu["limit"], "GPUs")
            sheet.number(f"weight {pool}", f"Over-quota weight{where}", gpu["overQuotaWeight"])
        if await sheet.asked() is not None:
            told(f"{item['name']} was changed.")
            await self.frame.look(self.refresh)

    async def _drop(self, event: GenericEventArguments) -> None:
        identity, name = event.args
        if await sure(f"Delete {name}?", f"A {self.what} with workloads is kept.", "Delete"):
            done = f"{name} was deleted."
            await self.frame.attempt(lambda: self.frame.calls.send("DELETE", f"{self.path}/{identity}"), done)
            await self.frame.look(self.refresh)


def quota_of(pool: str, deserved: Any, limit: Any = None, weight: Any = None) -> dict[str, Any]:
    """As the API takes it; no limit is none, no weight is the quota."""
    return {
        "nodePool": {"name": pool},
        "gpu": {"deserved": deserved or 0, "limit": limit, "overQuotaWeight": weight},
    }


@ui.page("/projects")
async def projects() -> None:
    await _shown("Projects", "project")


@ui.page("/departments")
async def departments() -> None:
    await _shown("Departments", "department")


async def _shown(title: str, what: str) -> None:
    frame = Frame(title)
    with frame.shown(f"{what}s"):
        units = Units(frame, what)
        units.draw()
        await frame.look(units.refresh)
        frame.follow(units.refresh)
