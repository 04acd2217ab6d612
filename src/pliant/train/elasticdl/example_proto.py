"""The codec `tf_example`: reads serialized tf.train.Example messages, without TensorFlow or protobuf.

Example{1: Features{1: map entry{1: name, 2: Feature}}}. A Feature holds one list: field 1 bytes, field 2
floats, field 3 int64, each {1: values}, packed or one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pliant.train.elasticdl.columns import Array, Column
from pliant.train.errors import BadData

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """The bytes are not a protobuf message."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position after it). Raises Malformed."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise Malformed("a number is cut off")


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yields (field, wire type, value) of a message. Raises Malformed."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value: Any
            value, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32, _BYTES):
            size, at = _varint(data, at) if wire == _BYTES else (8 if wire == _FIXED64 else 4, at)
            if at + size > len(data):
                raise Malformed("a field is cut off")
            value, at = data[at : at + size], at + size
        else:
            raise Malformed(f"there is no wire type {wire}")
        yield field, wire, value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _values(kind: int, data: bytes) -> list[bytes] | Array:
    found: list[Any] = []
    for field, wire, value in _fields(data):
        if field != 1:
            continue
        if kind == 1 and wire == _BYTES:
            found.append(value)
        elif kind == 2 and wire in (_BYTES, _FIXED32) and len(value) % 4 == 0:
            found += np.frombuffer(value, "<f4").tolist()
        elif kind == 3 and wire == _VARINT:
            found.append(_signed(value))
        elif kind == 3 and wire == _BYTES:
            at = 0
            while at < len(value):
                number, at = _varint(value, at)
                found.append(_signed(number))
        else:
            raise Malformed("a list holds values of another type")
    return found if kind == 1 else np.asarray(found, "<f4" if kind == 2 else "<i8")


def parse(record: bytes) -> dict[str, list[bytes] | Array]:
    """Features by name: float32 or int64 arrays, or lists of byte strings. Raises Malformed."""
    features: dict[str, list[bytes] | Array] = {}
    for entry in (e for f, w, body in _fields(record) if (f, w) == (1, _BYTES) for _, w2, e in _fields(body)):
        parts = {field: value for field, wire, value in _fields(entry) if wire == _BYTES}
        lists = [(kind, value) for kind, wire, value in _fields(parts.get(2, b"")) if wire == _BYTES]
        name = parts.get(1, b"").decode("utf-8")
        features[name] = _values(*lists[-1]) if lists else []
    return features


class ExampleCodec:
    """Decodes the columns as arrays of their shape and dtype; without columns, all that a record holds."""

    def __init__(
        self,
        features: Sequence[Column],
        labels: Sequence[Column],
        where: str,
        *,
        labels_optional: bool = False,
    ) -> None:
        self._columns = [*features, *labels]
        self._optional = {column.name for column in labels} if labels_optional else set()
        self._where = where

    def decode(self, record: bytes, number: int) -> Mapping[str, Any]:
        """The columns by name. Raises BadData with the record's `number`."""
        who = f"Record {number} of {self._where}"
        try:
            found = parse(record)
        except (Malformed, UnicodeDecodeError) as error:
            raise BadData(f"{who} is no tf.train.Example: {error}. Is it --codec_type=bytes?") from error
        if not self._columns:
            return found
        columns = {}
        for column in self._columns:
            if column.name in found:
                columns[column.name] = self._as(column, found[column.name], who)
            elif column.name not in self._optional:
                raise BadData(f"{who} has no feature {column.name!r}; it has {', '.join(sorted(found))}")
        return columns

    def _as(self, column: Column, values: list[bytes] | Array, who: str) -> Array:
        if isinstance(values, list):  # raw bytes of the array, as images are often kept
            raw = b"".join(values)
            if len(raw) != column.size:
                raise BadData(f"{who}: feature {column} has {len(raw)} bytes, not {column.size}")
            return np.frombuffer(raw, column.dtype).reshape(column.shape)
        if values.size != column.count:
            raise BadData(f"{who}: feature {column} has {values.size} values, not {column.count}")
        return values.astype(column.dtype).reshape(column.shape)
