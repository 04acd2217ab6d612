"""What if: shows what the scheduler would do differently after supposed changes. Nothing is changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pliant.console.forms import Sheet
from pliant.console.frame import Frame, button, card, heading, page, tag, words
from pliant.console.remedies import lines
from pliant.console.texts import counted_gpus

Form = Callable[["Suppositions", Sheet], None]


def _to_project(to: str, unit: str) -> Form:
    def fields(page: "Suppositions", sheet: Sheet) -> None:
        sheet.choice("project", "Project", page.projects, next(iter(page.projects), None))
        sheet.choice("pool", "Node pool", page.pools, next(iter(page.pools), None))
        sheet.number("to", to, 1, unit)

    return fields


def _nodes(page: "Suppositions", sheet: Sheet) -> None:
    sheet.number("count", "Nodes", 1)
    sheet.number("gpus", "GPUs of each", 8)
    sheet.choice("pool", "Node pool", page.pools, next(iter(page.pools), None))


def _node(page: "Suppositions", sheet: Sheet) -> None:
    sheet.choice("node", "Node", page.nodes, next(iter(page.nodes), None))


def _submission(page: "Suppositions", sheet: Sheet) -> None:
    sheet.choice("project", "Project", page.projects, next(iter(page.projects), None))
    sheet.number("gpus", "GPUs of each task", 1)
    sheet.number("tasks", "Tasks", 1)


def _workload(page: "Suppositions", sheet: Sheet) -> None:
    sheet.choice("workload", "Workload", page.workloads, next(iter(page.workloads), None))


KINDS: dict[str, tuple[str, Form]] = {
    "quota": ("Another quota", _to_project("GPU quota", "GPUs")),
    "limit": ("Another limit", _to_project("Max GPU allocation", "GPUs")),
    "weight": ("Another over-quota weight", _to_project("Over-quota weight", "")),
    "add-nodes": ("More nodes", _nodes),
    "fail": ("A node fails", _node),
    "drain": ("A node is drained", _node),
    "submit": ("Another workload", _submission),
    "end": ("A workload ends", _workload),
}
"""Kind of a supposed change -> (its label, its form)."""


class Suppositions:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.supposed: list[dict[str, Any]] = []

    async def load(self) -> None:
        calls = self.frame.calls
        self.projects = {
            it["name"]: it["name"] for it in await calls.all("/api/v1/org-unit/projects", "projects")
        }
        self.pools = {it["name"]: it["name"] for it in await calls.all("/api/v1/node-pools", "nodepools")}
        nodes = await calls.all("/api/v1/nodes", "nodes") if self.frame.may("nodes:read") else []
        self.nodes = {it["name"]: it["name"] for it in nodes}
        query = [("filterBy", "phase==Running")]
        running = await calls.all("/api/v1/workloads", "workloads", query, most=500)
        self.workloads = {it["id"]: f"{it['name']} ({it['projectName']})" for it in running}

    def draw(self) -> None:
        with heading("What if"):
            pass
        with card("Suppose"):
            with tag("div").classes("bar"):
                for kind, (label, _) in KINDS.items():
                    if kind in ("fail", "drain") and not self.nodes:
                        continue
                    button(f"+ {label}", partial(self._add, kind))
            self.list = tag("div")
        with card("What would be different"):
            self.plan = tag("div").props("aria-live=polite")
        self._show()
        with self.plan:
            words("p", "Suppose something, and the plan of the scheduler is shown here.").classes("empty")

    async def _add(self, kind: str) -> None:
        label, fields = KINDS[kind]

        async def send(values: dict[str, Any]) -> Any:
            change = {"kind": kind, **{key: value for key, value in values.items() if value is not None}}
            found = await self._asked([*self.supposed, change])
            self.supposed.append(change)
            return found

        sheet = Sheet(label, "Suppose it", send)
        fields(self, sheet)
        if (found := await sheet.asked()) is not None:
            self._show()
            self._show_plan(found)

    async def _asked(self, changes: list[dict[str, Any]]) -> Any:
        return (await self.frame.calls.send("POST", "/api/v1/what-if", {"changes": changes})).json()

    def _show(self) -> None:
        self.list.clear()
        with self.list:
            with tag("ol"):
                for it in self.supposed:
                    words("li", self._said(it))
            if self.supposed:
                button("Start again", self._clear)

    def _said(self, change: dict[str, Any]) -> str:
        label, _ = KINDS[change["kind"]]
        names = {**change, "workload": self.workloads.get(change.get("workload", ""), "")}
        parts = [f"{key} {value}" for key, value in names.items() if key != "kind" and value != ""]
        return f"{label}: {', '.join(parts)}"

    def _clear(self) -> None:
        self.supposed = []
        self._show()
        self.plan.clear()

    def _show_plan(self, found: dict[str, Any]) -> None:
        self.plan.clear()
        with self.plan:
            before, after = counted_gpus(found["gpusBefore"]), counted_gpus(found["gpusAfter"])
            words("p", f"Allocated: {before} before, {after} after.")
            words("p", f"Waiting workloads: {found['waitingBefore']} before, {found['waitingAfter']} after.")
            with tag("ul"):
                for line in lines(found) or ["No workload would start, move or be taken from."]:
                    words("li", line)


@page("/what-if", "What if", "what-if:read")
async def what_if(frame: Frame) -> None:
    supposed = Suppositions(frame)
    if await frame.look(supposed.load):
        supposed.draw()
