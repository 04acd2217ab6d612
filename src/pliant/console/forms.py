"""Pieces of forms: one of several tiles, a dialog that explains at the field what is wrong."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from pliant.console.calls import Refusal
from pliant.console.frame import button, tag, words


class Tiles:
    """One of several, each a tile with a name and a line about it."""

    def __init__(self, label: str, chosen: Callable[[], Awaitable[None]]) -> None:
        self.value = ""
        self._chosen = chosen
        self._group = tag("div").classes("tiles").props(f'role=radiogroup aria-label="{label}"')
        self._tiles: dict[str, ui.element] = {}

    def offer(self, options: Sequence[tuple[str, str, str]]) -> None:
        """(key, name, line about it) of each."""
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
    """A dialog with fields. `send` gets their values; what it is refused is told where it belongs."""

    def __init__(self, title: str, label: str, send: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        self._send, self._fields = send, dict[str, Any]()
        self.dialog = ui.dialog().props('aria-labelledby="sheet" persistent')
        with self.dialog, tag("div").classes("card"):
            words("h2", title).props("id=sheet")
            self._wrong = words("div", "").classes("note bad").props("role=alert")
            self._wrong.visible = False
            self.body = tag("div").style("display: flex; flex-direction: column; gap: 10px")
            with tag("div").classes("bar"):
                tag("div").classes("space")
                button("Close", lambda: self.dialog.submit(None))
                button(label, self._submit, "primary")

    def text(self, key: str, label: str, value: str = "") -> None:
        with self.body:
            self._fields[key] = ui.input(label, value=value).props("outlined dense")

    def number(self, key: str, label: str, value: float | None = None, suffix: str = "") -> None:
        with self.body:
            field = ui.number(label, value=value, min=0).props("outlined dense")
            self._fields[key] = field.props(f'suffix="{suffix}"') if suffix else field

    def choice(self, key: str, label: str, options: Mapping[str, str], value: str) -> None:
        """`options`: value -> what is read."""
        with self.body:
            field = ui.select(dict(options), label=label, value=value).props("outlined dense options-dense")
            self._fields[key] = field

    async def asked(self) -> Any:
        """What `send` answered; None if the dialog was closed."""
        answer = await self.dialog
        self.dialog.delete()
        return answer

    async def _submit(self) -> None:
        for field in self._fields.values():
            field.error = None
        try:
            answer = await self._send({key: field.value for key, field in self._fields.items()})
        except Refusal as error:
            self._tell(error)
        else:
            self.dialog.submit(answer or True)

    def _tell(self, error: Refusal) -> None:
        told = False
        for path, message in error.fields.items():
            if (field := self._fields.get(path.rpartition(".")[2])) is not None:
                field.error = message
                told = True
        self._wrong.text = f"{error} ({error.status})"
        self._wrong.visible = not told
