"""Rules of policies: the fields of a spec that they may concern, and their form."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Required, get_args, get_origin, get_type_hints, is_typeddict

from pliant.control.errors import BadRequest
from pliant.control.submit.policy import WORDS

_QUANTITY = r"^([0-9]{1,18}|[0-9]{1,6}(\.[0-9]{1,3})?(k|[KMGT]i?))B?$"
_POSITIVE = r"^[1-9][0-9]{0,5}(k|[KMGT]i?)?B?$"
_AMOUNT = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _QUANTITY}]}
_STEP = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _POSITIVE}]}
_SOURCE = {
    "type": "object",
    "required": ["field"],
    "properties": {"field": {"type": "string"}, "factor": {"type": "number"}},
    "additionalProperties": False,
}
_OPTION = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "array", "null"]},
        {"type": "object", "required": ["value"]},
    ]
}
_RULE: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        **{word: {"type": "boolean"} for word in ("canEdit", "required", "blocked", "canAdd")},
        "min": _AMOUNT,
        "max": _AMOUNT,
        "step": _STEP,
        "options": {"type": "array", "minItems": 1, "items": _OPTION},
        "locked": {"type": "array", "items": {"type": "string"}},
        "defaultFrom": _SOURCE,
    },
}
_FREE = {"type": "object", "minProperties": 1, "additionalProperties": _RULE}
"""Below a field whose value can have any type."""


def schema_of_rules(kind: type) -> dict[str, Any]:
    """The JSON Schema of rules about that type."""
    return {"properties": _parts(kind), "additionalProperties": False}


def _parts(kind: type) -> dict[str, Any]:
    return {name: _part(hint) for name, hint in _fields(kind).items()}


def _part(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {"anyOf": [_RULE, _FREE]}
    if not is_typeddict(hint):
        return _RULE
    deeper = {"type": "object", "minProperties": 1, **schema_of_rules(hint)}
    return {"anyOf": [_RULE, deeper]}


def _fields(kind: type) -> Mapping[str, Any]:
    return {name: _bare(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _bare(hint: Any) -> Any:
    """The type without its bounds, without null and without Required."""
    if get_origin(hint) in (Annotated, Required):
        return _bare(get_args(hint)[0])
    if type(None) in (parts := get_args(hint)):
        return _bare(parts[0])
    return hint


def check_fields(tree: Mapping[str, Any], kind: Any, plural: str, at: str = "rules") -> None:
    """Raises BadRequest for a rule about a field that `kind` does not have, and for an unknown rule."""
    fields = _fields(kind)
    for name, value in tree.items():
        if name not in fields:
            near = difflib.get_close_matches(name[:100], fields, 1)
            hint = f"Did you mean {near[0]}?" if near else f"The fields are {', '.join(fields)}."
            raise BadRequest(f"{at}: {plural} have no field {name[:60]!r}.", hint, field=f"{at}.{name}")
        hint = fields[name]
        if not isinstance(value, Mapping) or value.keys() & WORDS or hint is Any:
            continue
        if is_typeddict(hint):
            check_fields(value, hint, plural, f"{at}.{name}")
        elif value:
            wrong = next(iter(value))
            raise BadRequest(
                f"{at}.{name}: unknown rule {wrong[:40]!r}.",
                f"Use {', '.join(sorted(WORDS))}.",
                field=f"{at}.{name}",
            )
