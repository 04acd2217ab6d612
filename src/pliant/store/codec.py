"""Converts frozen dataclasses to JSON and back, by their type hints. Whatever it writes it can read.

A dataclass becomes an object, a NamedTuple and a tuple an array, an enum its value. A missing field takes its
default (the row is older than the field). An unknown field is ignored, since a later release removed it; but
if the row's format is newer than FORMAT, CodecError is raised, since reading would lose data.
"""

import ast
import json
import sys
from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import cycle
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

FORMAT = 16
"""Stored beside every row; raise it whenever a stored class gains or loses a field."""

KEPT = 1000
"""Most cached texts of row parts per class: a row that replaces another shares most of its parts."""

T = TypeVar("T")
Encode = Callable[[Any], str]  # to JSON
Decode = Callable[[Any, bool], Any]  # (JSON, whether the row's format is newer than ours)
Pair = tuple[Encode, Decode]


class CodecError(ValueError):
    """A value does not have the type that its class declares; the text names the place."""

    def __init__(self, said: str, place: str = "") -> None:
        super().__init__(f"{place}: {said}" if place else said)
        self.said, self.place = said, place

    def inside(self, step: str) -> "CodecError":
        """The same error, seen from one level further out: step is a class, `.field` or `[index]`."""
        return CodecError(self.said, step + self.place)


class Codec(Generic[T]):
    """Text form of one class. Raises TypeError if a field has a type that cannot be stored."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self._encode, self._decode = _dataclass(cast(Hashable, kind))

    def encode(self, value: T) -> str:
        """ASCII JSON. Raises CodecError for a value that could not be read back."""
        try:
            return self._encode(value)
        except CodecError as error:
            raise error.inside(self.kind.__name__) from None

    def decode(self, text: str, format: int = FORMAT) -> T:
        """The value that `encode` got. Raises CodecError."""
        try:
            value: T = self._decode(json.loads(text), format > FORMAT)
        except CodecError as error:
            if format > FORMAT:
                error.said += f" (format {format} of a newer Pliant, this one reads up to {FORMAT})"
            raise error.inside(self.kind.__name__) from None
        except ValueError as error:
            raise CodecError(f"not JSON: {error}", self.kind.__name__) from None
        return value


def _hints(kind: type) -> dict[str, Any]:
    """Type hints of a class. A compiled class has `tuple` for `tuple[str, ...]`, so its source is read."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        module = sys.modules[base.__module__]
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix != ".so":
            found |= get_type_hints(base) if file.suffix == ".py" else {}
            continue
        source = ast.parse((file.parent / f"{module.__name__.rpartition('.')[2]}.py").read_text("utf-8"))
        for node in source.body:
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                lines = [it for it in node.body if isinstance(it, ast.AnnAssign)]
                said = {ast.unparse(it.target): ast.unparse(it.annotation) for it in lines}
                found |= get_type_hints(type(base.__name__, (), {"__annotations__": said}), vars(module))
    return found


def _wrong(expected: str, found: object) -> CodecError:
    return CodecError(f"{expected} expected, found {found!r:.60}")


@cache
def _pair(hint: Hashable) -> Pair:
    """How values of a type are written and read. Raises TypeError if they cannot be stored."""
    origin = get_origin(hint)
    if hint in (int, str, bool, NoneType):
        return _scalar((hint,))
    if origin in (Union, UnionType):
        return _union(get_args(hint))
    if origin is tuple:
        return _tuple(get_args(hint))
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            return _enum(hint)
        if issubclass(hint, tuple) and hasattr(hint, "_fields"):
            return _named_tuple(hint)
        if is_dataclass(hint):
            return _kept(_dataclass(hint))
    raise TypeError(f"{hint} cannot be stored: add it to pliant.store.codec")


_TEXTS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring_ascii,
    int: str,
    bool: lambda value: "true" if value else "false",
    NoneType: lambda value: "null",
}


def _scalar(kinds: tuple[type, ...]) -> Pair:
    exact = frozenset(kinds)
    names = " or ".join(sorted("null" if kind is NoneType else kind.__name__ for kind in kinds))
    texts = {kind: _TEXTS[kind] for kind in kinds}

    def encode(value: Any) -> str:
        text = texts.get(type(value))
        if text is not None:
            return text(value)
        for kind in (str, int):  # an enum or another subclass is written as its plain value
            if kind in exact and isinstance(value, kind) and not isinstance(value, bool):
                return _TEXTS[kind](kind(value))
        raise _wrong(names, value)

    def decode(data: Any, newer: bool) -> Any:
        if type(data) not in exact:
            raise _wrong(names, data)
        return data

    return encode, decode


def _union(kinds: tuple[Any, ...]) -> Pair:
    if all(kind in (int, str, bool, NoneType) for kind in kinds):
        return _scalar(kinds)
    inner = [kind for kind in kinds if kind is not NoneType]
    if len(inner) != 1:
        raise TypeError(f"a union of {kinds} cannot be stored: its members look alike in JSON")
    write, read = _pair(inner[0])

    def encode(value: Any) -> str:
        return "null" if value is None else write(value)

    def decode(data: Any, newer: bool) -> Any:
        return None if data is None else read(data, newer)

    return encode, decode


def _tuple(kinds: tuple[Any, ...]) -> Pair:
    endless = len(kinds) == 2 and kinds[1] is Ellipsis
    pairs = [_pair(kind) for kind in kinds if kind is not Ellipsis]
    size = len(pairs)
    name = "" if endless else f" of {size}"

    def encode(value: Any) -> str:
        if type(value) is not tuple or (not endless and len(value) != size):
            raise _wrong(f"tuple{name}", value)
        done: list[str] = []
        try:
            for (write, _), item in zip(cycle(pairs), value, strict=False):
                done.append(write(item))
        except CodecError as error:
            raise error.inside(f"[{len(done)}]") from None
        return f"[{','.join(done)}]"

    def decode(data: Any, newer: bool) -> Any:
        if type(data) is not list or (not endless and len(data) != size):
            raise _wrong(f"array{name}", data)
        done: list[Any] = []
        try:
            for (_, read), item in zip(cycle(pairs), data, strict=False):
                done.append(read(item, newer))
        except CodecError as error:
            raise error.inside(f"[{len(done)}]") from None
        return tuple(done)

    return encode, decode


def _enum(kind: type[Enum]) -> Pair:
    members = {member.value: member for member in kind}
    texts = {member: json.dumps(member.value) for member in kind}

    def encode(value: Any) -> str:
        if type(value) is not kind:
            raise _wrong(kind.__name__, value)
        return texts[value]

    def decode(data: Any, newer: bool) -> Any:
        if type(data) in (str, int) and data in members:
            return members[data]
        raise _wrong(f"one of {', '.join(map(str, members))}", data)

    return encode, decode


def _named_tuple(kind: Any) -> Pair:
    hints = _hints(kind)
    names: tuple[str, ...] = kind._fields
    pairs = [_pair(hints[name]) for name in names]
    least = len(names) - len(kind._field_defaults)

    def encode(value: Any) -> str:
        if type(value) is not kind:
            raise _wrong(kind.__name__, value)
        done: list[str] = []
        try:
            for (write, _), item in zip(pairs, value, strict=True):
                done.append(write(item))
        except CodecError as error:
            raise error.inside(f".{names[len(done)]}") from None
        return f"[{','.join(done)}]"

    def decode(data: Any, newer: bool) -> Any:
        if type(data) is not list or len(data) < least or (newer and len(data) > len(names)):
            raise _wrong(f"array of {len(names)}", data)
        done: list[Any] = []
        try:
            for (_, read), item in zip(pairs, data, strict=False):
                done.append(read(item, newer))
        except CodecError as error:
            raise error.inside(f".{names[len(done)]}") from None
        return kind(*done)

    return encode, decode


def _kept(pair: Pair) -> Pair:
    """The same pair; `encode` caches its texts."""
    write, decode = pair
    known: dict[int, tuple[Any, str]] = {}  # by identity: parts never change, and are kept alive here

    def encode(value: Any) -> str:
        found = known.get(id(value))
        if found is None:
            if len(known) >= KEPT:
                known.clear()
            found = known[id(value)] = value, write(value)
        return found[1]

    return encode, decode


@cache
def _dataclass(kind: Any) -> Pair:
    hints = _hints(kind)
    parts = [(field.name, *_pair(hints[field.name])) for field in fields(kind)]
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    known = frozenset(name for name, _, _ in parts)
    usual = {f.name: f.default for f in fields(kind)}  # what most rows have: its text is made once
    names = [name for name, _, _ in parts]
    get = attrgetter(*names, names[0])  # one name twice, so that the result is always a tuple
    heads = [f'"{name}":' for name in names]
    plain = [
        (head, write, usual[name], "" if usual[name] is MISSING else head + write(usual[name]))
        for head, (name, write, _) in zip(heads, parts, strict=True)
    ]

    def encode(value: Any) -> str:
        if type(value) is not kind:
            raise _wrong(kind.__name__, value)
        done: list[str] = []
        try:
            for (head, write, default, text), part in zip(plain, get(value), strict=False):
                done.append(text if part is default else head + write(part))
        except CodecError as error:
            raise error.inside(f".{names[len(done)]}") from None
        return f"{{{','.join(done)}}}"

    def decode(data: Any, newer: bool) -> Any:
        if type(data) is not dict:
            raise _wrong("object", data)
        values = {}
        name = ""
        try:
            for name, _, read in parts:
                if name in data:
                    values[name] = read(data[name], newer)
        except CodecError as error:
            raise error.inside(f".{name}") from None
        if newer and len(values) < len(data):
            raise CodecError(f"unknown field {', '.join(sorted(data.keys() - known))}")
        for name in required:
            if name not in values:
                raise CodecError("missing", f".{name}")
        return kind(**values)

    return encode, decode
