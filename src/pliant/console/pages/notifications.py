"""Notifications about jobs, and the mail server."""

from typing import Any

from pliant.console.forms import Sheet, sure
from pliant.console.frame import Frame, button, card, heading, page, tag, told, words
from pliant.console.tables import Column, Table
from pliant.console.texts import clock

PATH, SERVER = "/api/v1/notifications", "/api/v1/mail-server"
EVENTS = {
    "start": "It starts",
    "end": "It ends",
    "failure": "It fails",
    "preemption": "It loses GPUs",
    "idle": "Its GPUs do nothing",
}
SECURITY = {"starttls": "STARTTLS", "tls": "TLS", "none": "None"}
MAIL, FILE = "mail", "webhook"


class Notifications:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.server: dict[str, Any] | None = None
        self.facts: Any = None

    @property
    def administers(self) -> bool:
        """True if the reader may change the tenant's settings."""
        return self.frame.rights.where("settings:update").covers()

    async def draw(self) -> None:
        await self.frame.rights.learn(self.frame.calls, "settings:update")
        with heading("Notifications"):
            button("Send a test message", self._test)
            button("+ New notification", self._create, "primary")
        self.note = words("p", "").classes("note waits")
        columns = (
            Column("name", "Address"),
            Column("whose", "Jobs of"),
            Column("on", "When"),
            Column("pending", "Not sent yet", "number"),
            Column("created", "Creation time"),
        )
        empty = "No notifications yet. Add one: + New notification"
        self.table = Table(columns, empty=empty, file="notifications", act=self._remove)
        if self.administers:
            with card("Mail server"):
                self.box = tag("dl").classes("facts")
                with tag("div").classes("bar"):
                    button("Set the mail server", self._set_server)
                    self.gone = button("Remove it", self._remove_server, "danger")

    async def refresh(self) -> None:
        found = await self.frame.calls.get(PATH)
        self.note.visible = not found["mail"]
        cure = "Set it below." if self.administers else "Ask an administrator for `pliant notify server`."
        self.note.text = f"No mail server is set: mail waits for one, 2 days at most. {cure}"
        self.table.show(
            [
                {
                    "id": it["id"],
                    "name": it["address"],
                    "whose": it["user"] or "Everybody",
                    "on": ", ".join(EVENTS[word] for word in it["on"]),
                    "pending": it["pending"],
                    "created": clock(it["createdAt"]),
                    "actions": "Remove",
                }
                for it in found["notifications"]
            ]
        )
        if self.administers:
            self._show_server(found["mailServer"])

    def _show_server(self, server: dict[str, Any] | None) -> None:
        facts = [("Host", "none")]
        if server is not None:
            facts = [
                ("Host", f"{server['host']}:{server['port']}"),
                ("From", server["sender"]),
                ("Security", SECURITY[server["security"]]),
                ("Login", server["login"] or "none"),
            ]
        self.server, self.gone.visible = server, server is not None
        if facts != self.facts:
            self.facts = facts
            self.box.clear()
            with self.box:
                for label, value in facts:
                    words("dt", label)
                    words("dd", value)

    async def _create(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            body = {"kind": values.get("kind", MAIL), "address": values["address"], "on": values["on"]}
            body["everybody"] = values.get("whose") == "all"
            return (await self.frame.calls.send("POST", PATH, body)).json()

        sheet = Sheet("New notification", "Create notification", send)
        if self.administers:
            sheet.choice("kind", "By", {MAIL: "Mail", FILE: "Webhook"}, MAIL)
        sheet.text("address", "Address", needed=True)
        if self.administers:
            sheet.say("Of a webhook: the path of a file on the server's machine that holds its URL.")
            sheet.choice("whose", "Jobs of", {"": "Mine", "all": "Everybody"}, "")
        sheet.choice("on", "When", EVENTS, ["end", "failure"], several=True)
        if (made := await sheet.asked()) is not None:
            told(f"{made['address']} will be told.")
            await self.frame.look(self.refresh)

    async def _remove(self, label: str, row: dict[str, Any]) -> None:
        if await sure(f"Remove {row['name']}?", "It gets no more messages.", label):
            path = f"{PATH}/{row['id']}"
            done = "The notification was removed."
            await self.frame.attempt(lambda: self.frame.calls.send("DELETE", path), done)
            await self.frame.look(self.refresh)

    async def _test(self) -> None:
        async def ask() -> None:
            sent = (await self.frame.calls.send("POST", f"{PATH}/test", {})).json()["sent"]
            plural = "" if sent == 1 else "s"
            told(f"{sent} message{plural} will be sent. `Not sent yet` falls to 0 when it is.")

        await self.frame.attempt(ask)

    async def _set_server(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            body = {key: value for key, value in values.items() if value not in ("", None)}
            if "port" in body:
                body["port"] = int(body["port"])
            return await self.frame.calls.send("PUT", SERVER, body)

        now = self.server or {}
        sheet = Sheet("Mail server", "Save", send)
        sheet.text("host", "Host", now.get("host", ""), needed=True)
        sheet.number("port", "Port (optional)", now.get("port"), bounds=lambda: (1, 65535))
        sheet.text("sender", "From", now.get("sender", ""), needed=True)
        sheet.choice("security", "Security", SECURITY, now.get("security", "starttls"))
        sheet.text("login", "Login (optional)", now.get("login", ""))
        sheet.text("passwordFile", "File with its password (optional)", now.get("passwordFile", ""))
        sheet.say("The file is on the server's machine; the password is never sent here.")
        if await sheet.asked() is not None:
            told("The mail server was set.")
            await self.frame.look(self.refresh)

    async def _remove_server(self) -> None:
        if await sure(
            "Remove the mail server?", "Mail waits until there is one again, 2 days at most.", "Remove"
        ):
            await self.frame.attempt(
                lambda: self.frame.calls.send("DELETE", SERVER), "The mail server was removed."
            )
            await self.frame.look(self.refresh)


@page("/notifications", "Notifications", "self:read")
async def notifications(frame: Frame) -> None:
    shown = Notifications(frame)

    async def begin() -> None:
        await shown.draw()
        await shown.refresh()

    if await frame.look(begin):
        frame.follow(shown.refresh)
