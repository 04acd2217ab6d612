"""The server's settings, and the reader's own: keys, password, rules."""

from typing import Any

from pliant.console.forms import Sheet, shown_once, sure
from pliant.console.frame import Frame, button, card, heading, page, tag, told, words
from pliant.console.tables import Column, Table
from pliant.console.texts import clock

KEYS = "/api/v1/access-keys"
BOUNDS = {"": "All that I may", "read": "Reading only", "submit": "Reading and starting workloads"}


class General:
    path = "/api/v1/scheduling-settings"

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def draw(self) -> None:
        with heading("General settings"):
            pass
        self.faults = tag("div")
        self.faults.visible = False
        columns = (
            Column("name", "Setting"),
            Column("value", "Value"),
            Column("usual", "Default"),
            Column("about", "What it does"),
        )
        act = self._edit if self.frame.may("settings:update") else None
        self.table = Table(columns, empty="No settings.", file="settings", act=act)
        with card("The server"):
            self.server = tag("dl").classes("facts")
            self.doctor = tag("ul")

    async def refresh(self) -> None:
        calls = self.frame.calls
        told = await calls.get(self.path)
        self.faults.visible = bool(told["faults"])
        self.faults.clear()
        with self.faults:
            for fault in told["faults"]:
                words("p", fault).classes("note waits")
        rows = [
            {
                "id": it["name"],
                "name": it["name"],
                "value": it["value"],
                "usual": it["default"],
                "about": it["about"],
                "actions": "Edit" if it["isDefault"] else "Edit,Back to the default",
            }
            for it in told["settings"]
        ]
        self.table.show(rows)

    async def read_server(self) -> None:
        """Show the server's facts once: they change only with a restart."""
        it = await self.frame.calls.get("/api/v1/server")
        facts = [("Version", it["version"]), ("Started", clock(it["started"])), ("Role", it["role"])]
        with self.server:
            for label, value in [*facts, ("Second server", it["standby"] or "none")]:
                words("dt", label)
                words("dd", value)
        with self.doctor:
            for one in (await self.frame.calls.get("/api/v1/server/doctor"))["findings"]:
                words("li", f"{'Yes' if one['holds'] else 'No'}: {one['text']}")

    async def _edit(self, label: str, row: dict[str, Any]) -> None:
        async def send(values: dict[str, Any]) -> Any:
            return await self.frame.calls.send("PATCH", self.path, {row["name"]: values["value"]})

        if label == "Edit":
            sheet = Sheet(f"Setting {row['name']}", "Save", send, {row["name"]: "value"})
            sheet.say(f"{row['about'].capitalize()}. Default: {row['usual']}.")
            sheet.text("value", "Value", row["value"], needed=True)
            if await sheet.asked() is not None:
                told(f"{row['name']} was changed.")
        else:
            await self.frame.attempt(lambda: send({"value": None}), f"{row['name']} was reset.")
        await self.frame.look(self.refresh)


@page("/general-settings", "General settings", "settings:read")
async def general_settings(frame: Frame) -> None:
    general = General(frame)
    general.draw()
    await frame.look(general.read_server)
    await frame.live(general.refresh)


class Own:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    async def draw(self) -> None:
        calls = self.frame.calls
        who = await calls.get("/api/v1/whoami")
        rules = (await calls.get("/api/v1/authorization/me/access-rules"))["accessRules"]
        with heading("Your settings"):
            if who["subject"].startswith("user:"):  # others have no password
                button("Change password", self._password)
            button("+ New access key", self._create, "primary")
        with card("You"), tag("dl").classes("facts"):
            words("dt", "Name")
            words("dd", who["user"])
            if who["account"]:
                words("dt", "Account of the server")
                words("dd", who["account"])
            words("dt", "Roles")
            roles = [f"{it['role']} ({it['scopeType']})" for it in who["roles"]]
            words("dd", ", ".join(roles) or "none: an administrator gives one")
            for it in rules:
                words("dt", "Rule")
                words("dd", f"{it['roleName']}: {it['scopeName'] or it['scopeType']}")
        words("h2", "Access keys")
        columns = (
            Column("name", "Access key"),
            Column("client", "Client ID"),
            Column("only", "Good for"),
            Column("login", "Last login"),
            Column("ends", "Ends"),
            Column("created", "Creation time"),
        )
        empty = "No keys yet. Programs log in with one: + New access key"
        self.table = Table(columns, empty=empty, file="access-keys", act=self._act)

    async def refresh(self) -> None:
        found = (await self.frame.calls.get(KEYS))["accessKeys"]
        self.table.show(
            [
                {
                    "id": it["id"],
                    "name": it["name"],
                    "client": it["clientId"],
                    "only": BOUNDS.get(it["only"], it["only"]),
                    "login": clock(it["lastLogin"]),
                    "ends": clock(it["expiresAt"]) or "never",
                    "created": clock(it["createdAt"]),
                    "actions": "Delete",
                }
                for it in found
            ]
        )

    async def _create(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            body = {"name": values["name"].strip()}
            body |= {"only": values["only"]} if values["only"] else {}
            body |= {"days": int(values["days"])} if values["days"] else {}
            return (await self.frame.calls.send("POST", KEYS, body)).json()

        sheet = Sheet("New access key", "Create access key", send)
        sheet.text("name", "Name", needed=True)
        sheet.choice("only", "Good for", BOUNDS, "")
        sheet.number("days", "Ends after (optional)", None, "days", bounds=lambda: (1, 3650))
        if (made := await sheet.asked()) is not None:
            text = "Give it to `pliant login` or as a token. It is shown only once:"
            await shown_once(f"{made['name']} was created", text, made.get("token") or made["clientSecret"])
            await self.frame.look(self.refresh)

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        if await sure(f"Delete {row['name']}?", "Programs that use it can log in no more.", label):
            path = f"{KEYS}/{row['id']}"
            await self.frame.attempt(lambda: self.frame.calls.send("DELETE", path), "The key was deleted.")
            await self.frame.look(self.refresh)

    async def _password(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            return await self.frame.calls.send("POST", "/api/v1/me/password", values)

        sheet = Sheet("Change your password", "Change password", send)
        sheet.secret("currentPassword", "Present password")
        sheet.secret("newPassword", "New password")
        if await sheet.asked() is not None:
            told("Your password was changed.")


@page("/settings", "Your settings", "", "settings")
async def own_settings(frame: Frame) -> None:
    own = Own(frame)

    async def begin() -> None:
        await own.draw()
        await own.refresh()

    if await frame.look(begin):
        frame.follow(own.refresh)
