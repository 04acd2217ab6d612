"""Datasets as the library uses them: a length, and the records at given indices in that order."""

import csv
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pliant.train.errors import BadData, BadSettings, TrainError

READ_TRIES = 3


class Rows:
    """Any dataset: tensors or arrays of one length (alone, in a tuple or in a dict), or an object with len()
    and [i]. `collate` makes a batch from a list of records; the default is torch's."""

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None = None) -> None:
        from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

        if isinstance(data, DataLoader):
            raise BadSettings(
                "job.data() takes a dataset, not a DataLoader: pass loader.dataset, batch_size as "
                "global_batch, num_workers as workers, collate_fn as collate."
            )
        if isinstance(data, IterableDataset):
            raise BadSettings("An IterableDataset has no fixed order: give it len() and [i].")
        if isinstance(data, TensorDataset) and collate is None:
            data = data.tensors  # read as a whole rather than record by record
        self._data = data
        self._columns = _columns(data)
        if collate is not None and self._columns:
            raise BadSettings("collate= needs a dataset of records, with len() and [i]; these are columns.")
        self._collate = collate or default_collate
        if not self._columns and not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
            raise BadData(
                f"A {type(data).__name__} cannot be trained on: give tensors or arrays, or a dataset "
                "with len() and [i]. One that can only be iterated has no order that could be repeated."
            )
        lengths = {len(column) for column in self._columns}
        if len(lengths) > 1:
            raise BadData(f"The columns of the dataset differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self._columns[0]) if self._columns else len(self._data)

    def take(self, indices: Sequence[int], chance: "Chance | None" = None) -> Any:
        """The records at `indices` as one batch. Raises what the dataset raises. With `chance`, the dataset's
        random draws depend only on the seed, the epoch and the record."""
        if self._columns:
            places = torch.as_tensor(np.asarray(indices, dtype=np.int64))
            return _rebuild(self._data, lambda column: column.index_select(0, places))
        return self._collate(self.read(indices, chance))

    def read(self, indices: Sequence[int], chance: "Chance | None") -> list[Any]:
        """The records as a list, read one by one."""
        if chance is None:
            return [self._data[int(index)] for index in indices]
        with _own_randomness():
            records = []
            for index in indices:
                _seed_all(chance, int(index))
                records.append(self._data[int(index)])
            return records

    def whole(
        self, indices: Sequence[int], chance: "Chance | None" = None
    ) -> tuple[Any, list[int], dict[int, str]]:
        """(batch, indices in it, error by index for records that cannot be read in READ_TRIES tries)."""
        try:
            return self.take(indices, chance), list(indices), {}
        except TrainError:
            raise
        except Exception:  # noqa: BLE001 - a dataset may raise anything; the records to blame are found below
            bad: dict[int, str] = {}
            for index in indices:
                error = self._unreadable(int(index))
                if error is not None:
                    bad[int(index)] = error
            good = [int(index) for index in indices if int(index) not in bad]
            return (self.take(good, chance) if good else None), good, bad

    def _unreadable(self, index: int) -> str | None:
        for attempt in range(READ_TRIES):
            try:
                self.take([index])
            except Exception as error:  # noqa: BLE001 - it goes into the report
                if attempt == READ_TRIES - 1:
                    return f"{type(error).__name__}: {error}"
                time.sleep(0.05 * (attempt + 1))  # file servers fail now and then
            else:
                return None
        return None


Chance = tuple[int, int]  # (seed, epoch)


def _seed_all(chance: Chance, index: int) -> None:
    digest = hashlib.blake2b(f"pliant record 1 {chance[0]} {chance[1]} {index}".encode(), digest_size=8)
    seed = int.from_bytes(digest.digest(), "little") >> 1
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Restores the random state, so that the training's draws do not depend on the dataset's."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])


def _columns(data: Any) -> list[torch.Tensor]:
    if isinstance(data, torch.Tensor):
        return [data]
    if isinstance(data, np.ndarray):
        return [torch.from_numpy(data)]
    parts = list(data.values()) if isinstance(data, dict) else list(data) if isinstance(data, tuple) else []
    if parts and all(isinstance(part, (torch.Tensor, np.ndarray)) for part in parts):
        return [column for part in parts for column in _columns(part)]
    return []


def _rebuild(data: Any, pick: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(data, dict):
        return {name: _rebuild(part, pick) for name, part in data.items()}
    if isinstance(data, tuple):
        return tuple(_rebuild(part, pick) for part in data)
    return pick(data if isinstance(data, torch.Tensor) else torch.from_numpy(data))


def csv_rows(
    path: str | Path, label: str, *, features: Sequence[str] | None = None, integer: bool = True
) -> Rows:
    """The Rows (x, y) of a CSV file with a header: y is the column `label` (int64, or float32 unless
    `integer`), x the columns `features`, by default all others (float32). Raises BadData."""
    file = Path(path)
    x: list[list[float]] = []
    y: list[float] = []
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.reader(lines)
            header = next(reader, [])
            wanted = list(features) if features is not None else [name for name in header if name != label]
            missing = [name for name in [label, *wanted] if name not in header]
            if missing:
                raise BadData(
                    f"{file} has no column {missing[0]!r}; it has {', '.join(header) or 'no header'}"
                )
            places, at = [header.index(name) for name in wanted], header.index(label)
            for row in reader:
                try:
                    x.append([float(row[place]) for place in places])
                    y.append(float(row[at]))
                except (ValueError, IndexError) as error:
                    raise BadData(f"{file}, line {reader.line_num}: {error}") from error
    except OSError as error:
        raise BadData(f"{file} cannot be read: {error.strerror}") from error
    if not y:
        raise BadData(f"{file} has a header and no records")
    return Rows((torch.tensor(x), torch.tensor(y).to(torch.int64 if integer else torch.float32)))


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with all its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(part, device) for part in batch)
    return batch
