"""People, programs and what they may: users, service accounts, access rules, roles."""

from typing import Any

from pliant.console.forms import Sheet, shown_once, sure
from pliant.console.frame import Frame, button, card, heading, page, tag, told, words
from pliant.console.tables import Column, Table
from pliant.console.texts import clock

USERS, PROGRAMS = "/api/v1/users", "/api/v1/service-accounts"
RULES = "/api/v1/authorization/access-rules"
KINDS = {
    "user": "User",
    "service-account": "Service account",
    "unix": "Account of the server",
    "group": "Group",
}
"""Kind of a subject -> its label."""


class Accounts:
    """The table of users or of service accounts: creates, disables and deletes them."""

    def __init__(self, frame: Frame, label: str, path: str, name: str) -> None:
        """`name`: LIST.FIELD, the API's list of the accounts and its field with their name."""
        self.frame, self.label, self.path = frame, label, path
        self.list, _, self.key = name.partition(".")
        self.writes = frame.may("users:write" if label == "user" else "applications:write")

    def draw(self) -> None:
        with heading(self.frame.title):
            if self.writes:
                button(f"+ New {self.label}", self._create, "primary")
        columns = [Column("name", self.label.capitalize()), Column("status", "Status", "chip")]
        columns += [Column("client", "Client ID")] if self.label != "user" else []
        columns += [
            Column("rules", "Access rules"),
            Column("login", "Last login"),
            Column("who", "Created by"),
            Column("created", "Creation time"),
            Column("account", "Account of the server", hidden=True),
        ]
        empty = f"No {self.label}s yet. Make one: + New {self.label}"
        file = self.frame.title.lower().replace(" ", "-")
        self.table = Table(columns, empty=empty, file=file, act=self._act if self.writes else None)

    async def refresh(self) -> None:
        rules = []
        if self.frame.may("access-rules:read"):
            rules = (await self.frame.calls.get(RULES))["accessRules"]
        found = await self.frame.calls.get(self.path)
        self.table.show([self._row(it, rules) for it in found[self.list]])

    def _row(self, item: dict[str, Any], rules: list[dict[str, Any]]) -> dict[str, Any]:
        own = [it for it in rules if it["subjectName"] == item[self.key] or it["subjectId"] == item["id"]]
        actions = ["Disable" if item["enabled"] else "Enable", "Delete"]
        actions[1:1] = ["New password", "Log out everywhere"] if self.label == "user" else ["New secret"]
        return {
            "id": item["id"],
            "name": item[self.key],
            "status": "Enabled" if item["enabled"] else "Disabled",
            "tone": "good" if item["enabled"] else "quiet",
            "client": item.get("clientId", ""),
            "rules": ", ".join(f"{it['roleName']} ({it['scopeName'] or it['scopeType']})" for it in own),
            "login": clock(item["lastLogin"]),
            "who": item["createdBy"],
            "created": clock(item["createdAt"]),
            "account": item["account"] or "",
            "actions": ",".join(actions),
        }

    async def _create(self) -> None:
        send = self.frame.calls.send
        scopes = await scopes_of(self.frame)
        roles = await roles_of(self.frame)

        async def make(values: dict[str, Any]) -> Any:
            body = {"email" if self.label == "user" else "name": values["name"].strip()}
            made = (await send("POST", self.path, body)).json()
            if values.get("role"):
                kind, _, identity = values["scope"].partition(":")
                rule = {
                    "subjectId": made.get("username") or made["clientId"],
                    "subjectType": "user" if self.label == "user" else "service-account",
                    "roleId": int(values["role"]),
                    "scopeType": kind,
                    "scopeId": identity or None,
                }
                await self.frame.attempt(lambda: send("POST", RULES, rule))
            return made

        names = {"email": "name", "username": "name"}
        sheet = Sheet(f"New {self.label}", f"Create {self.label}", make, names)
        hint = "an address of electronic mail, or any name" if self.label == "user" else ""
        sheet.text("name", "User name" if self.label == "user" else "Name", needed=True, hint=hint)
        if roles and scopes:
            sheet.choice("role", "Role", {"": "none yet", **roles}, "")
            sheet.choice("scope", "Scope of the role", scopes, next(iter(scopes)))
        made = await sheet.asked()
        if made is None:
            return
        if self.label == "user":
            text = "The first password, which has to be changed at the first login:"
            await shown_once(f"{made['username']} was created", text, made["tempPassword"])
        else:
            text = f"Client ID {made['clientId']}. Its secret is shown only once:"
            await shown_once(f"{made['name']} was created", text, made["clientSecret"])
        await self.frame.look(self.refresh)

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        send, path, name = self.frame.calls.send, f"{self.path}/{row['id']}", row["name"]
        if label in ("Enable", "Disable"):
            change = {"enabled": label == "Enable"}
            await self.frame.attempt(lambda: send("PATCH", path, change), f"{name}: {label.lower()}d.")
        elif label == "Log out everywhere":
            await self.frame.attempt(lambda: send("POST", f"{path}/logout"), f"{name} is logged out.")
        elif label == "Delete":
            text = "It can log in no more, and its keys end. Its workloads stay."
            if await sure(f"Delete {name}?", text, "Delete"):
                await self.frame.attempt(lambda: send("DELETE", path), f"{name} was deleted.")
        else:
            await self._renew(label, path, name)
        await self.frame.look(self.refresh)

    async def _renew(self, label: str, path: str, name: str) -> None:
        what = "password" if label == "New password" else "secret"
        if not await sure(f"{label} for {name}?", f"The present {what} ends at once.", label):
            return

        async def renew() -> None:
            made = (await self.frame.calls.send("POST", f"{path}/{what}")).json()
            told_once = made["password"] if what == "password" else made["clientSecret"]
            await shown_once(f"{label} of {name}", "It is shown only once:", told_once)

        await self.frame.attempt(renew)


async def roles_of(frame: Frame) -> dict[str, str]:
    """Role id -> name; {} if the reader may not read roles or write access rules."""
    if not (frame.may("roles:read") and frame.may("access-rules:write")):
        return {}
    told = await frame.calls.get("/api/v2/authorization/roles")
    return {str(it["id"]): it["name"] for it in told["roles"]}


async def scopes_of(frame: Frame) -> dict[str, str]:
    """The scopes in which the reader may write rules: `kind:id` -> name."""
    await frame.rights.learn(frame.calls, "access-rules:write")
    reach = frame.rights.where("access-rules:write")
    found = {"tenant:": "Everywhere"} if reach.covers() else {}
    for it in await frame.calls.all("/api/v1/org-unit/departments", "departments"):
        if reach.covers(it["id"]):
            found[f"department:{it['id']}"] = f"Department {it['name']}"
    for it in await frame.calls.all("/api/v1/org-unit/projects", "projects"):
        if reach.covers(it["parentId"], it["id"]):
            found[f"project:{it['id']}"] = f"Project {it['name']}"
    return found


@page("/users", "Users", "users:read")
async def users(frame: Frame) -> None:
    accounts = Accounts(frame, "user", USERS, "users.username")
    accounts.draw()
    await frame.live(accounts.refresh)


@page("/service-accounts", "Service accounts", "applications:read")
async def service_accounts(frame: Frame) -> None:
    accounts = Accounts(frame, "service account", PROGRAMS, "serviceAccounts.name")
    accounts.draw()
    await frame.live(accounts.refresh)


class Rules:
    def __init__(self, frame: Frame, scope: str) -> None:
        self.frame, self.scope = frame, scope

    async def draw(self) -> None:
        self.scopes = await scopes_of(self.frame) if self.frame.may("access-rules:write") else {}
        with heading("Access rules"):
            if self.scopes:
                button("+ New access rule", self._create, "primary")
        if self.scope:
            with tag("div").classes("bar"):
                words("p", f"Those of {self.scope}.")
                words("a", "Show all").props('href="/console/access-rules"')
        columns = (
            Column("name", "Subject"),
            Column("kind", "Type"),
            Column("role", "Role"),
            Column("place", "Scope"),
            Column("who", "Created by"),
            Column("created", "Creation time"),
        )
        act = self._act if self.scopes else None
        self.table = Table(columns, empty="No rules here.", file="access-rules", act=act)

    async def refresh(self) -> None:
        rules = (await self.frame.calls.get(RULES))["accessRules"]
        self.table.show([self._row(it) for it in rules if not self.scope or it["scopeName"] == self.scope])

    def _row(self, item: dict[str, Any]) -> dict[str, Any]:
        kind = item["scopeType"]
        key = f"{kind}:{item['scopeId']}" if kind in ("project", "department") else "tenant:"
        return {
            "id": item["id"],
            "name": item["subjectName"],
            "kind": KINDS.get(item["subjectType"], item["subjectType"]),
            "role": item["roleName"],
            "place": f"{kind.capitalize()} {item['scopeName']}" if item["scopeName"] else "Everywhere",
            "who": item["createdBy"],
            "created": clock(item["createdAt"]),
            "actions": "Delete" if key in self.scopes else "",
        }

    async def _create(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            kind, _, identity = values["scope"].partition(":")
            body = {
                "subjectId": values["subjectId"].strip(),
                "subjectType": values["subjectType"],
                "roleId": int(values["roleId"]),
                "scopeType": kind,
                "scopeId": identity or None,
            }
            return (await self.frame.calls.send("POST", RULES, body)).json()

        roles = await roles_of(self.frame)
        own = [key for key, name in self.scopes.items() if self.scope and name.endswith(f" {self.scope}")]
        sheet = Sheet("New access rule", "Create access rule", send, {"scopeId": "scope"})
        sheet.choice("subjectType", "Type", KINDS, "user")
        sheet.text("subjectId", "Subject", needed=True, hint="the name of a user, program, account or group")
        sheet.choice("roleId", "Role", roles, next(iter(roles), None))
        sheet.choice("scope", "Scope", self.scopes, own[0] if own else next(iter(self.scopes)))
        if await sheet.asked() is not None:
            told("The rule was created.")
            await self.frame.look(self.refresh)

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        text = f"{row['name']} is no longer {row['role']} there."
        if await sure(f"Delete the rule of {row['name']}?", text, label):
            path = f"{RULES}/{row['id']}"
            await self.frame.attempt(lambda: self.frame.calls.send("DELETE", path), "The rule was deleted.")
            await self.frame.look(self.refresh)


@page("/access-rules", "Access rules", "access-rules:read")
async def access_rules(frame: Frame, scope: str = "") -> None:
    rules = Rules(frame, scope)

    async def begin() -> None:
        await rules.draw()
        await rules.refresh()

    if await frame.look(begin):
        frame.follow(rules.refresh)


@page("/roles", "Roles", "roles:read")
async def roles(frame: Frame) -> None:
    """A grid with a row for each thing and a column for each role."""

    async def read() -> None:
        told = (await frame.calls.get("/api/v2/authorization/roles"))["roles"]
        by_role = [{it["resourceType"]: it["actions"] for it in role["permissions"]} for role in told]
        things = sorted({thing for granted in by_role for thing in granted})
        with card("What each role is for"), tag("dl").classes("facts"):
            for role in told:
                words("dt", role["name"])
                words("dd", role["description"])
        box = tag("div").classes("card scroll")
        box.props('tabindex=0 role=region aria-label="Rights of each role"')
        with box, tag("table").classes("numbers grid"):
            with tag("tr"):
                for title in ("Thing", *(role["name"] for role in told)):
                    words("th", title).props("scope=col")
            for thing in things:
                with tag("tr"):
                    words("th", thing).props("scope=row")
                    for granted in by_role:
                        words("td", ", ".join(granted.get(thing, ())) or "–")

    with heading("Roles"):
        pass
    await frame.look(read)
