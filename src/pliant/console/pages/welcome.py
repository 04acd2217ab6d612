"""The first steps on an empty server; each of them, or all, can be skipped."""

from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.forms import ROOM, name_problem, number_problem, tell_fields
from pliant.console.frame import Frame, button, card, heading, page, tag, told, words

STEPS = ("Machines", "A project", "People", "A first workload")


class Welcome:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.step = 0
        self.project: dict[str, Any] = {}

    def draw(self) -> None:
        with heading("Set up"):
            button("Skip all", lambda: self.frame.client.open("/workloads"))
        self.where = words("p", "").classes("soft").props("aria-live=polite")
        self.box = tag("div")

    async def show(self) -> None:
        self.where.text = f"Step {self.step + 1} of {len(STEPS)}: {STEPS[self.step]}"
        self.box.clear()
        with self.box, card(STEPS[self.step]):
            await (self._machines, self._project, self._people, self._workload)[self.step]()

    async def _next(self) -> None:
        self.step += 1
        await self.frame.look(self.show)

    def _buttons(self, label: str, act: Any) -> None:
        with tag("div").classes("bar"):
            if self.step:
                button("Back", self._back)
            tag("div").classes("space")
            if self.step < len(STEPS) - 1:
                button("Skip", self._next)
            button(label, act, "primary")

    async def _back(self) -> None:
        self.step -= 1
        await self.frame.look(self.show)

    async def _machines(self) -> None:
        nodes = await self.frame.calls.all("/api/v1/nodes", "nodes")
        cards = sum(len(it["gpus"]) for it in nodes)
        words("p", f"Pliant shares {cards} GPUs of {len(nodes)} nodes here:")
        with tag("ul"):
            for it in nodes[:20]:
                kind = " (simulated)" if it["simulated"] else ""
                words("li", f"{it['name']}: {len(it['gpus'])} GPUs{kind}, {it['status']}")
        self._buttons("Continue", self._next)

    async def _project(self) -> None:
        words("p", "A project is a team with a quota: GPUs that are its own whenever it needs them.")
        name = ui.input("Project name", value="team-a").props(f"outlined dense {ROOM}")
        quota = ui.number("GPU quota", value=1).props(f"outlined dense {ROOM} suffix=GPUs")

        async def make() -> None:
            name.error, quota.error = name_problem(name.value) or None, number_problem(quota.value) or None
            if name.error or quota.error:
                return
            resources = [{"nodePool": {"name": "default"}, "gpu": {"deserved": quota.value or 0}}]
            body = {"name": name.value.strip(), "resources": resources}
            try:
                path = "/api/v1/org-unit/projects"
                self.project = (await self.frame.calls.send("POST", path, body)).json()
            except Refusal as error:
                if not tell_fields(error, {"name": name, "deserved": quota}, {}):
                    self.frame.trouble(error)
                return
            self.frame.trouble(None)
            told(f"{name.value} was created.")
            await self._next()

        self._buttons("Create project", make)

    async def _people(self) -> None:
        words("p", "On this machine every account logs in with `pliant login`. Others get a user here.")
        with tag("p"):
            words("a", "Users").props('href="/console/users" target=_blank')
            words(
                "span",
                " opens beside this page. A role says what somebody may: AI practitioner starts workloads.",
            )
        self._buttons("Continue", self._next)

    async def _workload(self) -> None:
        project = self.project.get("name", "PROJECT")
        words("p", "On the next page you choose what runs and what it asks for. At the command line it is:")
        words("pre", f"pliant submit first -p {project} -g 1 -- sleep infinity").classes("log short").props(
            "tabindex=0 aria-label=Command"
        )
        self._buttons("+ New workload", lambda: self.frame.client.open("/new/trainings"))


@page("/welcome", "Set up", "projects:create", "overview")
async def welcome(frame: Frame) -> None:
    shown = Welcome(frame)
    shown.draw()
    await frame.look(shown.show)
