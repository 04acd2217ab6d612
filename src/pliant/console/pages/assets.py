"""The saved parts of workloads: environments, compute resources and templates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant.console.flexible import ASKED, NAMED, asks, compute_of, form_of
from pliant.console.forms import Sheet, sure
from pliant.console.frame import Frame, button, heading, page, told
from pliant.console.pages.new import KINDS, about
from pliant.console.tables import Column, Table
from pliant.console.texts import clock

Made = Callable[[dict[str, Any]], dict[str, Any]]
"""The values of a form -> the spec to save."""


RUNS = ("image", "command", "args")
"""The spec fields that the form of an environment sets."""


def environment_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: values[key].strip() for key in RUNS if (values[key] or "").strip()}


def template_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**environment_of(values), "compute": compute_of(values)}


def runs(sheet: Sheet, needed: bool, now: Mapping[str, Any]) -> None:
    """Add the fields of an environment to the sheet, with the saved values `now`."""
    sheet.text("image", "Image URL", now.get("image") or "", needed=needed)
    sheet.text("command", "Command (optional)", now.get("command") or "")
    sheet.text("args", "Arguments (optional)", now.get("args") or "")


def without(spec: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The spec without the fields of a form: they stay as they are."""
    return {key: value for key, value in spec.items() if key not in names}


class Assets:
    """The table of one kind; `label` is its name in the singular."""

    def __init__(self, frame: Frame, label: str, paths: Mapping[str, str]) -> None:
        """`paths`: kind of workload (empty: all) -> path in the API."""
        self.frame, self.label, self.paths = frame, label, paths
        self.kept: dict[str, dict[str, Any]] = {}  # id -> spec, of those that are shown

    async def draw(self) -> None:
        await self.frame.rights.learn(self.frame.calls, "assets:write")
        with heading(self.frame.title):
            if self.frame.may("assets:write"):
                button(f"+ New {self.label}", self._create, "primary")
        columns = [Column("name", self.label.capitalize())]
        columns += [Column("kind", "Workload type")] if len(self.paths) > 1 else []
        columns += [
            Column("about", "What it holds"),
            Column("scope", "Scope"),
            Column("who", "Created by"),
            Column("created", "Creation time"),
            Column("description", "Description", hidden=True),
        ]
        empty = f"Nothing is kept here yet. Keep something for reuse: + New {self.label}"
        act = self._act if self.frame.may("assets:write") else None
        file = self.frame.title.lower().replace(" ", "-")
        self.table = Table(columns, empty=empty, file=file, act=act)

    async def refresh(self) -> None:
        await self._scopes()
        rows, self.kept = [], {}
        for kind, path in self.paths.items():
            entries = await self.frame.calls.all(path, "entries")
            self.kept |= {it["meta"]["id"]: it["spec"] for it in entries}
            rows += [self._row(it, kind, path) for it in entries]
        self.table.show(rows)

    async def _scopes(self) -> None:
        calls = self.frame.calls
        projects = await calls.all("/api/v1/org-unit/projects", "projects")
        departments = await calls.all("/api/v1/org-unit/departments", "departments")
        self.parents = {it["id"]: it["parentId"] for it in projects}
        self.names = {("project", it["id"]): f"Project {it['name']}" for it in projects}
        self.names |= {("department", it["id"]): f"Department {it['name']}" for it in departments}

    def _covers(self, kind: str, identity: str) -> bool:
        reach = self.frame.rights.where("assets:write")
        if kind == "project":
            return reach.covers(self.parents.get(identity, ""), identity)
        return reach.covers(identity if kind == "department" else "")

    def _row(self, item: dict[str, Any], kind: str, path: str) -> dict[str, Any]:
        meta, spec = item["meta"], item["spec"]
        scope, identity = meta["scope"], meta["scopeId"] or ""
        holds = (
            spec.get("image") or "",
            about(spec.get("compute") or spec) if self.label != "environment" else "",
        )
        return {
            "id": meta["id"],
            "name": meta["name"],
            "kind": kind,
            "path": path,
            "about": ", ".join(it for it in holds if it),
            "scope": self.names.get((scope, identity), "Everybody" if not identity else scope),
            "who": meta["createdBy"],
            "created": clock(meta["createdAt"]),
            "description": meta["description"],
            "actions": "Edit,Delete" if self._covers(scope, identity) else "",
        }

    async def _create(self) -> None:
        await self._scopes()
        scopes = {"tenant:": "Everybody"} if self._covers("tenant", "") else {}
        scopes |= {
            f"{kind}:{key}": name for (kind, key), name in self.names.items() if self._covers(kind, key)
        }
        made_of: Made = {"environment": environment_of, "template": template_of}.get(self.label, compute_of)

        async def send(values: dict[str, Any]) -> Any:
            scope, _, identity = values["scope"].partition(":")
            meta = {"name": values["name"], "scope": scope, "scopeId": identity or None}
            meta["description"] = values["description"] or ""
            path = self.paths[values.get("kind") or next(iter(self.paths))]
            return (await self.frame.calls.send("POST", path, {"meta": meta, "spec": made_of(values)})).json()

        sheet = Sheet(f"New {self.label}", f"Create {self.label}", send, NAMED)
        sheet.choice("scope", "Scope", scopes, next(iter(scopes), None))
        sheet.name("name", f"{self.label.capitalize()} name")
        if len(self.paths) > 1:
            sheet.choice("kind", "Workload type", {it: it for it in self.paths}, next(iter(self.paths)))
        if self.label != "compute resource":
            runs(sheet, self.label == "environment", {})
        if self.label != "environment":
            asks(sheet)
        sheet.text("description", "Description (optional)")
        if (made := await sheet.asked()) is not None:
            told(f"{made['meta']['name']} was created.")
            await self.frame.look(self.refresh)

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        path = f"{row['path']}/{row['id']}"
        if label == "Delete":
            text = "Its workloads keep running. New ones cannot use it."
            if await sure(f"Delete {row['name']}?", text, "Delete"):
                done = f"{row['name']} was deleted."
                await self.frame.attempt(lambda: self.frame.calls.send("DELETE", path), done)
                await self.frame.look(self.refresh)
            return

        spec = self.kept.get(row["id"], {})
        computes = {"environment": None, "template": spec.get("compute") or {}}.get(self.label, spec)
        form = form_of(computes) if computes is not None else None

        async def send(values: dict[str, Any]) -> Any:
            meta = {"name": values["name"], "description": values["description"]}
            now = dict(spec)
            if self.label != "compute resource":
                now = without(now, RUNS) | environment_of(values)
            if form is not None and {key: values[key] for key in form} != form:
                asked = without(computes or {}, ASKED) | compute_of(values)
                now = now | {"compute": asked} if self.label == "template" else asked
            return await self.frame.calls.send("PATCH", path, {"meta": meta, "spec": now})

        sheet = Sheet(f"Edit {row['name']}", "Save", send, NAMED)
        sheet.say("Workloads that were made of it stay as they are.")
        sheet.name("name", f"{self.label.capitalize()} name", row["name"])
        if self.label != "compute resource":
            runs(sheet, self.label == "environment", spec)
        if form is not None:
            asks(sheet, form)
        elif computes:
            sheet.say(f"It keeps what it asks for, in units that this form does not have: {about(computes)}.")
        sheet.text("description", "Description", row["description"])
        if await sheet.asked() is not None:
            await self.frame.look(self.refresh)


async def _shown(frame: Frame, label: str, paths: Mapping[str, str]) -> None:
    assets = Assets(frame, label, paths)

    async def begin() -> None:
        await assets.draw()
        await assets.refresh()

    if await frame.look(begin):
        frame.follow(assets.refresh)


@page("/environments", "Environments", "assets:read")
async def environments(frame: Frame) -> None:
    await _shown(frame, "environment", {"": "/api/v1/asset/environment"})


@page("/compute-resources", "Compute resources", "assets:read")
async def compute_resources(frame: Frame) -> None:
    await _shown(frame, "compute resource", {"": "/api/v1/asset/compute"})


@page("/templates", "Templates", "assets:read")
async def templates(frame: Frame) -> None:
    paths = {kind: f"/api/v1/workload-templates/{plural}" for plural, kind in KINDS.items()}
    await _shown(frame, "template", paths)
