"""Projects and departments: their quotas, what is used of them, and their rules."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pliant.console.forms import Sheet, sure
from pliant.console.frame import Frame, button, heading, page, told
from pliant.console.tables import Column, Table
from pliant.console.texts import clock, counted_gpus

PARTS = ("deserved", "limit", "overQuotaWeight")
"""The parts of a quota, by their API names."""

RULES = {
    "trainingJobTimeLimitSeconds": "Trainings end after",
    "trainingJobMaxIdleDurationSeconds": "Idle trainings end after",
    "interactiveJobTimeLimitSeconds": "Workspaces end after",
    "interactiveJobMaxIdleDurationSeconds": "Idle workspaces end after",
    "interactiveJobPreemptIdleDurationSeconds": "Idle preemptible workspaces end after",
}


def row_of(item: Mapping[str, Any], actions: str) -> dict[str, Any]:
    """`within` and `over`: percent of the bar's width, which is the larger of quota and use."""
    quota = sum(it["gpu"]["deserved"] or 0 for it in item["resources"])
    use = item["status"]["quotaStatus"]
    used, asked, over = use["allocated"]["gpu"], use["requested"]["gpu"], item["overQuotaGpus"]
    longest = max(quota, used) or 1
    return {
        "id": item["id"],
        "name": item["name"],
        "description": item["description"],
        "department": item["departmentName"],
        "quota": quota,
        "used": round(used, 2),
        "fair": round(item["fairShareGpus"], 2),
        "overQuota": round(over, 2),
        "asked": round(asked, 2),
        "pools": ", ".join(it["nodePool"]["name"] for it in item["resources"]),
        "rank": ", ".join(sorted({it["rank"] for it in item["resources"]})),
        "limits": sum(1 for value in item["schedulingRules"].values() if value),
        "created": clock(item["createdAt"]),
        "within": round(100 * (used - over) / longest, 1),
        "over": round(100 * over / longest, 1),
        "said": f"{counted_gpus(used)} allocated of a quota of {quota:g}, {over:g} over quota",
        "actions": actions,
    }


class Units:
    """The table of one kind, and the dialogs that change it."""

    def __init__(self, frame: Frame, what: str) -> None:
        self.frame, self.what = frame, what
        self.path = f"/api/v1/org-unit/{what}s"

    async def draw(self) -> None:
        rights = [f"{self.what}s:{it}" for it in ("update", "delete")]
        rights += ["projects:quota"] if self.what == "project" else []
        await self.frame.rights.learn(self.frame.calls, *rights)
        with heading(self.frame.title):
            if self.what == "project" and self.frame.may("projects:quota"):
                button("Edit quotas", lambda: self.frame.client.open("/quotas"))
            if self.frame.may(f"{self.what}s:create"):
                button(f"+ New {self.what}", self._create, "primary")
        columns = [Column("name", self.what.capitalize())]
        columns += [Column("department", "Department")] if self.what == "project" else []
        columns += [
            Column("quota", "GPU quota", "gpus"),
            Column("used", "Allocated GPUs", "gpus"),
            Column("fair", "Fair share", "gpus"),
            Column("overQuota", "Over quota", "gpus"),
            Column("asked", "Requested", "gpus"),
            Column("bar", "Quota in use", "bar"),
            Column("description", "Description", hidden=True),
            Column("pools", "Node pools", hidden=True),
            Column("rank", "Rank", hidden=True),
            Column("limits", "Scheduling rules", "number", hidden=True),
            Column("created", "Creation time", hidden=True),
        ]
        may = self.frame.may
        acts = any(may(right) for right in rights) or may("access-rules:read")
        empty = f"No {self.what}s here. Create one: + New {self.what}"
        self.table = Table(columns, empty=empty, file=f"{self.what}s", act=self._act if acts else None)

    async def refresh(self) -> None:
        items = await self.frame.calls.all(self.path, f"{self.what}s")
        self.table.show([row_of(it, ",".join(self._possible(it))) for it in items])

    def _possible(self, item: Mapping[str, Any]) -> list[str]:
        """The labels of the actions that the reader may do."""
        rights = self.frame.rights
        place = (item["parentId"], item["id"]) if self.what == "project" else (item["id"], "")
        found = []
        if rights.where(f"{self.what}s:update").covers(*place):
            found += ["Edit", "Rules"] if self.what == "project" else ["Edit"]
        if self.frame.may("access-rules:read"):
            found.append("Members")
        if rights.where(f"{self.what}s:delete").covers(*place):
            found.append("Delete")
        return found

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        if label == "Members":
            self.frame.client.open(f"/access-rules?scope={row['name']}")
            return
        if label == "Delete":
            await self._drop(row["id"], row["name"])
            return
        ask = self._edit if label == "Edit" else self._rules
        await self.frame.attempt(lambda: ask(row["id"]))

    async def _create(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            body: dict[str, Any] = {
                "name": values["name"].strip(),
                "description": values["description"],
                "resources": [quota_of("default", values["deserved"])],
            }
            if values.get("parentId"):
                body["parentId"] = values["parentId"]
            return (await self.frame.calls.send("POST", self.path, body)).json()

        sheet = Sheet(f"New {self.what}", f"Create {self.what}", send)
        sheet.name("name", f"{self.what.capitalize()} name")
        if self.what == "project":
            found = await self.frame.calls.all("/api/v1/org-unit/departments", "departments")
            departments = {it["id"]: it["name"] for it in found}
            default = next(
                (key for key, name in departments.items() if name == "default"), next(iter(departments), None)
            )
            sheet.choice("parentId", "Department", departments, default)
        sheet.number("deserved", "GPU quota", 0, "GPUs")
        sheet.text("description", "Description (optional)")
        if (made := await sheet.asked()) is not None:
            told(f"{made['name']} was created.")
            await self.frame.look(self.refresh)

    async def _edit(self, identity: str) -> None:
        """Edit the quotas in each node pool; the server refuses if they have changed since they were read."""
        read = await self.frame.calls.send("GET", f"{self.path}/{identity}")
        item = read.json()
        ranks = [it["name"] for it in (await self.frame.calls.get("/api/v1/org-unit/ranks"))["ranks"]]
        quota = self.what == "department" or self.frame.rights.where("projects:quota").covers(
            item["parentId"], item["id"]
        )
        pools = [it["nodePool"]["name"] for it in item["resources"]] if quota else []

        async def send(values: dict[str, Any]) -> Any:
            change: dict[str, Any] = {"description": values["description"]}
            if pools:
                change["resources"] = [
                    {
                        **quota_of(pool, *(values[f"{part} {pool}"] for part in PARTS)),
                        "rank": values[f"rank {pool}"],
                    }
                    for pool in pools
                ]
            headers = {"If-Match": read.headers["etag"]}
            return await self.frame.calls.send("PATCH", f"{self.path}/{item['id']}", change, headers=headers)

        # With several pools, the API's message says which one it is about.
        names = {part: f"{part} {pools[0]}" for part in PARTS} if len(pools) == 1 else {}
        sheet = Sheet(f"Edit {item['name']}", "Save", send, names)
        sheet.text("description", "Description", item["description"])
        for row in item["resources"] if pools else ():
            pool, gpu = row["nodePool"]["name"], row["gpu"]
            where = f" in {pool}" if len(item["resources"]) > 1 else ""
            sheet.number(f"deserved {pool}", f"GPU quota{where}", gpu["deserved"], "GPUs")
            due = partial(_at_least, sheet, f"deserved {pool}")
            sheet.number(f"limit {pool}", f"Max GPU allocation{where}", gpu["limit"], "GPUs", bounds=due)
            sheet.number(f"overQuotaWeight {pool}", f"Over-quota weight{where}", gpu["overQuotaWeight"])
            sheet.choice(
                f"rank {pool}", f"Rank{where}", {it.replace(" ", ""): it for it in ranks}, row["rank"]
            )
        if await sheet.asked() is not None:
            told(f"{item['name']} was changed.")
            await self.frame.look(self.refresh)

    async def _rules(self, identity: str) -> None:
        """Edit the time limits, and the nodes on which its workloads may run."""
        read = await self.frame.calls.send("GET", f"{self.path}/{identity}")
        item = read.json()

        async def send(values: dict[str, Any]) -> Any:
            rules = {key: int(values[key] * 60) if values[key] else None for key in RULES}
            types = {key: values[key].replace(",", " ").split() for key in ("training", "workspace")}
            pools = values["pools"].replace(",", " ").split()
            change = {"schedulingRules": rules, "nodeTypes": types, "defaultNodePools": pools}
            headers = {"If-Match": read.headers["etag"]}
            return await self.frame.calls.send("PATCH", f"{self.path}/{item['id']}", change, headers=headers)

        sheet = Sheet(f"Rules of {item['name']}", "Save", send, {"nodePool": "pools"})
        for key, label in RULES.items():
            now = item["schedulingRules"][key]
            sheet.number(key, label, now / 60 if now else None, "minutes")
        for key, label in (
            ("training", "Node types of trainings"),
            ("workspace", "Node types of workspaces"),
        ):
            sheet.text(key, label, ", ".join(item["nodeTypes"][key]), hint="run.ai/type labels, with commas")
        sheet.text("pools", "Node pools in order", ", ".join(item["defaultNodePools"]), hint="empty: all")
        if await sheet.asked() is not None:
            told(f"The rules of {item['name']} were changed.")
            await self.frame.look(self.refresh)

    async def _drop(self, identity: str, name: str) -> None:
        if await sure(f"Delete {name}?", f"A {self.what} with workloads is kept.", "Delete"):
            done = f"{name} was deleted."
            await self.frame.attempt(lambda: self.frame.calls.send("DELETE", f"{self.path}/{identity}"), done)
            await self.frame.look(self.refresh)


def _at_least(sheet: Sheet, key: str) -> tuple[float | None, None]:
    """The bounds of a limit: at least the quota in the form."""
    return sheet.value(key), None


def quota_of(pool: str, deserved: Any, limit: Any = None, weight: Any = None) -> dict[str, Any]:
    """A quota in the API's form. limit None: no limit; weight None: the quota is the weight."""
    return {
        "nodePool": {"name": pool},
        "gpu": {"deserved": deserved or 0, "limit": limit, "overQuotaWeight": weight},
    }


@page("/projects", "Projects", "projects:read")
async def projects(frame: Frame) -> None:
    await _shown(frame, "project")


@page("/departments", "Departments", "departments:read")
async def departments(frame: Frame) -> None:
    await _shown(frame, "department")


async def _shown(frame: Frame, what: str) -> None:
    units = Units(frame, what)

    async def begin() -> None:
        await units.draw()
        await units.refresh()

    if await frame.look(begin):
        frame.follow(units.refresh)
