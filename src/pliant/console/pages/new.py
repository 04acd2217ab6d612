"""A new workload in two steps: what it is called and whose it is; what it runs and what it asks for."""

from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.forms import Sheet, Tiles
from pliant.console.frame import Frame, button, tag, words
from pliant.console.texts import gpus

KINDS = {"trainings": "Training", "workspaces": "Workspace"}

CPU = {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}
SHIPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "half-gpu": ("0.5 GPU", {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}),
    "one-gpu": ("1 GPU", {"gpuDevicesRequest": 1}),
    "two-gpus": ("2 GPUs", {"gpuDevicesRequest": 2}),
    "small-fraction": (
        "0.1 GPU",
        {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.1},
    ),
    "cpu-only": ("No GPU", {"gpuDevicesRequest": 0}),
}
"""Compute resources that are there without being made: name -> (line about it, what it asks for)."""

UNITS = {"%": "% (of device)", "MB": "MB", "GB": "GB"}
COPY = "as before"
RUNS = ("image", "command", "args", "commandArgv", "argsArgv", "environmentVariables", "workingDir")
"""Fields of a spec that an environment decides."""


class Wizard:
    def __init__(self, frame: Frame, plural: str) -> None:
        self.frame, self.plural, self.kind = frame, plural, KINDS[plural]
        self.copied: dict[str, Any] = {}
        self.kept: dict[str, dict[str, Any]] = {"environment": {}, "compute": {}}

    async def load(self, copy: str) -> None:
        calls = self.frame.calls
        self.clusters = {it["uuid"]: it["name"] for it in await calls.get("/api/v1/clusters")}
        found = await calls.all("/api/v1/org-unit/projects", "projects")
        self.projects = {it["id"]: it["name"] for it in found}
        found = await calls.all("/api/v1/org-unit/departments", "departments")
        self.departments = {it["id"]: it["name"] for it in found}
        self.templates = await calls.all(f"/api/v1/workload-templates/{self.plural}", "entries")
        if copy:
            self.copied = await calls.get(f"/api/v1/workloads/{self.plural}/{copy}")

    # -- the first step -----------------------------------------------------------------------------

    def draw(self) -> None:
        words("h1", f"New {self.kind.lower()}")
        self.first = tag("section").classes("card").props('aria-labelledby="first"')
        self.second = tag("div").style("display: flex; flex-direction: column; gap: 16px")
        self.second.visible = False
        own = [key for key, name in self.projects.items() if name != "default"]
        chosen = self.copied.get("projectId") or next(iter(own or self.projects), None)
        with (
            self.first,
            tag("div").style("display: flex; flex-direction: column; gap: 10px; max-width: 560px"),
        ):
            words("h2", "Where and under which name").props("id=first")
            self.cluster = self._select("Cluster", self.clusters, next(iter(self.clusters)))
            self.project = self._select("Project", self.projects, chosen)
            words("h3", "Template")
            self.template = Tiles("Template", self._nothing)
            kept = [
                (it["meta"]["id"], it["meta"]["name"], it["meta"]["description"]) for it in self.templates
            ]
            self.template.value = ""
            self.template.offer([("", "Start from scratch", "Choose everything here"), *kept])
            name = f"{self.copied['name']}-copy" if self.copied else ""
            self.name = ui.input(f"{self.kind} name", value=name).props("outlined dense")
            with tag("div").classes("bar"):
                button("Continue", self._continue, "primary")

    def _select(self, label: str, options: dict[str, str], value: str | None) -> ui.select:
        return ui.select(dict(options), label=label, value=value).props("outlined dense options-dense")

    async def _nothing(self) -> None:
        """A template is looked at when the second step is drawn."""

    async def _continue(self) -> None:
        self.name.error = None
        name = (self.name.value or "").strip()
        if not name:
            self.name.error = "Enter a name."
            return
        query = [("filterBy", f"name=={name}"), ("filterBy", f"projectId=={self.project.value}")]
        try:
            taken = (await self.frame.calls.get("/api/v1/workloads/count", query))["count"]
        except Refusal as error:
            self.frame.trouble(error)
            return
        if taken:
            self.name.error = (
                f"{name} exists in project {self.projects[self.project.value]}: enter another name."
            )
            return
        self.first.visible = False
        self.second.visible = True
        with self.second:
            await self._draw_second(name)

    # -- the second step ----------------------------------------------------------------------------

    async def _draw_second(self, name: str) -> None:
        title = f"{name} in {self.projects[self.project.value]}"
        words("h2", title)
        with tag("section").classes("card").props('aria-label="Environment"'):
            with tag("div").classes("bar"):
                words("h2", "Environment")
                tag("div").classes("space")
                button("+ New environment", self._new_environment)
            self.environment = Tiles("Environment", self._judge)
        with tag("section").classes("card").props('aria-label="Compute resource"'):
            with tag("div").classes("bar"):
                words("h2", "Compute resource")
                tag("div").classes("space")
                button("+ New compute resource", self._new_compute)
            self.compute = Tiles("Compute resource", self._judge)
        with tag("section").classes("card").props('aria-labelledby="verdict"'):
            words("h2", "What the scheduler will do").props("id=verdict")
            self.verdict = tag("div").props("aria-live=polite")
        with tag("div").classes("bar"):
            button("Back", self._back)
            button(f"Create {self.kind.lower()}", self._create, "primary")
        if self.copied or self.template.value:
            self.environment.value = self.compute.value = COPY
        await self._offer()
        await self._judge()

    def _back(self) -> None:
        self.second.clear()
        self.second.visible = False
        self.first.visible = True

    async def _offer(self) -> None:
        query = [("complyToProject", self.project.value)]
        for kind, tiles in (("environment", self.environment), ("compute", self.compute)):
            found = await self.frame.calls.all(f"/api/v1/asset/{kind}", "entries", query)
            self.kept[kind] = {it["meta"]["id"]: it for it in found}
            options = [
                (key, it["meta"]["name"], it["spec"].get("image") or about(it["spec"]))
                for key, it in self.kept[kind].items()
            ]
            if kind == "compute":
                names = {name for _, name, _ in options}
                options += [(key, key, line) for key, (line, _) in SHIPPED.items() if key not in names]
            if self.copied or self.template.value:
                before = self.copied["name"] if self.copied else "the template"
                options.insert(0, (COPY, f"As in {before}", ""))
            tiles.offer(options)

    def _body(self) -> dict[str, Any]:
        """The submission as it stands now."""
        spec = dict(self.copied.get("spec") or {})
        assets: dict[str, str] = {}
        if self.environment.value != COPY:
            spec = {key: value for key, value in spec.items() if key not in RUNS}
            assets["environment"] = self.environment.value
        if self.compute.value in SHIPPED:
            spec["compute"] = {**CPU, **SHIPPED[self.compute.value][1]}
        elif self.compute.value != COPY:
            spec.pop("compute", None)
            assets["compute"] = self.compute.value
        body = {
            "name": (self.name.value or "").strip(),
            "projectId": self.project.value,
            "clusterId": self.cluster.value,
            "spec": spec,
            "assets": assets,
        }
        return {**body, "templateId": self.template.value} if self.template.value else body

    async def _judge(self) -> None:
        """Asks the scheduler, and shows what it would do."""
        self.verdict.clear()
        with self.verdict:
            if not (self.environment.value and self.compute.value):
                words("p", "Choose an environment and a compute resource.").classes("soft")
                return
            try:
                path = f"/api/v1/workloads/{self.plural}"
                answer = await self.frame.calls.send("POST", path, self._body(), query=[("dryRun", True)])
            except Refusal as error:
                words("p", str(error)).classes("note bad")
                return
            self._show(answer.json())

    def _show(self, found: dict[str, Any]) -> None:
        said = found["reason"]["message"] if found["reason"] else ""
        nodes = sorted({it["node"] for it in found["placements"]})
        if found["verdict"] == "starts":
            words("p", f"It starts now, on {', '.join(nodes)}. {said}".strip()).classes("note good")
        elif found["verdict"] == "never":
            words("p", f"It can never start here. {said}").classes("note bad")
        else:
            words("p", f"It waits. {said}").classes("note waits")
        if found["disrupted"]:
            words("p", "For it, the scheduler takes from others:")
            with tag("ul"):
                for it in found["disrupted"]:
                    before, after = gpus(it["gpuBefore"]), gpus(it["gpuAfter"])
                    words("li", f"{it['name']} ({it['project']}): {it['verb']}, {before} → {after} GPU")
        for notice in found["notices"]:
            words("p", notice).classes("soft")

    async def _create(self) -> None:
        if not (self.environment.value and self.compute.value):
            await self._judge()
            return
        path = f"/api/v1/workloads/{self.plural}"
        if await self.frame.attempt(lambda: self.frame.calls.send("POST", path, self._body())):
            ui.navigate.to("/workloads")

    # -- what is kept -------------------------------------------------------------------------------

    def _scopes(self) -> dict[str, str]:
        found = {"tenant:": "Everybody"}
        found |= {f"department:{key}": f"Department {name}" for key, name in self.departments.items()}
        return found | {f"project:{key}": f"Project {name}" for key, name in self.projects.items()}

    def _sheet(self, title: str, label: str, kind: str, spec_of: Any) -> Sheet:
        async def send(values: dict[str, Any]) -> Any:
            scope, _, identity = values["scope"].partition(":")
            meta = {"name": values["name"], "scope": scope, "scopeId": identity or None}
            body = {"meta": meta, "spec": spec_of(values)}
            return (await self.frame.calls.send("POST", f"/api/v1/asset/{kind}", body)).json()

        sheet = Sheet(title, label, send)
        sheet.choice("cluster", "Cluster", self.clusters, self.cluster.value)
        sheet.choice("scope", "Scope", self._scopes(), f"project:{self.project.value}")
        return sheet

    async def _new_environment(self) -> None:
        def spec_of(values: dict[str, Any]) -> dict[str, Any]:
            return {key: values[key] for key in ("image", "command", "args") if values[key]}

        sheet = self._sheet("New environment", "Create environment", "environment", spec_of)
        sheet.text("name", "Environment name")
        sheet.text("image", "Image URL")
        sheet.text("command", "Command (optional)")
        sheet.text("args", "Arguments (optional)")
        await self._chosen(await sheet.asked(), self.environment)

    async def _new_compute(self) -> None:
        sheet = self._sheet("New compute resource", "Create compute resource", "compute", compute_of)
        sheet.text("name", "Compute resource name")
        sheet.number("devices", "GPU devices per pod", 1)
        sheet.choice("unit", "GPU memory per device", UNITS, "%")
        sheet.number("request", "Request", 100)
        sheet.number("limit", "Limit (optional)")
        sheet.number("cpu", "CPU compute per pod", 0.1, "cores")
        sheet.number("memory", "CPU memory per pod", 100, "MB")
        await self._chosen(await sheet.asked(), self.compute)

    async def _chosen(self, made: Any, tiles: Tiles) -> None:
        """What was made is chosen at once."""
        if made is not None:
            await self._offer()
            await tiles.choose(made["meta"]["id"])


def compute_of(values: dict[str, Any]) -> dict[str, Any]:
    """What a compute resource asks for, from its form."""
    spec: dict[str, Any] = {"gpuDevicesRequest": values["devices"] or 0}
    unit, request, limit = values["unit"], values["request"], values["limit"]
    if unit == "%" and request and (request != 100 or limit):
        spec |= {"gpuRequestType": "portion", "gpuPortionRequest": request / 100}
        spec |= {"gpuPortionLimit": limit / 100} if limit else {}
    elif unit != "%" and request:
        spec |= {"gpuRequestType": "memory", "gpuMemoryRequest": f"{request:g}{unit}"}
        spec |= {"gpuMemoryLimit": f"{limit:g}{unit}"} if limit else {}
    spec |= {"cpuCoreRequest": values["cpu"]} if values["cpu"] else {}
    return spec | ({"cpuMemoryRequest": f"{values['memory']:g}M"} if values["memory"] else {})


def about(spec: dict[str, Any]) -> str:
    """One line about a compute resource."""
    devices = spec.get("gpuDevicesRequest") or 0
    if memory := spec.get("gpuMemoryRequest"):
        return f"{memory} of GPU memory"
    if portion := spec.get("gpuPortionRequest"):
        return f"{portion:g} GPU"
    return f"{devices:g} GPU" if devices else "No GPU"


@ui.page("/new/{plural}")
async def new(plural: str, copy: str = "") -> None:
    frame = Frame("New workload")
    with frame.shown("workloads"):
        if plural not in KINDS:
            words("h1", "There is no such kind of workload")
            return
        wizard = Wizard(frame, plural)
        if await frame.look(lambda: wizard.load(copy)):
            wizard.draw()
