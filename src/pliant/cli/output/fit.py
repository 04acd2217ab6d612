"""Fits tables to the width of the terminal; elsewhere, with -o wide and as `runai` they keep their width."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pliant.cli.output.amounts import counted
from pliant.cli.output.tables import grouped, table
from pliant.cli.session import Session

LEAST = 6
"""A text column is not cut to fewer characters than this."""

MORE = "…"

USUAL = 80
"""Width assumed for a terminal that does not report its width."""


class Columns(NamedTuple):
    """Which columns of a table may be dropped or cut, and which never."""

    drop: Sequence[str] = ()  # columns to drop, the least important first
    cut: Mapping[str, int] = {}  # width to which a column may shrink before any column is dropped
    short: Mapping[str, str] = {}  # shorter headings by column
    whole: Sequence[str] = ()  # columns of numbers, which are never cut
    last: str = "NAME"  # the column that is cut last


def room() -> int | None:
    """Width of the terminal in characters; None if the output goes elsewhere."""
    if not sys.stdout.isatty():
        return None
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or USUAL
    except OSError:
        return USUAL


def fit_table(
    session: Session,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    columns: Columns,
    *,
    rule: bool = False,
    right: Sequence[str] = (),
) -> str:
    """The table, at most as wide as the terminal; a note on standard error counts the hidden columns."""
    body = [list(row) for row in rows]
    width = None if session.output == "wide" or session.program == "runai" else room()
    if width is not None and _needs(_widths(header, body)) > width:
        header, body, hidden = fitted(header, body, columns, width)
        right = [columns.short.get(name, name) for name in right]
        if hidden:
            session.note(f"{counted(hidden, 'column')} hidden; use -o wide.")
    return table(header, body, rule=rule, headers=session.headers, right=right)


Groups = Sequence[tuple[str, Sequence[str]]]


def fit_groups(session: Session, groups: Groups, rows: Sequence[Sequence[str]], drop: Sequence[str]) -> str:
    """Like fit_table, with group titles: `drop` lists `TITLE NAME`; only the column NAME may be cut."""
    width = None if session.output == "wide" or session.program == "runai" else room()
    named = {f"{title} {name}".strip(): name for title, names in groups for name in names}
    columns = Columns(drop, short=named, whole=[name for name in named if name != "NAME"])
    body = [list(row) for row in rows]
    if width is not None and _needs(_widths(list(named.values()), body)) > width:
        _, body, hidden = fitted(list(named), body, columns, width)
        gone = drop[:hidden]
        groups = [(title, [it for it in names if f"{title} {it}" not in gone]) for title, names in groups]
        if hidden:
            session.note(f"{counted(hidden, 'column')} hidden; use -o wide.")
    return grouped(groups, body, headers=session.headers)


def fitted(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: Columns, width: int
) -> tuple[list[str], list[list[str]], int]:
    """(header, rows, number of dropped columns), with lines of at most `width` characters if possible."""
    names = list(header)
    body = [list(row) for row in rows]
    titles = [columns.short.get(name, name) for name in names]
    hidden = 0
    for name in ("", *columns.drop):
        if name in names:
            at = names.index(name)
            for row in (names, titles, *body):
                del row[at]
            hidden += 1
        widths = _widths(titles, body)
        wanted = [min(width_, columns.cut.get(it, width_)) for it, width_ in zip(names, widths, strict=True)]
        if _needs(wanted) <= width:
            break
    order = [at for at, name in enumerate(names) if name not in (*columns.whole, columns.last)]
    last = [at for at, name in enumerate(names) if name == columns.last]
    for group in (order, last):
        while group and _needs(widths) > width:
            at = max(group, key=lambda it: widths[it])
            if widths[at] <= LEAST:
                break
            widths[at] -= 1
    kept = [[_cut(cell, width_) for cell, width_ in zip(row, widths, strict=True)] for row in (titles, *body)]
    return kept[0], kept[1:], hidden


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]


def _needs(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + MORE
