"""Makes, from the types of pliant.wire, the models that check requests and that OpenAPI shows."""

import difflib
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NotRequired,
    Required,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from fastapi import Body
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema

from pliant.api.schemas.policy_rules import schema_of_rules
from pliant.wire.limits import Length, Looks, NoEffect, Range, RulesOf
from pliant.wire.together import TOGETHER, AtLeastOne, Both, Needs, NotBoth, Together

_Annotated: Any = Annotated  # for types that are known only at run time


class _Request(BaseModel):
    """An unknown key is refused, as it may be misspelt; a number is accepted where text is expected."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)
    nullable: ClassVar[frozenset[str]] = frozenset()  # fields whose null has a meaning
    together: ClassVar[Mapping[str, Any]] = {}  # which fields exclude or need each other, as JSON Schema

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(core)
        handler.resolve_ref_schema(made).update(cls.together)
        return made

    @model_validator(mode="before")
    @classmethod
    def _said(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for name in given:
            if name not in cls.model_fields:
                near = difflib.get_close_matches(str(name)[:100], cls.model_fields, 1)
                fields = f"the fields are {', '.join(cls.model_fields)}."
                hint = f"did you mean {near[0]}?" if near else fields
                raise ValueError(f"there is no field {str(name)[:60]!r} here; {hint}")
        return {name: value for name, value in given.items() if value is not None or name in cls.nullable}


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


@functools.cache
def _request(kind: type) -> type[_Request]:
    hints = _hints(kind)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        made = _made(hint, _request)
        fields[name] = made if name in _required(kind) else (made | None, None)
    model = create_model(kind.__name__, __base__=_Request, __doc__=kind.__doc__, **fields)
    model.together = _together(kind)
    model.nullable = frozenset(name for name, hint in hints.items() if type(None) in get_args(hint))
    return model


@functools.cache
def _answer(kind: type) -> type[_Answer]:
    fields: dict[str, Any] = {}
    for name, hint in _hints(kind).items():
        made = _made(hint, _answer)
        # A field that is left out is not null: the default null would show in the schema, a factory does not.
        fields[name] = made if name in _required(kind) else (made, Field(default_factory=lambda: None))
    return create_model(kind.__name__, __base__=_Answer, __doc__=kind.__doc__, **fields)


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The type's keys and their types, without Required and NotRequired."""
    return {
        name: get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }


def _required(kind: Any) -> frozenset[str]:
    keys: frozenset[str] = kind.__required_keys__
    return keys


def _made(hint: Any, model: Callable[[type], Any]) -> Any:
    """The type with models instead of its TypedDicts, and pydantic's constraints instead of its bounds."""
    if is_typeddict(hint):
        return model(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = _made(parts[0], model)
        return functools.reduce(
            lambda made, bound: _Annotated[made, _bounded(bound, inner)], parts[1:], inner
        )
    if type(None) in parts:
        return functools.reduce(operator.or_, (_made(part, model) for part in parts))
    if origin is UnionType:  # of types with different values of `kind`
        union = functools.reduce(operator.or_, (_made(part, model) for part in parts))
        return _Annotated[union, Field(discriminator="kind")]
    if origin in (list, dict):
        return origin[tuple(_made(part, model) for part in parts)]
    return hint


def _together(kind: type) -> Mapping[str, Any]:
    rules = [rule for kinds, rules in TOGETHER if kind in kinds for rule in rules]
    return {"allOf": [{"anyOf": _one_of(rule)} for rule in rules]} if rules else {}


def _one_of(rule: Together) -> list[dict[str, Any]]:
    """Schemas of which one must hold."""
    if isinstance(rule, AtLeastOne):
        return [_said(name) for name in rule.names]
    if isinstance(rule, Needs):
        return [_unsaid(rule.name), *map(_said, rule.one)]
    if isinstance(rule, NotBoth):
        return [_unsaid(rule.first), _unsaid(rule.second)]
    if isinstance(rule, Both):
        both = (rule.first, rule.second)
        return [{"allOf": [_unsaid(name) for name in both]}, {"allOf": [_said(name) for name in both]}]
    other: dict[str, Any] = {"properties": {rule.name: {"not": {"enum": [*rule.values]}}}}
    if None in rule.values:
        other["required"] = [rule.name]
    needed = [*map(_said, rule.all), *map(_unsaid, rule.none)]
    needed += [{"properties": {name: {"pattern": pattern}}} for name, pattern in rule.looks]
    if rule.one:
        needed.append({"anyOf": [_said(name) for name in rule.one]})
    return [other, {"allOf": needed}]


_NOTHING: list[Any] = [None, "", [], {}]


def _said(name: str) -> dict[str, Any]:
    """`a.b` is the field b of the field a."""
    first, _, rest = name.partition(".")
    return {"required": [first], "properties": {first: _said(rest) if rest else {"not": {"enum": _NOTHING}}}}


def _unsaid(name: str) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {"properties": {first: _unsaid(rest) if rest else {"enum": _NOTHING}}}


def _bounded(bound: Range | Length | Looks | NoEffect | RulesOf, kind: Any) -> Any:
    if isinstance(bound, RulesOf):
        return Field(json_schema_extra=schema_of_rules(bound.kind))
    if isinstance(bound, Looks):
        return Field(json_schema_extra=looks(bound))
    if isinstance(bound, NoEffect):
        return Field(description="Accepted without effect; the response says so.")
    if isinstance(bound, Range):
        return Field(ge=bound.least, le=bound.most)
    if kind is not str:
        return Field(min_length=bound.least, max_length=bound.most)
    turning = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069" if bound.plain or bound.word else ""
    pattern = rf"^[^\x00-\x1f{turning}]*$" if bound.plain else rf"^[^\x00{turning}]*$"
    return Field(min_length=bound.least or None, max_length=bound.most, pattern=pattern)


def looks(bound: Looks) -> dict[str, Any]:
    """The JSON Schema of that form."""
    if bound.other is not None:
        return {"anyOf": [looks(replace(bound, other=None)), looks(bound.other)]}
    said = {
        "pattern": bound.pattern,
        "propertyNames": {"pattern": bound.keys} if bound.keys else "",
        "format": bound.format,
        "enum": [*bound.words],
        "multipleOf": bound.step,
        "uniqueItems": bound.once,
        "minItems": bound.entries,
        "minimum": bound.least,
        "maximum": bound.most,
    }
    return {word: value for word, value in said.items() if value or (value == 0 and value is not False)}


def answer_type(kind: Any) -> Any:
    """The type for pydantic of what a route answers: a type of pliant.wire, or a list of it."""
    return _made(kind, _answer)


class _Checked:
    """Lets a handler take a type of pliant.wire: its model checks the body and gives plain data again."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(_Annotated[_made(source, _request), AfterValidator(_plain)])


def _plain(value: Any) -> Any:
    """Plain data: the keys that were sent and no others."""
    return (
        [_plain(each) for each in value] if isinstance(value, list) else value.model_dump(exclude_unset=True)
    )


_Kind = TypeVar("_Kind")
Received = Annotated[_Kind, _Checked(), Body()]
"""The type of a handler's `body`: `Received[wire.Batch]`."""


def without_effect(kind: Any, value: Any, where: str = "") -> list[str]:
    """Paths of the received keys that have no effect here and have a value."""
    if isinstance(value, list):
        parts = [without_effect(get_args(kind)[0], each, f"{where}[{at}]") for at, each in enumerate(value)]
    elif isinstance(value, Mapping) and is_typeddict(kind):
        hints = _hints(kind)
        parts = [_vain(hints[key], each, f"{where}.{key}" if where else key) for key, each in value.items()]
    else:
        return []
    return [path for part in parts for path in part]


def _vain(hint: Any, value: Any, path: str) -> list[str]:
    if get_origin(hint) is Annotated and any(isinstance(it, NoEffect) for it in get_args(hint)[1:]):
        return [path] if value not in ([], {}, "", False, None) else []
    return without_effect(_bare(hint), value, path)


def _bare(hint: Any) -> Any:
    """The type without its bounds and without null."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if type(None) in (parts := get_args(hint)):
        return _bare(parts[0])
    return hint
