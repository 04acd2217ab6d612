"""-o jsonpath='{.name}': the subset of kubectl's JSONPath with names, indices and [*]."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

_PART = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\*|-?\d+)\]|\['([^']+)'\]")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def pick(template: str, value: Any) -> str:
    """The template filled from a value; text outside of braces stays, `{"\\n"}` is text too.

    A list is also its own `.items`, as in kubectl. Raises UsageError."""
    made = []
    for at, piece in enumerate(re.split(r"\{([^{}]*)\}", template)):
        if at % 2 == 0:
            made.append(_text(piece))
        elif len(piece) > 1 and piece[0] == piece[-1] == '"':
            made.append(_text(piece[1:-1]))
        else:
            made.append(" ".join(map(_shown, _found(piece, value))))
    return "".join(made)


def _found(path: str, value: Any) -> Iterator[Any]:
    rest = path.removeprefix("$")
    values: list[Any] = [value]
    while rest and rest != ".":
        part = _PART.match(rest)
        if part is None:
            raise click.UsageError(
                f"-o jsonpath: {{{path}}} is not a path such as {{.name}} or {{[*].name}}."
            )
        rest = rest[part.end() :]
        values = [entry for one in values for entry in _step(one, part[1] or part[3], part[2])]
    yield from values


def _step(value: Any, name: str | None, index: str | None) -> Sequence[Any]:
    if name is not None:
        if name == "items" and isinstance(value, list):
            return [value]
        return [value[name]] if isinstance(value, Mapping) and name in value else []
    if index == "*":
        return (
            list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
        )
    at = int(str(index))
    return [value[at]] if isinstance(value, list) and -len(value) <= at < len(value) else []


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)
