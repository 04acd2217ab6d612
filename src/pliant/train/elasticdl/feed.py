"""Turns the records of a source into a model's minibatches, by the functions of its model file."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pliant.train.data.rows import Chance, Rows
from pliant.train.elasticdl.flags import PREDICTION, Flags
from pliant.train.elasticdl.modelfile import ModelFile
from pliant.train.elasticdl.source import open_records
from pliant.train.errors import BadSettings


class Decoded:
    """A source's records, decoded one at a time."""

    def __init__(self, records: Any, codec: Any) -> None:
        self._records, self._codec = records, codec

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Any:
        return self._codec(self._records[index], index)


class Feed(Rows):
    """Minibatches made by input_fn(records) or feed(records, mode)."""

    def __init__(self, records: Decoded, file: ModelFile, symbol: str, mode: str) -> None:
        super().__init__(records)
        self._records, self._file, self._symbol, self._mode = records, file, symbol, mode

    def take(self, indices: Sequence[int], chance: Chance | None = None) -> Any:
        """(features, labels) of these records; labels may be () in prediction."""
        records = self.read(indices, chance)
        made = self._file.call(self._symbol, records, self._mode)
        where = self._file.where(self._symbol)
        if self._mode == PREDICTION:
            made = made if isinstance(made, tuple) and len(made) == 2 else (made, ())
        elif not isinstance(made, tuple) or len(made) != 2:
            raise BadSettings(f"{where} gave a {type(made).__name__}, it should be (features, labels)")
        batch = tuple(tensors(part, where) for part in made)
        for tensor in _all(batch):
            if tensor.dim() == 0 or len(tensor) != len(records):
                raise BadSettings(
                    f"{where} was given {len(records)} records and made a tensor of shape "
                    f"{list(tensor.shape)}: its first side is to be the records"
                )
        return batch


def rows_of(file: ModelFile, flags: Flags, mode: str) -> Rows:
    """The records that the flags give for a mode. Raises BadData, BadSettings, BadModelFile."""
    where, flag = flags.records(mode)
    codec = file.codec(flags.codec, where, labels_optional=mode == PREDICTION)
    records = Decoded(open_records(where, flag), codec)
    for symbol in ("dataset_fn", "feed", "input_fn"):
        if file.has(symbol) and symbol != "dataset_fn":
            return Feed(records, file, symbol, mode)
        if file.has(symbol):
            made = Rows(file.call(symbol, records, mode))
            if not len(made):
                raise BadSettings(f"{file.where(symbol)} left none of the {len(records)} records of {where}")
            return made
    raise AssertionError("the contract was checked")


def tensors(value: Any, where: str) -> Any:
    """Arrays, numbers and lists as tensors, with dicts and tuples kept. Raises BadSettings."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        return {name: tensors(part, where) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(tensors(part, where) for part in value)
    try:
        array = np.asarray(value)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as error:
        raise BadSettings(f"{where} gave a {type(value).__name__} that is no tensor: {error}") from error


def _all(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in _all(part)]
