"""CSV tables in which no spreadsheet program takes a text for a formula."""

import csv
import io
from collections.abc import Iterable, Sequence

from fastapi import Response


def sheet(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """A CSV file of that name."""
    return attached(name, lines([header, *rows]))


def attached(name: str, text: str) -> Response:
    """The text as a CSV file of that name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(text, headers=headers, media_type="text/csv")


def lines(rows: Iterable[Sequence[object]]) -> str:
    """The rows as CSV; the header is one of them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")  # a carriage return would show on a terminal
    writer.writerows([_safe(value) for value in row] for row in rows)
    return text.getvalue()


def _safe(value: object) -> object:
    """The value; text that a spreadsheet would take for a formula gets a leading quote."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") and value else value
