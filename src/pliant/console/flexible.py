"""The form Flexible: what a workload runs and requests, typed in place."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.forms import ROOM, Bounds, Sheet, number_problem, tell_fields
from pliant.console.frame import tag, words

UNITS = {"%": "% (of device)", "MB": "MB", "GB": "GB"}

NAMED = {
    "gpuDevicesRequest": "devices",
    "gpuPortionRequest": "request",
    "gpuMemoryRequest": "request",
    "gpuPortionLimit": "limit",
    "gpuMemoryLimit": "limit",
    "cpuCoreRequest": "cpu",
    "cpuMemoryRequest": "memory",
    "environmentVariables": "variables",
    "scopeId": "scope",
}
"""The API's name of a field -> its key in the forms of what a workload runs and requests."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


class Flexible:
    """The form with all its fields. Calls `changed` when a field loses the focus or a choice is made."""

    def __init__(self, changed: Callable[[], Awaitable[None]]) -> None:
        self._changed = changed
        self._fields: dict[str, Any] = {}
        self._numbers: set[str] = set()
        self.box = tag("div").classes("stack")
        with self.box:
            with self._card("What it runs"):
                self._text("image", "Image URL")
                self._text("command", "Command (optional)")
                self._text("args", "Arguments (optional)")
                self._text("variables", "Variables (optional)", "NAME=value, with commas between them")
                self._text("workingDir", "Working directory (optional)")
            with self._card("What it asks for"):
                self._number("devices", "GPU devices per pod", 1)
                self._select("unit", "GPU memory per device", UNITS, "%")
                self._number("request", "Request", 100)
                self._number("limit", "Limit (optional)")
                self._number("cpu", "CPU compute per pod", 0.1)
                self._number("memory", "CPU memory per pod (MB)", 100)
            with self._card("How it runs"):
                names = {"": "as its kind", "low": "low", "medium": "medium", "high": "high"}
                self._select("priorityClass", "Priority class", names, "")
                kinds = {"": "as its priority", "preemptible": "preemptible"}
                kinds |= {"non-preemptible": "non-preemptible"}
                self._select("preemptibility", "Preemptible", kinds, "")
                self._text("nodePools", "Node pools (optional)", "in the order to try, with commas")
                self._text("nodeType", "Node type (optional)")
                self._number("backoffLimit", "Retries after a failure (optional)")
                self._number("maxRuntimeSeconds", "Longest run time in seconds (optional)")

    @property
    def blank(self) -> bool:
        """True while neither an image nor a command is entered."""
        return not any((self._fields[key].value or "").strip() for key in ("image", "command"))

    def wrong(self) -> bool:
        """True if a field is invalid; it then shows the error."""
        for key, field in self._fields.items():
            field.error = self._problem(key, field.value) or None
        return any(field.error for field in self._fields.values())

    def _problem(self, key: str, value: Any) -> str:
        if key in self._numbers:
            unit, request = self._fields["unit"].value, self._fields["request"].value
            return number_problem(value, *bounds_of(key, unit, request))
        if key == "variables" and not all(map(_VARIABLE.fullmatch, _parts(value))):
            return "Write each as NAME=value; a name has letters, digits and _."
        return ""

    def ask(self) -> None:
        """Shows at the field of the image that an image or a command is needed."""
        self._fields["image"].error = "Enter an image URL or a command."

    def tell(self, error: Refusal) -> bool:
        """Shows the server's errors at their fields. True if all of them could be shown there."""
        return tell_fields(error, self._fields, NAMED)

    def spec(self) -> dict[str, Any]:
        """The spec in the API's form."""
        values = {key: field.value for key, field in self._fields.items()}
        texts = ("image", "command", "args", "workingDir", "priorityClass", "preemptibility", "nodeType")
        found = {key: values[key].strip() for key in texts if (values[key] or "").strip()}
        if pairs := [it.partition("=") for it in _parts(values["variables"])]:
            found["environmentVariables"] = [{"name": name, "value": value} for name, _, value in pairs]
        if pools := (values["nodePools"] or "").replace(",", " ").split():
            found["nodePools"] = pools
        for key in ("backoffLimit", "maxRuntimeSeconds"):
            if values[key] is not None:
                found[key] = int(values[key])
        return {**found, "compute": compute_of(values)}

    def _card(self, title: str) -> ui.element:
        with tag("section").classes("card") as made:
            made.props["aria-label"] = title
            words("h2", title)
            return tag("div").classes("fields two")

    def _text(self, key: str, label: str, hint: str = "") -> None:
        field = self._kept(key, ui.input(label)).on("blur", self._changed)
        if hint:
            field.props["hint"] = hint

    def _number(self, key: str, label: str, value: float | None = None) -> None:
        self._numbers.add(key)
        self._kept(key, ui.number(label, value=value)).on("blur", self._changed)

    def _select(self, key: str, label: str, options: dict[str, str], value: str) -> None:
        field = ui.select(options, label=label, value=value, on_change=self._changed)
        self._kept(key, field).props("options-dense")

    def _kept(self, key: str, field: Any) -> Any:
        self._fields[key] = field.props(f"outlined dense {ROOM}")
        return field


def bounds_of(key: str, unit: str, request: float | None) -> Bounds:
    """The bounds of a number field in a form of what is requested."""
    most = 100 if unit == "%" and key in ("request", "limit") else None
    return (request if key == "limit" else 0), most


NEW = {"devices": 1, "unit": "%", "request": 100, "limit": None, "cpu": 0.1, "memory": 100}
"""The initial values of a new compute resource's form."""


def asks(sheet: Sheet, now: Mapping[str, Any] = NEW) -> None:
    """Add the fields of a compute resource to the sheet, with the values `now`."""

    def within(key: str) -> Callable[[], Bounds]:
        return lambda: bounds_of(key, sheet.value("unit"), sheet.value("request"))

    sheet.number("devices", "GPU devices per pod", now["devices"])
    sheet.choice("unit", "GPU memory per device", UNITS, now["unit"])
    sheet.number("request", "Request", now["request"], bounds=within("request"))
    sheet.number("limit", "Limit (optional)", now["limit"], bounds=within("limit"))
    sheet.number("cpu", "CPU compute per pod", now["cpu"], "cores")
    sheet.number("memory", "CPU memory per pod", now["memory"], "MB")


def _parts(text: str | None) -> list[str]:
    """The non-empty parts between commas."""
    return [it.strip() for it in (text or "").split(",") if it.strip()]


ASKED = (
    "gpuDevicesRequest", "gpuRequestType", "gpuPortionRequest", "gpuPortionLimit", "gpuMemoryRequest",
    "gpuMemoryLimit", "cpuCoreRequest", "cpuMemoryRequest",
)  # fmt: skip
"""The spec fields that the form of a compute resource sets."""


def compute_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a compute resource, from the values of its form."""
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


def form_of(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The inverse of compute_of(), for the fields that the form has; None if the form lacks a unit."""
    unit, request, limit = "%", 100.0, None
    if spec.get("gpuRequestType") == "memory":
        request, unit = _amount(spec.get("gpuMemoryRequest"), "MB")
        limit, also = _amount(spec.get("gpuMemoryLimit"), unit)
        if unit not in UNITS or also != unit:
            return None
    elif "gpuPortionRequest" in spec:
        request = round(100 * spec["gpuPortionRequest"], 3)
        limit = round(100 * spec["gpuPortionLimit"], 3) if spec.get("gpuPortionLimit") else None
    memory, scale = _amount(spec.get("cpuMemoryRequest"), "M")
    if scale not in ("M", "MB"):
        return None
    form = {"devices": spec.get("gpuDevicesRequest") or 0, "unit": unit, "request": request, "limit": limit}
    return form | {"cpu": spec.get("cpuCoreRequest"), "memory": memory}


def _amount(said: Any, otherwise: str) -> tuple[Any, str]:
    """(number, unit) of a text like "1.5GB"; (None, `otherwise`) of None; (None, "?") of other texts."""
    if said is None:
        return None, otherwise
    found = re.fullmatch(r"([\d.]+) *([A-Za-z]*)", str(said))
    return (float(found[1]), found[2]) if found else (None, "?")
