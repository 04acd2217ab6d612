"""The columns of a record, and the codec `bytes`: their raw values, one after another in column order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.train.errors import BadData, BadSettings

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One named value of a record: an array of fixed shape."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """The number of values in it."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def size(self) -> int:
        """Its size in a record, in bytes."""
        return self.count * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype.name}{list(self.shape) if self.shape else ''}"


def numeric_column(key: str, shape: int | Sequence[int] = (), dtype: Any = "float32") -> Column:
    """A column of numbers. `dtype`: a NumPy or torch type, or its name. Raises BadSettings."""
    sides = (shape,) if isinstance(shape, int) else tuple(int(side) for side in shape)
    if any(side < 1 for side in sides):
        raise BadSettings(f"Column {key!r} has the shape {list(sides)}: every side is at least 1")
    kind = getattr(dtype, "as_numpy_dtype", dtype)
    try:
        found = np.dtype(kind if isinstance(kind, (type, np.dtype)) else str(kind).removeprefix("torch."))
    except TypeError as error:
        raise BadSettings(f"Column {key!r} has the dtype {dtype!r}, which NumPy does not know") from error
    if found.kind not in "biuf":
        raise BadSettings(f"Column {key!r} has the dtype {found}: only numbers and booleans have fixed bytes")
    return Column(str(key), sides, found.newbyteorder("<"))


def columns_of(value: Any, where: str) -> list[Column]:
    """The columns that a function of a model file returned: Column objects, (name, shape, dtype), or objects
    with key, shape and dtype. `where` names the function in errors. Raises BadSettings."""
    if not isinstance(value, (list, tuple)):
        raise BadSettings(f"{where} returned a {type(value).__name__}, it should be a list of columns")
    found = []
    for item in value:
        if isinstance(item, Column):
            found.append(item)
        elif isinstance(item, (tuple, list)) and 1 <= len(item) <= 3 and isinstance(item[0], str):
            found.append(numeric_column(*item))
        elif hasattr(item, "dtype") and (hasattr(item, "key") or hasattr(item, "name")):
            name = item.key if hasattr(item, "key") else item.name
            found.append(numeric_column(name, getattr(item, "shape", ()), item.dtype))
        else:
            raise BadSettings(
                f"{where} has {item!r} among its columns: write numeric_column('image', (28, 28), 'uint8')"
            )
    names = [column.name for column in found]
    for name in names:
        if names.count(name) > 1:
            raise BadSettings(f"{where} has two columns called {name!r}")
    return found


class BytesCodec:
    """Decodes records of the features' raw values, then the labels', little-endian, without gaps."""

    def __init__(
        self,
        features: Sequence[Column],
        labels: Sequence[Column],
        where: str,
        *,
        labels_optional: bool = False,
    ) -> None:
        """`where` names the data in errors; `labels_optional`: a record may end after its features."""
        self._columns = [*features, *labels]
        self._features = list(features)
        self._where = where
        self._size = sum(column.size for column in self._columns)
        self._least = sum(column.size for column in features) if labels_optional else self._size

    def decode(self, record: bytes, number: int) -> Mapping[str, Array]:
        """The columns by name. Raises BadData, with the record's `number`, for a record of another length."""
        if len(record) not in (self._size, self._least):
            parts = ", ".join(f"{column} = {column.size}" for column in self._columns)
            raise BadData(
                f"Record {number} of {self._where} has {len(record)} bytes, the columns take {self._size} "
                f"({parts}). Correct feature_columns() and label_columns(), or write the records again."
            )
        columns = self._columns if len(record) == self._size else self._features
        found, at = {}, 0
        for column in columns:
            values = np.frombuffer(record, column.dtype, column.count, at)
            found[column.name] = values.reshape(column.shape)
            at += column.size
        return found
