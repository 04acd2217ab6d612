"""Reads the lines of the record of cycles that a server writes."""

from collections.abc import Iterator, Mapping
from typing import Any


class Rows:
    """Restores the whole rows of a record. Rows are numbered as they come, from 0 at each whole world.

    A line has [class, row, gone] for a new row. For a known row it has [number, changed fields], or [number]
    if the row is gone.
    """

    def __init__(self) -> None:
        self._told: list[tuple[str, Mapping[str, Any]]] | None = None  # by number; None: before a whole world

    def of(self, entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
        """Each row in a line: its class, the row, and whether it is gone."""
        if entry.get("base") is not None:
            self._told = [(name, body) for name, body in entry["base"]]
            yield from [(name, body, False) for name, body in self._told]
            return
        told = self._told
        for first, *rest in entry["news"] if told is not None else ():
            assert told is not None
            if isinstance(first, str):
                body, gone = rest
                told += [] if gone else [(first, body)]
                yield first, body, gone
            elif rest:
                name, before = told[first]
                told[first] = name, {**before, **rest[0]}
                yield *told[first], False
            else:
                yield *told[first], True
