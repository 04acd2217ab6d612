"""Tables with search, choice of columns, sorting, CSV, and actions in each row."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments
from nicegui.json import dumps

from pliant.console.frame import button, tag
from pliant.console.texts import spreadsheet

Act = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Does an action: (its label, the row)."""

PINNED = {
    "name": "actions",
    "label": "Actions",
    "field": "actions",
    "align": "right",
    "classes": "pinned",
    "headerClasses": "pinned",
}
"""The column of actions, at the right edge also if the table is wider than the screen."""


class RowTable(ui.table, component="rows.js"):
    """Columns have a `kind` as in Column; the event `act` has (label of the action, id of the row).

    The rows are sent as one text: NiceGUI would watch and walk through every cell of a list, for every page.
    """

    def __init__(self, columns: list[dict[str, Any]], **named: Any) -> None:
        super().__init__(rows=[], columns=columns, row_key="id", **named)
        self._told: list[dict[str, Any]] = []  # the rows that the browser has

    @property
    def told(self) -> list[dict[str, Any]]:
        return self._told

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Send the rows to the browser if they have changed."""
        if rows != self._told:
            self._told = rows
            self.props["told"] = dumps(rows)


@dataclass(frozen=True, slots=True)
class Column:
    """`kind`: text, number, gpus (two decimals), link (to the row's href), chip (in the row's tone), bar."""

    key: str
    label: str
    kind: str = "text"
    hidden: bool = False  # until the reader shows it


class Table:
    """Rows have an id, a name, and under `actions` the labels of their actions, separated by commas."""

    def __init__(
        self, columns: Sequence[Column], *, empty: str, file: str, act: Act | None = None, search: bool = True
    ) -> None:
        self._columns, self._act, self._file = columns, act, file
        self._hidden = {it.key for it in columns if it.hidden}
        with tag("div").classes("bar"):
            if search:
                field = ui.input("Search").props("outlined dense clearable debounce=200 type=search")
            tag("div").classes("space")
            choose_columns([(it.key, it.label) for it in columns[1:]], self._hidden, self._drawn)
            button("CSV", self._download, icon="download").props('aria-label="Download as CSV"')
        self._table = RowTable(self._told(), pagination={"rowsPerPage": 50, "page": 1}).props(
            'flat binary-state-sort :rows-per-page-options="[10,25,50,100]"'
        )
        self._table.props["no-data-label"] = empty
        if search:
            field.bind_value_to(self._table, "filter", forward=lambda text: text or "")
        if act is not None:
            self._table.on("act", self._acted)

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Send the rows to the browser if they have changed."""
        self._table.show(rows)

    def _told(self) -> list[dict[str, Any]]:
        found = [told(it) for it in self._columns if it.key not in self._hidden]
        if self._act is None:
            return found
        return [*found, PINNED]

    def _drawn(self) -> None:
        self._table.columns = self._told()

    async def _acted(self, event: GenericEventArguments) -> None:
        label, identity = event.args
        row = next((it for it in self._table.told if it["id"] == identity), None)
        if row is not None and self._act is not None:
            await self._act(label, row)

    def _download(self) -> None:
        shown = [it for it in self._columns if it.key not in self._hidden and it.kind != "bar"]
        rows = [[row.get(it.key, "") for it in shown] for row in self._table.told]
        ui.download.content(spreadsheet([it.label for it in shown], rows), f"{self._file}.csv", "text/csv")


def told(column: Column) -> dict[str, Any]:
    """The column in Quasar's form, with its kind."""
    number = column.kind in ("number", "gpus")
    return {
        "kind": column.kind,
        "name": column.key,
        "label": column.label,
        "field": column.key,
        "sortable": column.kind != "bar",
        "align": "right" if number else "left",
    }


def choose_columns(columns: Sequence[tuple[str, str]], hidden: set[str], changed: Callable[[], None]) -> None:
    """A button with a checkbox for each column, which changes `hidden`."""

    def toggled(key: str, on: bool) -> None:
        (hidden.discard if on else hidden.add)(key)
        changed()

    with button("Columns", icon="view_column"), ui.menu() as shown, tag("div").classes("card"):
        shown.props('role=group aria-label="Columns"')
        for key, label in columns:
            box = ui.checkbox(
                label, value=key not in hidden, on_change=lambda event, key=key: toggled(key, event.value)
            )
            box.props("dense").style("display: flex; padding: 4px")
