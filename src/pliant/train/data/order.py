"""The order of an epoch's records: a pure function of (seed, epoch) that is never stored and never changes.

A keyed bijection on [0, records): six Feistel rounds on the next even power of two, walked until the value
falls inside. Any slice costs only its own length, so no worker holds a permutation of a billion records.
"""

import hashlib
from typing import Any

import numpy as np

_ROUNDS = 6
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
        """Records at positions [start, stop); raises IndexError outside of the epoch."""
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
