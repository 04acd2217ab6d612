"""One way to page, sort, filter and search, for every list."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import Field

from pliant.api.responses.times import instant
from pliant.control.errors import BadRequest

T = TypeVar("T")

Value = str | int | float | bool | None

OPERATORS = ("==", "!=", "<=", ">=", "=@", "!@", "=^", "=$")
"""Equal, not equal, at most, at least, contains, does not contain, begins with, ends with."""

COMPARING = OPERATORS[:4]
_DAY = "(1[0-9]|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{3})?(Z|[+-](0[0-9]|1[0-4]):00)?"


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a list that a client asks for."""

    offset: int
    limit: int
    sort_by: str | None
    descending: bool
    filters: tuple[str, ...]
    search: str

    @property
    def whole(self) -> bool:
        """True if the list is neither filtered nor searched, and in its own order."""
        return not (self.sort_by or self.descending or self.filters or self.search)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """How one kind of entry can be filtered, searched, sorted and paged."""

    fields: Mapping[str, Callable[[T], Value]]
    searched: tuple[str, ...] = ("name",)  # the fields that `search` looks in, ignoring case
    most: int = 500  # entries of one page at most
    usual: int = 50  # entries of one page by default

    @property
    def asked(self) -> Callable[..., Awaitable[Window]]:
        """The dependency with which FastAPI reads the window; OpenAPI lists the fields."""
        names: list[Any] = sorted(self.fields)
        any_of_them: Any = Field(json_schema_extra={"enum": names})
        shown = next(name for name in names if not name.endswith("At"))
        pattern = f"^({'|'.join(map(_like, names))})"
        like_that: Any = Field(json_schema_extra={"pattern": pattern, "examples": [f"{shown}==a1"]})

        async def window(
            offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
            limit: Annotated[int, Query(ge=1, le=self.most)] = self.usual,
            sort_by: Annotated[Annotated[str, any_of_them] | None, Query(alias="sortBy")] = None,
            sort_order: Annotated[Literal["asc", "desc"], Query(alias="sortOrder")] = "asc",
            filter_by: Annotated[
                list[Annotated[str, like_that]] | None,
                Query(alias="filterBy", description="<field><op><value>"),
            ] = None,
            search: str = "",
        ) -> Window:
            return Window(offset, limit, sort_by, sort_order == "desc", tuple(filter_by or ()), search)

        return window

    def matching(self, entries: Iterable[T], window: Window) -> list[T]:
        """All entries that pass the filters and the search, sorted, before paging."""
        found = list(entries)
        for text in window.filters:
            keep = self._test(text)
            found = [entry for entry in found if keep(entry)]
        if window.search:
            needle = window.search.casefold()
            found = [
                entry
                for entry in found
                if any(needle in str(self.fields[name](entry) or "").casefold() for name in self.searched)
            ]
        if window.sort_by:
            get = self._field(window.sort_by, "sortBy")
            found.sort(key=lambda entry: _order(get(entry)), reverse=window.descending)
        elif window.descending:
            found.reverse()
        return found

    def page(
        self, name: str, entries: Iterable[T], window: Window, render: Callable[[T], Any]
    ) -> dict[str, Any]:
        """The body of a list: {name: [...], next: offset of the next page, if there is one}."""
        return cut(name, self.matching(entries, window), window, render)

    def encoded(self, name: str, entries: Iterable[T], window: Window, render: Callable[[T], bytes]) -> bytes:
        """Like `page`, as JSON; `render` returns each entry as JSON."""
        found = self.matching(entries, window)
        end = window.offset + window.limit
        items = b",".join(map(render, found[window.offset : end]))
        rest = b',"next":%d' % end if end < len(found) else b""
        return b'{"%s":[%s]%s}' % (name.encode(), items, rest)

    def count(self, entries: Iterable[T], window: Window) -> dict[str, int]:
        return {"count": len(self.matching(entries, window))}

    def _field(self, name: str, parameter: str) -> Callable[[T], Value]:
        try:
            return self.fields[name]
        except KeyError:
            raise BadRequest(
                f"{parameter}: there is no field {name[:60]!r} to go by.",
                f"Choose one of {', '.join(sorted(self.fields))}.",
                field=parameter,
            ) from None

    def _test(self, text: str) -> Callable[[T], bool]:
        name, operator, wanted = split_filter(text)
        get = self._field(name, "filterBy")
        if name.endswith("At") and operator in COMPARING and wanted:
            when = _moment(name, wanted)
            return lambda entry: compare_times(get(entry), operator, when)
        return lambda entry: compare(get(entry), operator, wanted)


def _like(name: str) -> str:
    """A regular expression for filters by that field."""
    operators = "|".join(map(re.escape, OPERATORS))
    if not name.endswith("At"):
        return f"{name}({operators})"
    others = "|".join(map(re.escape, OPERATORS[len(COMPARING) :]))
    return f"{name}(({others})|({'|'.join(COMPARING)})({_DAY}(T{_CLOCK})?)?$)"


def cut(name: str, found: Sequence[T], window: Window, render: Callable[[T], Any]) -> dict[str, Any]:
    """One page of entries that are already in order."""
    end = window.offset + window.limit
    body: dict[str, Any] = {name: [render(entry) for entry in found[window.offset : end]]}
    if end < len(found):
        body["next"] = end
    return body


def split_filter(text: str) -> tuple[str, str, str]:
    """'name=@job' -> ('name', '=@', 'job'): split at the first operator. Raises BadRequest."""
    places = [(text.find(operator), operator) for operator in OPERATORS if operator in text]
    if not places or min(places)[0] == 0:
        raise BadRequest(
            f"filterBy={text[:60]!r} cannot be read.",
            f"Write <field><op><value>; op is {' '.join(OPERATORS)}.",
            field="filterBy",
        )
    at, operator = min(places)
    return text[:at], operator, text[at + len(operator) :]


def _moment(name: str, wanted: str) -> int:
    try:
        return instant(wanted)
    except (ValueError, OverflowError):
        raise BadRequest(
            f"filterBy: {name} cannot be compared with {wanted[:60]!r}.",
            "Give a time, for example 2026-01-31T12:00:00Z.",
            field="filterBy",
        ) from None


def compare_times(value: Value, operator: str, wanted: int) -> bool:
    """`wanted` is in ms since the epoch. `value` too, or RFC 3339; None or '' if it has not happened."""
    if value is None or value == "":
        return operator == "!="
    ms = instant(value) if isinstance(value, str) else value
    return {"==": ms == wanted, "!=": ms != wanted, "<=": ms <= wanted, ">=": ms >= wanted}[operator]


def compare(value: Value, operator: str, wanted: str) -> bool:
    """`value <operator> wanted`: as numbers if both are numbers, else as text; None compares as ''."""
    text = _text(value)
    match operator:
        case "=@":
            return wanted in text
        case "!@":
            return wanted not in text
        case "=^":
            return text.startswith(wanted)
        case "=$":
            return text.endswith(wanted)
    left: tuple[float, str] = (0, text)
    right: tuple[float, str] = (0, wanted)
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = _number(wanted)
        if number is not None:
            left, right = (value, ""), (number, "")
    match operator:
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<=":
            return left <= right
        case _:
            return left >= right


def _text(value: Value) -> str:
    """As JSON would spell it, without quotes."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _order(value: Value) -> tuple[int, float, str]:
    """Sort key of a field's value: numbers by size, then text by letters, None last."""
    if value is None:
        return (2, 0, "")
    if isinstance(value, str):
        return (1, 0, value)
    return (0, value, "")
