"""The table of workloads."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from pliant.console.actions import act, possible
from pliant.console.design import tone
from pliant.console.frame import Frame, button, tag, words
from pliant.console.pages.new import KINDS
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
"""Columns that are shown when they are asked for."""

SORTED_BY = {key: field for key, _, field in COLUMNS}
PHASES = ("Pending", "Creating", "Running", "Updating", "Stopped", "Completed", "Failed")
TYPES = ("Training", "Workspace", "Distributed", "Inference")

_NAME = '<q-td :props="props"><a :href="\'/console/workloads/\' + props.row.id">{{ props.value }}</a></q-td>'
_STATUS = '<q-td :props="props"><span class="chip" :class="props.row.tone">{{ props.value }}</span></q-td>'
_ACTIONS = """<q-td :props="props">
  <q-btn flat dense round icon="more_vert" :aria-label="'Actions for ' + props.row.name">
    <q-menu auto-close>
      <q-list :aria-label="'Actions for ' + props.row.name" role="menu">
        <q-item v-for="label in props.row.actions.split(',')" :key="label" clickable role="menuitem"
          @click="$parent.$emit('act', [label, props.row.id, props.row.name, props.row.type])">
          <q-item-section>{{ label }}</q-item-section>
        </q-item>
      </q-list>
    </q-menu>
  </q-btn>
</q-td>"""


def row_of(item: Mapping[str, Any]) -> dict[str, Any]:
    asked = item["podsRequestedResources"]["gpu"] or {}
    memory = item["podsRequestedResources"]["gpuMemory"] or {}
    request = memory.get("request") or gpus(asked.get("request"))
    return {
        "id": item["id"],
        "name": item["name"],
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
        "actions": ",".join(possible(item)),
    }


class WorkloadTable:
    """What is asked for, and the page of it that is shown."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.hidden = set(HIDDEN)
        self.search = ""
        self.filters: dict[str, str | None] = {}

    def draw(self) -> None:
        with tag("div").classes("bar"):
            ui.input("Search", on_change=self._searched).props(
                "outlined dense clearable debounce=300 type=search"
            )
            self._select("Status", "phase", PHASES)
            self._select("Type", "type", TYPES)
            self.projects = self._select("Project", "projectName", ())
            tag("div").classes("space")
            with button("Columns", icon="view_column"), ui.menu(), tag("div").classes("card") as shown:
                shown.props('role=group aria-label="Columns"')
                for key, label, _ in COLUMNS[1:]:
                    ui.checkbox(
                        label,
                        value=key not in self.hidden,
                        on_change=lambda event, key=key: self._toggled(key, event.value),
                    ).props("dense").style("display: flex; padding: 4px")
            button("CSV", self._download, icon="download").props('aria-label="Download as CSV"')
        self.table = ui.table(
            rows=[],
            columns=self._columns(),
            row_key="id",
            pagination={"rowsPerPage": 50, "page": 1, "sortBy": None, "descending": True, "rowsNumber": 0},
        ).props(
            'flat binary-state-sort :rows-per-page-options="[10,25,50,100]" title="" '
            'no-data-label="No workloads here. Start one: + New workload"'
        )
        self.table.add_slot("body-cell-name", _NAME)
        self.table.add_slot("body-cell-status", _STATUS)
        self.table.add_slot("body-cell-actions", _ACTIONS)
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
                "name": key,
                "label": label,
                "field": key,
                "sortable": bool(field),
                "align": "right" if key in right else "left",
            }
            for key, label, field in COLUMNS
            if key not in self.hidden
        ]
        return [*shown, {"name": "actions", "label": "Actions", "field": "actions", "align": "right"}]

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
        count = (await calls.get("/api/v1/workloads/count", asked))["count"]
        told = await calls.get("/api/v1/workloads", [*asked, ("offset", per * (number - 1)), ("limit", per)])
        rows = [row_of(item) for item in told["workloads"]]
        if rows != self.table.rows:
            self.table.rows = rows
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

    def _toggled(self, key: str, on: bool) -> None:
        self.hidden.symmetric_difference_update({key} if on == (key in self.hidden) else ())
        self.table.columns = self._columns()

    async def _acted(self, event: GenericEventArguments) -> None:
        label, identity, name, kind = event.args
        await act(self.frame, label, identity, name, kind)

    async def _download(self) -> None:
        async def make() -> None:
            items = await self.frame.calls.all("/api/v1/workloads", "workloads", self._asked())
            keys = [(key, label) for key, label, _ in COLUMNS if key not in self.hidden]
            rows = [[row[key] for key, _ in keys] for row in map(row_of, items)]
            ui.download.content(spreadsheet([label for _, label in keys], rows), "workloads.csv", "text/csv")

        await self.frame.look(make)


@ui.page("/")
@ui.page("/workloads")
async def workloads() -> None:
    frame = Frame("Workloads")
    with frame.shown("workloads"):
        with tag("div").classes("bar"):
            words("h1", "Workloads")
            tag("div").classes("space")
            with button("+ New workload", look="primary"), ui.menu().props("auto-close"), tag("div") as kinds:
                kinds.props('role=menu aria-label="New workload"')
                for path, kind in KINDS.items():
                    item = ui.menu_item(kind, partial(ui.navigate.to, f"/new/{path}"))
                    item.props("role=menuitem")
        table = WorkloadTable(frame)
        table.draw()
        await frame.look(table.load_projects)
        await frame.look(table.refresh)
        frame.follow(table.refresh)
