"""Rebuilds reasons from history: from the code, numbers and names that an event keeps."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from pliant.model import reason
from pliant.model.reason.base import Named, Reason

QUEUES = ("project", "from_project", "queue", "owner")
"""Fields that name a queue; the others of type Named name workloads."""

KINDS = {
    kind.code: kind
    for kind in vars(reason).values()
    if isinstance(kind, type) and issubclass(kind, Reason) and kind is not Reason
}

OF_NOBODY = "?"
"""The project of names in events recorded before events kept keys: only readers of all projects see them."""


def again(
    code: str, numbers: Iterable[tuple[str, int | str]], names: Iterable[tuple[str, Named]] = ()
) -> Reason | None:
    """The reason; None if this version knows no such code, or lacks what it needs to make one."""
    kind = KINDS.get(code)
    if kind is None:
        return None
    whom: dict[str, list[Named]] = {}
    for field, named in names:
        whom.setdefault(field, []).append(named)
    known, values = dict(numbers), dict[str, Any]()
    for part in fields(kind):
        found = _value(part.type, part.name, known, whom)
        if found is not None:
            values[part.name] = found
        elif part.default is MISSING and type(None) not in getattr(part.type, "__args__", ()):
            return None
        elif part.default is MISSING:
            values[part.name] = None
    return kind(**values)


def _value(
    kind: Any, name: str, numbers: Mapping[str, int | str], whom: Mapping[str, list[Named]]
) -> Any | None:
    value = numbers.get(name)
    if kind in (Named, Named | None):
        if name in whom:
            return whom[name][0]
        queue = "project" if name in QUEUES else "workload"
        return Named(queue, "", value, OF_NOBODY) if isinstance(value, str) else None
    if kind == tuple[Named, ...]:
        if name in whom:
            return tuple(whom[name])
        return tuple(Named("workload", "", it, OF_NOBODY) for it in _parts(value))
    if kind == tuple[str, ...]:
        return _parts(value)
    if kind is bool:
        return None if value is None else bool(value)
    return value


def _parts(value: int | str | None) -> tuple[str, ...]:
    return tuple(value.split(", ")) if isinstance(value, str) and value else ()
