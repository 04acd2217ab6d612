"""Reads the lines of CSV files; every error names the file and the line."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path

MOST = 20
"""The most errors reported at once."""


class TraceError(Exception):
    """A file that cannot be read as a trace; the text names the file, the line and what is wrong."""


class Line:
    """One line of a file. Methods that read a value raise TraceError if it is not valid."""

    def __init__(self, path: Path, number: int, values: Mapping[str, str]) -> None:
        self.path, self.number, self.values = path, number, values

    def __contains__(self, column: str) -> bool:
        """True if the line has this column and it is not empty."""
        return bool(self.values.get(column, "").strip())

    def word(self, column: str) -> str:
        text = self.values[column].strip()
        if not text:
            raise self.error(f"{column} is missing")
        return text

    def thousandths(self, column: str, most: int = 2**53) -> int:
        """A number with at most three decimals, times 1000."""
        text = self.word(column)
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise self.error(f"{column} is {text!r}, not a number") from None
        if number.is_finite():
            self._within(column, text, number, Decimal(most) / 1000)  # before all its digits are computed
            number *= 1000
        if not number.is_finite() or number != number.to_integral_value():
            raise self.error(f"{column} is {text}; at most three decimals are possible")
        return int(number)

    def _within(self, column: str, text: str, number: Decimal, most: int | Decimal) -> None:
        if number < 0:
            raise self.error(f"{column} is {text}; it must not be negative")
        if number > most:
            raise self.error(f"{column} is {text}; at most {most} is possible")

    def yes(self, column: str) -> bool:
        """True for "yes"; False for "no", an empty value or no such column."""
        text = self.values.get(column, "").strip()
        if text not in ("", "yes", "no"):
            raise self.error(f"{column} is {text!r}, not yes or no")
        return text == "yes"

    def error(self, text: str) -> TraceError:
        return TraceError(f"{self.path}:{self.number}: {text}")

    def whole(self, column: str, most: int = 2**53) -> int:
        text = self.values[column].strip()
        digits = text.removesuffix(".0")
        if not text:
            raise self.error(f"{column} is missing")
        if not digits.removeprefix("-").isdecimal():
            raise self.error(f"{column} is {text!r}, not a whole number")
        self._within(column, digits, Decimal(digits), most)
        return int(digits)


def read_lines(path: Path, required: tuple[str, ...]) -> Iterator[Line]:
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            rows = csv.reader(file, strict=True)
            header = [name.strip() for name in next(rows, [])]
            if lacking := [name for name in required if name not in header]:
                raise TraceError(
                    f"{path}:1: no column {', '.join(lacking)}; the first line must name the columns"
                )
            for row in rows:
                if not row:
                    continue
                line = Line(path, rows.line_num, dict(zip(header, row, strict=False)))
                if len(row) != len(header):
                    cut = "; the file may be cut off here" if len(row) < len(header) else ""
                    raise line.error(f"{len(row)} values for {len(header)} columns{cut}")
                yield line
    except (EOFError, zlib.error):
        raise TraceError(f"{path}: the compressed file is cut off or damaged") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {reason}") from None
    except csv.Error as error:
        raise TraceError(f"{path}:{rows.line_num}: {error}") from None


class Complaints:
    """Collects the errors in the lines of one trace, to report them together."""

    def __init__(self) -> None:
        self._found: list[str] = []

    @contextmanager
    def about(self) -> Iterator[None]:
        """Collect a TraceError of the block, so that the next line is read too."""
        try:
            yield
        except TraceError as error:
            self._found.append(str(error))

    def __bool__(self) -> bool:
        return bool(self._found)

    def tell(self) -> None:
        """Raise TraceError if there were errors."""
        if self._found:
            more = len(self._found) - MOST
            rest = [f"{more} more lines are wrong"] if more > 0 else []
            raise TraceError("\n".join([*self._found[:MOST], *rest]))
