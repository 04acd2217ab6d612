"""Creates a workload in two steps: first its name and project, then what it runs and requests.

The second step has two forms: Original, with saved environments and compute resources, and Flexible, where
everything is typed.
"""

from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.flexible import NAMED, Flexible, asks, compute_of
from pliant.console.forms import ROOM, Sheet, Tiles, name_problem, number_problem
from pliant.console.frame import Frame, button, page, tag, words
from pliant.console.texts import counted_gpus

KINDS = {"trainings": "Training", "workspaces": "Workspace", "inferences": "Inference"}
STANDARD, DISTRIBUTED = "Standard", "Distributed"
ORIGINAL, FLEXIBLE = "Original", "Flexible"
FRAMEWORKS = {"PyTorch": "PyTorch", "MPI": "MPI", "TF": "TensorFlow", "XGBoost": "XGBoost", "JAX": "JAX"}

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
"""Built-in compute resources: name -> (line about it, spec)."""

COPY = "as before"
RUNS = ("image", "command", "args", "commandArgv", "argsArgv", "environmentVariables", "workingDir")
"""The spec fields that an environment sets."""


class Wizard:
    def __init__(self, frame: Frame, plural: str) -> None:
        self.frame, self.base = frame, plural
        self.kind = KINDS.get(plural, "Training")
        self.copied: dict[str, Any] = {}
        self.kept: dict[str, dict[str, Any]] = {"environment": {}, "compute": {}}

    @property
    def plural(self) -> str:
        """The name of its kind in paths."""
        return "distributed" if self.distributed else self.base

    @property
    def distributed(self) -> bool:
        return self.base == "distributed" or (
            self.base == "trainings" and self.architecture.value == DISTRIBUTED
        )

    async def load(self, copy: str) -> None:
        calls = self.frame.calls
        self.clusters = {it["uuid"]: it["name"] for it in await calls.get("/api/v1/clusters")}
        await self.frame.rights.learn(calls, "workloads:create", "assets:write")
        reach = self.frame.rights.where("workloads:create")
        found = await calls.all("/api/v1/org-unit/projects", "projects")
        self.parents = {it["id"]: it["parentId"] for it in found}
        self.projects = {it["id"]: it["name"] for it in found if reach.covers(it["parentId"], it["id"])}
        found = await calls.all("/api/v1/org-unit/departments", "departments")
        self.departments = {it["id"]: it["name"] for it in found}
        self.templates = await calls.all(f"/api/v1/workload-templates/{self.base}", "entries")
        if copy:
            self.copied = await calls.get(f"/api/v1/workloads/{self.base}/{copy}")

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
            if self.base == "trainings":
                label = "Workload architecture"
                self.architecture = ui.select([STANDARD, DISTRIBUTED], label=label, value=STANDARD)
                self.architecture.props("outlined dense options-dense")
            words("h3", "Template")
            self.template = Tiles("Template", self._nothing)
            kept = [
                (it["meta"]["id"], it["meta"]["name"], it["meta"]["description"]) for it in self.templates
            ]
            self.template.value = ""
            self.template.offer([("", "Start from scratch", "Choose everything here"), *kept])
            name = f"{self.copied['name']}-copy" if self.copied else ""
            self.name = ui.input(f"{self.kind} name", value=name).props(f"outlined dense {ROOM}")
            self.name.on("keydown.enter", self._continue)
            with tag("div").classes("bar"):
                button("Continue", self._continue, "primary")

    def _select(self, label: str, options: dict[str, str], value: str | None) -> ui.select:
        return ui.select(dict(options), label=label, value=value).props("outlined dense options-dense")

    async def _nothing(self) -> None:
        """Does nothing: the second step reads the chosen template."""

    async def _continue(self) -> None:
        self.name.error = None
        name = (self.name.value or "").strip()
        if wrong := name_problem(name):
            self.name.error = wrong
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
        with tag("div").classes("bar"):
            words("h2", title)
            tag("div").classes("space")
            self.form = ui.toggle([ORIGINAL, FLEXIBLE], value=ORIGINAL, on_change=self._switch)
            self.form.props('no-caps unelevated role=group aria-label="Form" toggle-text-color=on-brand')
        if self.distributed:
            self._draw_workers()
        self.flexible = Flexible(self._judge)
        self.original = tag("div").classes("stack")
        with self.original:
            self._draw_tiles()
        self._other_form()
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

    async def _switch(self) -> None:
        self._other_form()
        await self._judge()

    def _other_form(self) -> None:
        self.original.visible = self.form.value == ORIGINAL
        self.flexible.box.visible = self.form.value == FLEXIBLE

    def _draw_workers(self) -> None:
        with tag("section").classes("card").props('aria-label="Workers"'), tag("div").classes("fields two"):
            self.workers = ui.number("Workers", value=2, on_change=self._judge)
            self.workers.props(f"outlined dense {ROOM}")
            self.framework = ui.select(FRAMEWORKS, label="Framework", value="PyTorch")
            self.framework.props("outlined dense options-dense")

    def _draw_tiles(self) -> None:
        writes = self.frame.may("assets:write")
        with tag("section").classes("card").props('aria-label="Environment"'):
            with tag("div").classes("bar"):
                words("h2", "Environment")
                tag("div").classes("space")
                if writes:
                    button("+ New environment", self._new_environment)
            self.none = words("p", "No environment is kept yet. An environment says which image runs.")
            self.none.classes("soft")
            self.environment = Tiles("Environment", self._judge)
        with tag("section").classes("card").props('aria-label="Compute resource"'):
            with tag("div").classes("bar"):
                words("h2", "Compute resource")
                tag("div").classes("space")
                if writes:
                    button("+ New compute resource", self._new_compute)
            self.compute = Tiles("Compute resource", self._judge)

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
            if kind == "environment":
                self.none.visible = not options

    def _body(self) -> dict[str, Any]:
        """The submission by the current fields."""
        spec = dict(self.copied.get("spec") or {})
        assets: dict[str, str] = {}
        if self.distributed:
            spec |= {"numWorkers": int(self.workers.value or 1), "distributedFramework": self.framework.value}
        if self.form.value == FLEXIBLE:
            spec |= self.flexible.spec()
        elif self.environment.value != COPY:
            spec = {key: value for key, value in spec.items() if key not in RUNS}
            assets["environment"] = self.environment.value
        if self.form.value == FLEXIBLE:
            pass
        elif self.compute.value in SHIPPED:
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
        """Show what the scheduler would do, by a dry run."""
        self.verdict.clear()
        with self.verdict:
            if self._wrong():
                words("p", "A field above needs another value.").classes("soft")
                return
            if missing := self._missing():
                words("p", missing).classes("soft")
                return
            try:
                path = f"/api/v1/workloads/{self.plural}"
                answer = await self.frame.calls.send("POST", path, self._body(), query=[("dryRun", True)])
            except Refusal as error:
                self._tell(error)
                words("p", f"{error} ({error.status})").classes("note bad")
                return
            self._show(answer.json())

    def _missing(self) -> str:
        """What the reader still has to enter, as a sentence; "" if nothing."""
        if self.form.value == FLEXIBLE:
            return "Enter an image URL or a command." if self.flexible.blank else ""
        if self.environment.value and self.compute.value:
            return ""
        return "Choose an environment and a compute resource."

    def _wrong(self) -> bool:
        """True if a field is invalid; it then shows the error."""
        workers = ""
        if self.distributed:
            workers = number_problem(self.workers.value or 0, 1)
            self.workers.error = workers or None
        return bool((self.form.value == FLEXIBLE and self.flexible.wrong()) or workers)

    def _tell(self, error: Refusal) -> None:
        if self.form.value == FLEXIBLE:
            self.flexible.tell(error)

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
                    change = f"{it['gpuBefore']:g} → {counted_gpus(it['gpuAfter'])}"
                    words("li", f"{it['name']} ({it['project']}): {it['verb']}, {change}")
        for notice in found["notices"]:
            words("p", notice).classes("soft")

    async def _create(self) -> None:
        if self._wrong() or self._missing():
            await self._judge()
            if self.form.value == FLEXIBLE and self.flexible.blank:
                self.flexible.ask()
            return
        path = f"/api/v1/workloads/{self.plural}"
        try:
            await self.frame.calls.send("POST", path, self._body())
        except Refusal as error:
            self._tell(error)
            self.frame.trouble(error)
            return
        ui.navigate.to("/workloads")

    # -- saved assets -------------------------------------------------------------------------------

    def _scopes(self) -> dict[str, str]:
        """The scopes in which the reader may save assets: `kind:id` -> name."""
        reach, found = self.frame.rights.where("assets:write"), dict[str, str]()
        if reach.covers():
            found["tenant:"] = "Everybody"
        for key, name in self.departments.items():
            if reach.covers(key):
                found[f"department:{key}"] = f"Department {name}"
        for key, name in self.projects.items():
            if reach.covers(self.parents[key], key):
                found[f"project:{key}"] = f"Project {name}"
        return found

    def _sheet(self, title: str, label: str, kind: str, spec_of: Any) -> Sheet:
        async def send(values: dict[str, Any]) -> Any:
            scope, _, identity = values["scope"].partition(":")
            meta = {"name": values["name"], "scope": scope, "scopeId": identity or None}
            body = {"meta": meta, "spec": spec_of(values)}
            return (await self.frame.calls.send("POST", f"/api/v1/asset/{kind}", body)).json()

        sheet = Sheet(title, label, send, NAMED)
        sheet.choice("cluster", "Cluster", self.clusters, self.cluster.value)
        sheet.choice("scope", "Scope", self._scopes(), f"project:{self.project.value}")
        return sheet

    async def _new_environment(self) -> None:
        def spec_of(values: dict[str, Any]) -> dict[str, Any]:
            return {key: values[key] for key in ("image", "command", "args") if values[key]}

        sheet = self._sheet("New environment", "Create environment", "environment", spec_of)
        sheet.name("name", "Environment name")
        sheet.text("image", "Image URL", needed=True)
        sheet.text("command", "Command (optional)")
        sheet.text("args", "Arguments (optional)")
        await self._chosen(await sheet.asked(), self.environment)

    async def _new_compute(self) -> None:
        sheet = self._sheet("New compute resource", "Create compute resource", "compute", compute_of)
        sheet.name("name", "Compute resource name")
        asks(sheet)
        await self._chosen(await sheet.asked(), self.compute)

    async def _chosen(self, made: Any, tiles: Tiles) -> None:
        """Choose the asset that was just created."""
        if made is not None:
            await self._offer()
            await tiles.choose(made["meta"]["id"])


def about(spec: dict[str, Any]) -> str:
    """One line about a compute resource."""
    devices = spec.get("gpuDevicesRequest") or 0
    if memory := spec.get("gpuMemoryRequest"):
        return f"{memory} of GPU memory"
    if portion := spec.get("gpuPortionRequest"):
        return counted_gpus(portion)
    return counted_gpus(devices) if devices else "No GPU"


@page("/new/{plural}", "New workload", "workloads:create", "workloads")
async def new(frame: Frame, plural: str, copy: str = "") -> None:
    if plural not in (*KINDS, "distributed"):
        words("h1", "There is no such kind of workload")
        return
    wizard = Wizard(frame, plural)
    if not await frame.look(lambda: wizard.load(copy)):
        return
    if wizard.projects:
        wizard.draw()
    else:
        words("h1", "New workload")
        words("p", "There is no project yet in which you may start workloads.").classes("empty")
