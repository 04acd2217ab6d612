"""What a workload runs and asks for, typed in place."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from pliant.console.frame import tag, words

UNITS = {"%": "% (of device)", "MB": "MB", "GB": "GB"}


class Flexible:
    """Every field once; `changed` is called when one of them was left or chosen."""

    def __init__(self, changed: Callable[[], Awaitable[None]]) -> None:
        self._changed = changed
        self._fields: dict[str, Any] = {}
        self.box = tag("div").classes("stack")
        with self.box:
            with self._card("What it runs"):
                self._text("image", "Image URL")
                self._text("command", "Command (optional)")
                self._text("args", "Arguments (optional)")
                self._text("variables", "Variables, as NAME=value with commas (optional)")
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
                self._text("nodePools", "Node pools in order, with commas (optional)")
                self._text("nodeType", "Node type (optional)")
                self._number("backoffLimit", "Retries after a failure (optional)")
                self._number("maxRuntimeSeconds", "Longest run time in seconds (optional)")

    def spec(self) -> dict[str, Any]:
        """As the API takes it."""
        values = {key: field.value for key, field in self._fields.items()}
        texts = ("image", "command", "args", "workingDir", "priorityClass", "preemptibility", "nodeType")
        found = {key: values[key].strip() for key in texts if (values[key] or "").strip()}
        if pairs := [
            it.strip().partition("=") for it in (values["variables"] or "").split(",") if it.strip()
        ]:
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

    def _text(self, key: str, label: str) -> None:
        self._kept(key, ui.input(label)).on("blur", self._changed)

    def _number(self, key: str, label: str, value: float | None = None) -> None:
        self._kept(key, ui.number(label, value=value, min=0)).on("blur", self._changed)

    def _select(self, key: str, label: str, options: dict[str, str], value: str) -> None:
        field = ui.select(options, label=label, value=value, on_change=self._changed)
        self._kept(key, field).props("options-dense")

    def _kept(self, key: str, field: Any) -> Any:
        self._fields[key] = field.props("outlined dense")
        return field


ASKED = (
    "gpuDevicesRequest", "gpuRequestType", "gpuPortionRequest", "gpuPortionLimit", "gpuMemoryRequest",
    "gpuMemoryLimit", "cpuCoreRequest", "cpuMemoryRequest",
)  # fmt: skip
"""What the form of a compute resource sets."""


def compute_of(values: Mapping[str, Any]) -> dict[str, Any]:
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


def form_of(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form that compute_of() makes this of, as far as it has the fields; None if it has them not."""
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
    """ "1.5GB" as 1.5 and its unit; nothing as None and `otherwise`."""
    if said is None:
        return None, otherwise
    found = re.fullmatch(r"([\d.]+) *([A-Za-z]*)", str(said))
    return (float(found[1]), found[2]) if found else (None, "?")
