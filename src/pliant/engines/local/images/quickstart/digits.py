"""The bundled digits, and which of them make up a step's batch.

Everything is a function of (seed, step): batches come from an endless sequence of shuffled epochs, and each
step draws new pixel noise. Random numbers are computed here, from a counter, so that they are the same with
every version of NumPy.
"""

import zlib
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from .settings import BATCH, PIXELS

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]

TRAINING: Final = 1500  # number of records to train on, the first ones; the rest is held out
NOISE: Final = 0.6  # greatest change of a pixel, whose range is 0..1; keeps the loss from reaching zero


def uniform(key: tuple[int, int, int], count: int) -> Floats:
    """The first `count` numbers in [0, 1) of the stream that `key` names (the SplitMix64 generator)."""
    state = np.uint64(0)
    with np.errstate(over="ignore"):
        for part in key:
            state = _mix((state ^ np.array([part], dtype=np.uint64)) + _GAMMA)[0]
        words = _mix(state + np.arange(1, count + 1, dtype=np.uint64) * _GAMMA)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Digits:
    """The records, scaled to 0..1, with the batches of one seed."""

    def __init__(self, seed: int) -> None:
        packed = Path(__file__).with_name("digits.bin").read_bytes()
        raw = np.frombuffer(zlib.decompress(packed), dtype=np.uint8)
        self.records = raw.size // (PIXELS + 1)
        self._pixels = raw[: self.records * PIXELS].reshape(self.records, PIXELS) / 16.0
        self._labels = raw[self.records * PIXELS :].astype(np.intp)
        self._seed = seed
        self._epoch = -1  # the epoch that _order belongs to
        self._order: Labels = np.empty(0, dtype=np.intp)

    def batch(self, step: int) -> tuple[Floats, Labels]:
        """Pixels with noise and labels of the BATCH records of `step`."""
        places = range(step * BATCH, (step + 1) * BATCH)
        chosen = np.array([self._record(*divmod(place, TRAINING)) for place in places], dtype=np.intp)
        noise = uniform((self._seed, 2, step), BATCH * PIXELS).reshape(BATCH, PIXELS)
        return self._pixels[chosen] + NOISE * (2.0 * noise - 1.0), self._labels[chosen]

    def held_out(self) -> tuple[Floats, Labels]:
        """Pixels and labels of the records that no batch contains."""
        return self._pixels[TRAINING:], self._labels[TRAINING:]

    def _record(self, epoch: int, place: int) -> int:
        if epoch != self._epoch:
            self._order = np.argsort(uniform((self._seed, 1, epoch), TRAINING), kind="stable")
            self._epoch = epoch
        return int(self._order[place])
