"""Policies about submissions: defaults and rules by scope, with a preview of what one would have refused."""

import json
from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.forms import Sheet, sure
from pliant.console.frame import Frame, button, card, heading, page, tag, told, words
from pliant.console.tables import Column, Table
from pliant.console.texts import clock

KINDS = {
    "trainings": "Training",
    "workspaces": "Workspace",
    "distributed": "Distributed",
    "inferences": "Inference",
}
EXAMPLE = {
    "defaults": {"priorityClass": "low"},
    "rules": {"compute": {"gpuDevicesRequest": {"max": 2}}, "image": {"required": True}},
}


NAMED = {"rules": "policy", "defaults": "policy", "imposedAssets": "policy", "meta": "scope"}
"""The API's name of a field -> its key in the form."""


class Policies:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    async def draw(self) -> None:
        await self.frame.rights.learn(self.frame.calls, "policies:write")
        writes = self.frame.may("policies:write")
        with heading("Policies"):
            if writes:
                button("+ New policy", lambda: self._edit({}), "primary")
        columns = (
            Column("name", "Policy"),
            Column("kind", "Type"),
            Column("place", "Scope"),
            Column("rules", "Rules", "number"),
            Column("defaults", "Defaults", "number"),
            Column("who", "Created by"),
            Column("created", "Creation time"),
            Column("updated", "Last updated"),
        )
        empty = "No policies: whatever quotas allow can be submitted."
        self.table = Table(columns, empty=empty, file="policies", act=self._act)

    async def refresh(self) -> None:
        calls = self.frame.calls
        departments = await calls.all("/api/v1/org-unit/departments", "departments")
        projects = await calls.all("/api/v1/org-unit/projects", "projects")
        self.parents = {it["id"]: it["parentId"] for it in projects}
        self.names = {f"department:{it['id']}": f"Department {it['name']}" for it in departments}
        self.names |= {f"project:{it['id']}": f"Project {it['name']}" for it in projects}
        self.names["tenant:"] = "Everybody"
        self.items = {it["meta"]["id"]: it for it in (await calls.get("/api/v2/policy"))["policies"]}
        self.table.show([self._row(it) for it in self.items.values()])

    def _covers(self, scope: str) -> bool:
        kind, _, identity = scope.partition(":")
        reach = self.frame.rights.where("policies:write")
        if kind == "project":
            return reach.covers(self.parents.get(identity, ""), identity)
        return reach.covers(identity)

    def _row(self, item: dict[str, Any]) -> dict[str, Any]:
        meta, policy = item["meta"], item["policy"]
        scope = scope_of(meta)
        kind, place = KINDS.get(item["type"], item["type"]), self.names.get(scope, scope)
        return {
            "id": meta["id"],
            "name": f"{kind} policy of {place[:1].lower()}{place[1:]}",
            "kind": kind,
            "place": place,
            "rules": len(policy.get("rules") or {}),
            "defaults": len(policy.get("defaults") or {}),
            "who": meta["createdBy"],
            "created": clock(meta["createdAt"]),
            "updated": clock(meta["updatedAt"]),
            "actions": "Show,Edit,Delete" if self._covers(scope) else "Show",
        }

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        item = self.items[row["id"]]
        if label == "Show":
            await self._show(row["name"], item["policy"])
        elif label == "Edit":
            await self._edit(item)
        elif await sure(f"Delete the {row['name']}?", "It no longer applies to new submissions.", label):
            kind, _, identity = scope_of(item["meta"]).partition(":")
            query = [("scope", kind)] + ([(f"{kind}Id", identity)] if identity else [])
            path = f"/api/v2/policy/{item['type']}"
            send = self.frame.calls.send
            await self.frame.attempt(lambda: send("DELETE", path, query=query), "The policy was deleted.")
            await self.frame.look(self.refresh)

    async def _show(self, title: str, policy: dict[str, Any]) -> None:
        with ui.dialog().props('aria-labelledby="policy"') as dialog, tag("div").classes("card wide"):
            words("h2", title).props("id=policy")
            words("pre", json.dumps(policy, indent=2)).classes("log").props('tabindex=0 aria-label="Policy"')
            with tag("div").classes("bar"):
                tag("div").classes("space")
                button("Close", lambda: dialog.submit(True))
        await dialog
        dialog.delete()

    async def _edit(self, item: dict[str, Any]) -> None:
        scopes = {key: name for key, name in sorted(self.names.items()) if self._covers(key)}
        scope = scope_of(item["meta"]) if item else next(iter(scopes), "tenant:")
        kind = item["type"] if item else "trainings"
        label = "Save policy" if item else "Create policy"
        sheet = Sheet("Edit policy" if item else "New policy", label, self._put, NAMED)
        if not item:
            sheet.choice("kind", "Type", KINDS, kind)
            sheet.choice("scope", "Scope", scopes, scope)
        else:
            sheet.choice("kind", "Type", {kind: KINDS[kind]}, kind)
            sheet.choice("scope", "Scope", {scope: self.names.get(scope, scope)}, scope)
        text = json.dumps(item["policy"] if item else EXAMPLE, indent=2)
        sheet.text("policy", "Policy as JSON", text, lines=12, needed=True)
        with sheet.body:
            found = tag("div").props("aria-live=polite")

            async def preview() -> None:
                found.clear()
                with found:
                    await self._preview(sheet.values())

            button("Preview", preview)
        if await sheet.asked() is not None:
            told("The policy was saved.")
            await self.frame.look(self.refresh)

    async def _put(self, values: dict[str, Any]) -> Any:
        path = f"/api/v2/policy/{values['kind']}"
        return (await self.frame.calls.send("PUT", path, body_of(values))).json()

    async def _preview(self, values: dict[str, Any]) -> None:
        """Show which of today's workloads the policy would have refused."""
        try:
            path = f"/api/v2/policy/{values['kind']}/preview"
            answer = (await self.frame.calls.send("POST", path, body_of(values))).json()
        except Refusal as error:
            words("p", str(error)).classes("note bad")
            return
        refused = answer["workloads"]
        words("p", f"It would have refused {len(refused)} of today's {answer['checked']} workloads.")
        with tag("ul"):
            for it in refused[:20]:
                why = "; ".join(f"{one['field']}: {one['details']}" for one in it["complianceIssues"])
                words("li", f"{it['name']} ({it['projectName']}): {why}")


def scope_of(meta: dict[str, Any]) -> str:
    """`kind:id`; the tenant has no id."""
    kind = "tenant" if meta["scope"] in ("tenant", "system") else meta["scope"]
    return f"{kind}:{meta['scopeId'] or ''}"


def body_of(values: dict[str, Any]) -> dict[str, Any]:
    """The body of the request. Raises Refusal if the policy is not JSON."""
    try:
        policy = json.loads(values["policy"] or "{}")
    except ValueError as error:
        message = f"This is not JSON: {error}."
        raise Refusal(
            400, {"message": message, "fields": [{"field": "policy", "message": message}]}
        ) from None
    kind, _, identity = values["scope"].partition(":")
    meta = {"scope": kind} | ({f"{kind}Id": identity} if identity else {})
    return {"meta": meta, "policy": policy}


class Effective:
    """What all policies together say about a project."""

    def __init__(self, frame: Frame, projects: dict[str, str]) -> None:
        self.frame = frame
        with card("What holds for a project"):
            with tag("div").classes("bar"):
                first = next(iter(projects))
                self.project = ui.select(projects, label="Project", value=first, on_change=self.show)
                self.kind = ui.select(KINDS, label="Type", value="trainings", on_change=self.show)
                for field in (self.project, self.kind):
                    field.props("outlined dense options-dense").style("min-width: 180px")
            self.box = tag("div")

    async def show(self) -> None:
        await self.frame.look(self._read)

    async def _read(self) -> None:
        query = [("projectId", self.project.value), ("workloadType", self.kind.value)]
        told = await self.frame.calls.get("/api/v1/policies/effective", query)
        self.box.clear()
        with self.box:
            entries = [("default", it) for it in told["defaults"]] + [("rule", it) for it in told["rules"]]
            if not entries:
                words("p", "No policy says anything about it.").classes("empty")
            with tag("ul"):
                for what, it in entries:
                    value, scope = json.dumps(it["value"]), it["policy"]["scope"]
                    words("li", f"{what} {it['field']}: {value} (policy of the {scope})")


@page("/policies", "Policies", "policies:read")
async def policies(frame: Frame) -> None:
    shown = Policies(frame)

    async def begin() -> None:
        await shown.draw()
        await shown.refresh()
        projects = await frame.calls.all("/api/v1/org-unit/projects", "projects")
        if projects:
            await Effective(frame, {it["id"]: it["name"] for it in projects}).show()

    if await frame.look(begin):
        frame.follow(shown.refresh)
