"""The sources of records: a folder of record files, or the bundled digits. No torch."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

import pliant
from pliant.train.data.record_files import RecordFile
from pliant.train.elasticdl.columns import Array
from pliant.train.errors import BadData, count

SIDE = 28  # pixels, as MNIST has them
SMALL = 8  # pixels of the bundled digits
HELD_OUT = 1500  # the bundled records from here on are for evaluation


class Digits(Sequence[bytes]):
    """The bundled digits in MNIST's shape: 28 x 28 grey bytes, then one label byte."""

    def __init__(self, first: int, stop: int, count: int | None = None) -> None:
        """The bundled records [first, stop); with `count`, repeated up to that number."""
        packed = Path(pliant.__file__).parent / "engines/local/images/quickstart/digits.bin"  # data, no code
        raw = np.frombuffer(zlib.decompress(packed.read_bytes()), dtype=np.uint8)
        total = raw.size // (SMALL * SMALL + 1)
        pixels = raw[: total * SMALL * SMALL].reshape(total, SMALL, SMALL)[first:stop]
        labels = raw[total * SMALL * SMALL :][first:stop, None]
        self._rows: Array = np.concatenate([_enlarged(pixels).reshape(len(pixels), -1), labels], axis=1)
        self._count = len(self._rows) if count is None else count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return bytes(self._rows[index % len(self._rows)])


def _enlarged(pixels: Array) -> Array:
    """8 x 8 pixels of 0..16 as 28 x 28 of 0..255: each pixel becomes 3 x 3, plus a margin of 2."""
    large = pixels.repeat(3, axis=1).repeat(3, axis=2).astype(np.uint16) * 16
    margin = (SIDE - 3 * SMALL) // 2
    return np.pad(np.minimum(large, 255).astype(np.uint8), ((0, 0), (margin, margin), (margin, margin)))


def open_records(where: str, flag: str) -> Sequence[bytes] | RecordFile:
    """Open `digits:N` (the first 1,500 digits, repeated), `digits:test` (the other 297), a folder of record
    files or one file. `flag` names the option in errors. Raises BadData if there are no records."""
    if where.startswith("digits:"):
        return _digits(where.removeprefix("digits:"), flag)
    path = Path(where)
    if not path.exists():
        raise BadData(f"--{flag}={where}: there is no such folder. Make it, or try --{flag}=digits:60000")
    hidden = (".", "_")  # files being written, and files of other programs
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(hidden))
    if not files:
        raise BadData(
            f"--{flag}={where}: the folder holds no record files. pliant.train.write_records makes them"
        )
    records = RecordFile(*files)
    if not len(records):
        raise BadData(f"--{flag}={where}: {count(len(files), 'record file')} without a record")
    return records


def _digits(text: str, flag: str) -> Digits:
    if text == "test":
        return Digits(HELD_OUT, 2000)
    if not text.isdigit() or int(text) < 1:
        raise BadData(f"--{flag}=digits:{text}: write how many records, as in digits:60000, or digits:test")
    return Digits(0, HELD_OUT, int(text))
