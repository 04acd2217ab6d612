"""The order of an epoch's records: a pure function of (records, seed, epoch), never stored, never changed.

A keyed bijection on [0, records): six Feistel rounds on the next even power of two, repeated until the value
is below `records`. A slice costs only its own length, so no worker holds a permutation of a billion records.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pliant.train.errors import BadData, BadSettings

_ROUNDS = 6
_BLOCK = 8192  # positions computed together
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # constants of the splitmix64 finalizer


class Order:
    """The order of one epoch; `indices(a, b)` are the records at its positions a to b - 1."""

    def __init__(self, records: int, seed: int, epoch: int, *, shuffle: bool = True) -> None:
        self.records = records
        self.shuffle = shuffle
        digest = hashlib.blake2b(f"pliant order 1 {seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
        self._half = np.uint64(max(1, ((records - 1).bit_length() + 1) // 2))
        self._mask = (np.uint64(1) << self._half) - np.uint64(1)

    def indices(self, start: int, stop: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The records at positions [start, stop). Raises IndexError outside of the epoch."""
        if not 0 <= start <= stop <= self.records:
            raise IndexError(f"positions {start} to {stop} of an epoch of {self.records} records")
        found = np.arange(start, stop, dtype=np.uint64)
        if self.shuffle and self.records > 1:
            found = self._turn(found)
            while (outside := found >= self.records).any():
                found[outside] = self._turn(found[outside])
        return found.astype(np.int64)

    def _turn(self, values: "np.ndarray[Any, np.dtype[np.uint64]]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            mixed = right + key
            mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
            mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & self._mask)
        return (left << self._half) | right


@lru_cache(maxsize=8)
def _block(records: int, seed: int, epoch: int, number: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    start = number * _BLOCK
    return Order(records, seed, epoch).indices(start, min(start + _BLOCK, records))


def positions_of(records: int, seed: int, epoch: int, start: int, stop: int) -> list[int]:
    """`Order(records, seed, epoch).indices(start, stop)`, cached in blocks for one step after another."""
    found: list[int] = []
    while start < stop:
        number, at = divmod(start, _BLOCK)
        part = _block(records, seed, epoch, number)[at : at + stop - start].tolist()
        found += part
        start += len(part)
    return found


class GivenOrder:
    """The order that a script gives: a function of the epoch with the same length in every epoch."""

    def __init__(self, function: Callable[[int], Sequence[int]], records: int) -> None:
        self._function, self._records = function, records
        self._epoch, self._ids = 0, self._checked(0)
        self._length = len(self._ids)

    def __len__(self) -> int:
        return self._length

    def fingerprint(self) -> str:
        """A hash of the first epoch's order: the master refuses workers with another one."""
        return hashlib.blake2b(np.asarray(self._ids, dtype="<i8").tobytes(), digest_size=8).hexdigest()

    def indices(self, epoch: int, start: int, stop: int) -> list[int]:
        """The records at positions [start, stop) of an epoch. Raises BadData if its length is another."""
        if epoch != self._epoch:
            ids = self._checked(epoch)
            if len(ids) != self._length:
                raise BadData(
                    f"order({epoch}) has {len(ids)} records, order(0) has {self._length}: an epoch must have "
                    "the same number of records each time."
                )
            self._epoch, self._ids = epoch, ids
        return self._ids[start:stop]

    def _checked(self, epoch: int) -> list[int]:
        ids = [int(index) for index in self._function(epoch)]
        if not ids:
            raise BadData(f"order({epoch}) is empty: there is nothing to train on.")
        if min(ids) < 0 or max(ids) >= self._records:
            raise BadSettings(
                f"order({epoch}) names record {min(ids) if min(ids) < 0 else max(ids)}; the dataset has "
                f"records 0 to {self._records - 1}."
            )
        return ids
