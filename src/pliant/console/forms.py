"""Parts of forms: tiles to choose from, and a dialog that shows errors at their fields."""

import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.frame import button, tag, words

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""The form of a name that becomes part of an address, such as a project's or a workload's."""

ROOM = "bottom-slots"
"""A field that reserves the space for its error, so that an error moves no button."""


Bounds = tuple[float | None, float | None]
"""(minimum, maximum) of a number. None: 0 as minimum, no maximum."""


class Tiles:
    """A choice of one option among tiles, each with a name and a line about it."""

    def __init__(self, label: str, chosen: Callable[[], Awaitable[None]]) -> None:
        self.value = ""
        self._chosen = chosen
        self._group = tag("div").classes("tiles").props(f'role=radiogroup aria-label="{label}"')
        self._tiles: dict[str, ui.element] = {}

    def offer(self, options: Sequence[tuple[str, str, str]]) -> None:
        """Show these options, each as (key, name, line about it)."""
        self._group.clear()
        self._tiles = {}
        with self._group:
            for key, name, about in options:
                tile = tag("button").classes("tile").props("type=button role=radio aria-checked=false")
                with tile:
                    words("strong", name)
                    words("span", about).classes("soft")
                tile.on("click", lambda key=key: self.choose(key))
                self._tiles[key] = tile
        self._mark()

    async def choose(self, key: str) -> None:
        self.value = key
        self._mark()
        await self._chosen()

    def _mark(self) -> None:
        for key, tile in self._tiles.items():
            tile.props(f"aria-checked={str(key == self.value).lower()}")


class Sheet:
    """A dialog with fields. `send` gets their values; the dialog shows the errors of a Refusal."""

    def __init__(
        self,
        title: str,
        label: str,
        send: Callable[[dict[str, Any]], Awaitable[Any]],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`names`: the API's name of a field -> its key here, where they differ."""
        self._send, self._fields, self._names = send, dict[str, Any](), names
        self._checks: dict[str, Callable[[Any], str]] = {}
        self._refused: list[tuple[str, Any]] = []  # keys and values that the server refused
        self.dialog = ui.dialog().props('aria-labelledby="sheet" persistent')
        with self.dialog, tag("div").classes("card"):
            words("h2", title).props("id=sheet")
            self._wrong = words("div", "").classes("note bad").props("role=alert")
            self._wrong.visible = False
            self.body = tag("div").classes("fields")
            with tag("div").classes("bar"):
                tag("div").classes("space")
                button("Close", lambda: self.dialog.submit(None))
                button(label, self._submit, "primary")

    def say(self, sentence: str) -> None:
        """A sentence between the fields."""
        with self.body:
            words("p", sentence).classes("soft")

    def name(self, key: str, label: str, value: str = "") -> None:
        """Add a field for a name that becomes part of addresses."""
        self.text(key, label, value)
        self._check(key, name_problem)

    def text(
        self, key: str, label: str, value: str = "", *, hint: str = "", needed: bool = False, lines: int = 1
    ) -> None:
        with self.body:
            field = ui.input(label, value=value) if lines == 1 else ui.textarea(label, value=value)
            field.props("outlined dense")
        if hint:
            field.props["hint"] = hint
        if lines > 1:
            field.props(f"rows={lines}")
        self._fields[key] = field
        if needed:
            self._check(key, lambda value: "" if (value or "").strip() else f"Enter the {inside(label)}.")

    def secret(self, key: str, label: str) -> None:
        with self.body:
            field = ui.input(label, password=True).props("outlined dense autocomplete=new-password")
        self._fields[key] = field
        self._check(key, lambda value: "" if value else f"Enter the {inside(label)}.")

    def number(
        self,
        key: str,
        label: str,
        value: float | None = None,
        suffix: str = "",
        *,
        bounds: Callable[[], Bounds] = lambda: (0, None),
    ) -> None:
        """`bounds`: the valid range, which may depend on other fields."""
        with self.body:
            # Bounds of ui.number itself would change what is typed.
            field = ui.number(label, value=value).props("outlined dense")
        if suffix:
            field.props["suffix"] = suffix
        self._fields[key] = field
        self._check(key, lambda value: number_problem(value, *bounds()))

    def choice(
        self, key: str, label: str, options: Mapping[str, str], value: Any = None, *, several: bool = False
    ) -> None:
        """`options`: value -> its label."""
        with self.body:
            field = ui.select(
                dict(options), label=label, value=value, multiple=several, with_input=len(options) > 12
            )
            self._fields[key] = field.props(
                "outlined dense options-dense" + (" use-chips" if several else "")
            )

    def box(self, key: str, label: str, value: bool = False) -> None:
        with self.body:
            self._fields[key] = ui.checkbox(label, value=value).props("dense")

    def value(self, key: str) -> Any:
        """The field's current value."""
        return self._fields[key].value

    def values(self) -> dict[str, Any]:
        """The current values by key."""
        return {key: field.value for key, field in self._fields.items()}

    async def asked(self) -> Any:
        """Open the dialog. Returns what `send` returned, or True if that is empty; None if it was closed."""
        answer = await self.dialog
        self.dialog.delete()
        return answer

    def _check(self, key: str, wrong: Callable[[Any], str]) -> None:
        """Check the field when it loses the focus and before the form is sent."""
        field = self._fields[key].props(ROOM)
        self._checks[key] = wrong

        def look() -> None:
            # The blur may arrive after the form was sent: a refused value keeps its error until changed.
            if (key, field.value) not in self._refused:
                field.error = wrong(field.value) or None

        field.on("blur", look)

    async def _submit(self) -> None:
        self._wrong.visible = False
        self._refused = []
        for key, field in self._fields.items():
            if hasattr(field, "error"):
                field.error = (self._checks[key](field.value) or None) if key in self._checks else None
        if any(getattr(field, "error", None) for field in self._fields.values()):
            return
        try:
            answer = await self._send(self.values())
        except Refusal as error:
            self._tell(error)
        else:
            self.dialog.submit(answer or True)

    def _tell(self, error: Refusal) -> None:
        self._wrong.text = f"{error} ({error.status})"
        self._wrong.visible = not tell_fields(error, self._fields, self._names)
        wrong = {key: it for key, it in self._fields.items() if getattr(it, "error", None)}
        self._refused = [(key, field.value) for key, field in wrong.items()]


def tell_fields(error: Refusal, fields: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Show the server's errors, with its status, at their fields. True if all could be shown there."""
    places = {path: meant(path, fields, names) for path in error.fields}
    for path, key in places.items():
        if key is not None:
            fields[key].error = f"{error.fields[path]} ({error.status})"
    return bool(places) and None not in places.values()


def meant(path: str, keys: Container[str], names: Mapping[str, str]) -> str | None:
    """The key of the field for an API path such as `resources[0].gpu.deserved`; None: there is none."""
    parts = re.split(r"[.\[\]]+", path)
    return next((key for part in reversed(parts) if (key := names.get(part, part)) in keys), None)


def inside(label: str) -> str:
    """The label as written within a sentence."""
    return label[:1].lower() + label[1:]


def name_problem(value: Any) -> str:
    """What is wrong with a name, for users; "" if nothing is."""
    name = (value or "").strip()
    if not name:
        return "Enter a name."
    if len(name) > 63 or not NAME.fullmatch(name):
        return "Use small letters, digits and -, at most 63; begin and end with a letter or digit."
    return ""


def number_problem(value: Any, least: float | None = 0, most: float | None = None) -> str:
    """What is wrong with an amount, for users; "" if nothing is."""
    if value is not None and value < (least or 0):
        return f"Enter {least or 0:g} or more."
    if value is not None and most is not None and value > most:
        return f"Enter {most:g} or less."
    return ""


async def sure(title: str, text: str, label: str) -> bool:
    """Ask for confirmation before something that cannot be undone. True if confirmed."""
    with ui.dialog().props('aria-labelledby="asked"') as dialog, tag("div").classes("card"):
        words("h2", title).props("id=asked")
        words("p", text)
        with tag("div").classes("bar"):
            tag("div").classes("space")
            button("Keep", lambda: dialog.submit(False))
            button(label, lambda: dialog.submit(True), "danger")
    answer = await dialog
    dialog.delete()
    return bool(answer)


async def shown_once(title: str, sentence: str, secret: str) -> None:
    """Show a secret that the server gives only once: it is gone when the dialog closes."""
    with ui.dialog().props('aria-labelledby="once" persistent') as dialog, tag("div").classes("card"):
        words("h2", title).props("id=once")
        words("p", sentence)
        words("code", secret).classes("secret").props('tabindex=0 aria-label="Secret"')
        with tag("div").classes("bar"):
            tag("div").classes("space")
            button("I have copied it", lambda: dialog.submit(True), "primary")
    await dialog
    dialog.delete()
