"""The table of workloads."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from pliant.console.actions import RIGHTS, act, possible
from pliant.console.design import tone
from pliant.console.frame import Frame, button, heading, page, tag
from pliant.console.pages.new import KINDS
from pliant.console.rights import Rights
from pliant.console.tables import PINNED, RowTable, choose_columns
from pliant.console.texts import age, gpus, spreadsheet

COLUMNS = (
    ("name", "Workload", "name"),
    ("status", "Status", "status"),
    ("type", "Type", "type"),
    ("project", "Project", "projectName"),
    ("priority", "Priority", "priority"),
    ("preemptible", "Preemptible", "preemptible"),
    ("pool", "Node pool", "nodepool"),
    ("pods", "Running/requested pods", ""),
    ("request", "GPU request", ""),
    ("gpu", "GPU allocation", "allocatedGPU"),
    ("age", "Age", "createdAt"),
    ("who", "Created by", "submittedBy"),
    ("department", "Department", "departmentName"),
    ("image", "Image", "image"),
)
"""(key, label, field by which the API sorts; empty: it does not)."""

HIDDEN = {"department", "image"}
"""Columns that are hidden until the reader shows them."""

SORTED_BY = {key: field for key, _, field in COLUMNS}
PHASES = ("Pending", "Creating", "Running", "Updating", "Stopped", "Completed", "Failed")
TYPES = ("Training", "Workspace", "Distributed", "Inference")

KINDS_OF = {"name": "link", "status": "chip"}
"""How columns that are not plain text are drawn."""

NEXT = "event => (event.target.nextElementSibling || event.target).focus()"
BEFORE = "event => (event.target.previousElementSibling || event.target).focus()"
"""Arrow keys within a menu."""


def row_of(item: Mapping[str, Any], rights: Rights) -> dict[str, Any]:
    asked = item["podsRequestedResources"]["gpu"] or {}
    memory = item["podsRequestedResources"]["gpuMemory"] or {}
    request = memory.get("request") or gpus(asked.get("request"))
    return {
        "id": item["id"],
        "name": item["name"],
        "href": f"/console/workloads/{item['id']}",
        "status": item["status"],
        "tone": tone(item["status"]),
        "type": item["type"],
        "project": item["projectName"],
        "priority": f"{item['priorityClassName']} ({item['priority']})",
        "preemptible": "Yes" if item["preemptible"] else "No",
        "pool": ", ".join(item["currentNodePools"] or item["requestedNodePools"]),
        "pods": f"{item['runningPods']}/{item['requestedPods']['number']}",
        "request": request,
        "gpu": gpus(item["allocatedResources"]["gpu"]),
        "age": age(item["createdAt"]),
        "who": item["submittedBy"],
        "department": item["departmentName"],
        "image": ", ".join(item["images"]),
        "actions": ",".join(possible(item, rights)),
    }


class WorkloadTable:
    """The filters and the order, and the page of the table that is shown."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.hidden = set(HIDDEN)
        self.search = ""
        self.filters: dict[str, str | None] = {}
        self.items: dict[str, Mapping[str, Any]] = {}

    def draw(self) -> None:
        with tag("div").classes("bar"):
            ui.input("Search", on_change=self._searched).props(
                "outlined dense clearable debounce=300 type=search"
            )
            self._select("Status", "phase", PHASES)
            self._select("Type", "type", TYPES)
            self.projects = self._select("Project", "projectName", ())
            tag("div").classes("space")
            choose_columns([(key, label) for key, label, _ in COLUMNS[1:]], self.hidden, self._drawn)
            button("CSV", self._download, icon="download").props('aria-label="Download as CSV"')
        self.table = RowTable(
            self._columns(),
            pagination={"rowsPerPage": 50, "page": 1, "sortBy": None, "descending": True, "rowsNumber": 0},
        ).props(
            'flat binary-state-sort :rows-per-page-options="[10,25,50,100]" title="" '
            'no-data-label="No workloads here. Start one: + New workload"'
        )
        self.table.on("request", self._requested, ["pagination"])
        self.table.on("act", self._acted)

    def _select(self, label: str, field: str, options: tuple[str, ...]) -> ui.select:
        async def chosen(event: Any) -> None:
            self.filters[field] = event.value
            await self._again()

        return (
            ui.select(list(options), label=label, clearable=True, on_change=chosen)
            .props("outlined dense options-dense")
            .style("min-width: 130px")
        )

    def _columns(self) -> list[dict[str, Any]]:
        right = {"request", "gpu", "pods"}
        shown = [
            {
                "kind": KINDS_OF.get(key, "text"),
                "name": key,
                "label": label,
                "field": key,
                "sortable": bool(field),
                "align": "right" if key in right else "left",
            }
            for key, label, field in COLUMNS
            if key not in self.hidden
        ]
        return [*shown, PINNED]

    def _asked(self) -> list[tuple[str, Any]]:
        page = self.table.pagination
        field = SORTED_BY.get(page.get("sortBy") or "")
        query: list[tuple[str, Any]] = [("sortBy", field)] if field else []
        query.append(("sortOrder", "desc" if page.get("descending") else "asc"))
        query += [("filterBy", f"{name}=={value}") for name, value in self.filters.items() if value]
        return [*query, ("search", self.search)] if self.search else query

    async def refresh(self) -> None:
        calls, page, asked = self.frame.calls, self.table.pagination, self._asked()
        per, number = page["rowsPerPage"], page["page"]
        first = per * (number - 1)
        told = await calls.get("/api/v1/workloads", [*asked, ("offset", first), ("limit", per)])
        count = first + len(told["workloads"])
        if "next" in told or (first and not told["workloads"]):
            count = (await calls.get("/api/v1/workloads/count", asked))["count"]
        self.items = {item["id"]: item for item in told["workloads"]}
        rows = [row_of(item, self.frame.rights) for item in told["workloads"]]
        self.table.show(rows)
        if count != page.get("rowsNumber"):
            self.table.pagination = {**page, "rowsNumber": count}

    async def load_projects(self) -> None:
        projects = await self.frame.calls.all("/api/v1/org-unit/projects", "projects")
        self.projects.set_options(sorted(it["name"] for it in projects))

    async def _again(self) -> None:
        self.table.pagination = {**self.table.pagination, "page": 1}
        await self.frame.look(self.refresh)

    async def _searched(self, event: Any) -> None:
        self.search = event.value or ""
        await self._again()

    async def _requested(self, event: GenericEventArguments) -> None:
        self.table.pagination = {**self.table.pagination, **event.args["pagination"]}
        await self.frame.look(self.refresh)

    def _drawn(self) -> None:
        self.table.columns = self._columns()

    async def _acted(self, event: GenericEventArguments) -> None:
        label, identity = event.args
        if (item := self.items.get(identity)) is not None:
            await act(self.frame, label, identity, item["name"], item["type"])

    async def _download(self) -> None:
        async def make() -> None:
            items = await self.frame.calls.all("/api/v1/workloads", "workloads", self._asked())
            keys = [(key, label) for key, label, _ in COLUMNS if key not in self.hidden]
            rows = [[row[key] for key, _ in keys] for row in (row_of(it, self.frame.rights) for it in items)]
            ui.download.content(spreadsheet([label for _, label in keys], rows), "workloads.csv", "text/csv")

        await self.frame.look(make)


@page("/", "Workloads", "workloads:read", "workloads")
@page("/workloads", "Workloads", "workloads:read")
async def workloads(frame: Frame) -> None:
    with heading("Workloads"):
        if frame.may("workloads:create"):
            with button("+ New workload", look="primary"), ui.menu().props("auto-close"), tag("div") as kinds:
                kinds.props('role=menu aria-label="New workload"')
                kinds.on("keydown.down.prevent", js_handler=NEXT).on("keydown.up.prevent", js_handler=BEFORE)
                for at, (path, kind) in enumerate(KINDS.items()):
                    item = ui.menu_item(kind, partial(ui.navigate.to, f"/new/{path}"))
                    item.props("role=menuitem" + ("" if at else " data-autofocus"))
    table = WorkloadTable(frame)

    async def begin() -> None:
        await frame.rights.learn(frame.calls, *RIGHTS)
        table.draw()
        await table.load_projects()
        await table.refresh()

    if await frame.look(begin):
        frame.follow(table.refresh)
