"""Record files: any number of byte strings in one file that can be read in any order.

Layout: magic, the records one after another, the offset of each (little-endian u64, one more than records),
then their number, a CRC-32 of the offsets, and the magic again. A file that was cut off has no second magic.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pliant.train.errors import BadData

_MAGIC = b"PLIANTR1"
_TAIL = struct.Struct("<QI8s")


def write_records(path: str | Path, records: Iterable[bytes]) -> int:
    """Write a record file, whole or not at all; returns how many records it holds."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    offsets = [len(_MAGIC)]
    with aside.open("wb") as out:
        out.write(_MAGIC)
        for record in records:
            out.write(record)
            offsets.append(offsets[-1] + len(record))
        index = np.asarray(offsets, dtype="<u8").tobytes()
        out.write(index + _TAIL.pack(len(offsets) - 1, zlib.crc32(index), _MAGIC))
        out.flush()
        os.fsync(out.fileno())
    aside.rename(target)
    return len(offsets) - 1


class RecordFile:
    """The records of one or several files as a dataset; `decode` turns bytes into the model's input.

    Thread-safe (`os.pread`). Raises BadData for a file that is not a record file or was cut off.
    """

    def __init__(self, *paths: str | Path, decode: Callable[[bytes], Any] | None = None) -> None:
        if not paths:
            raise BadData("No record file was named")
        self._decode = decode
        self._files = [_opened(Path(path)) for path in paths]
        self._starts = np.cumsum([0, *(len(offsets) - 1 for _, offsets, _ in self._files)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        file = int(np.searchsorted(self._starts, index, side="right")) - 1
        fd, offsets, path = self._files[file]
        at = index - int(self._starts[file])
        start, stop = int(offsets[at]), int(offsets[at + 1])
        data = os.pread(fd, stop - start, start)
        if len(data) != stop - start:
            raise BadData(f"{path} was cut off while it was in use: record {at} is missing")
        return self._decode(data) if self._decode else data

    def close(self) -> None:
        """Close the files."""
        for fd, _, _ in self._files:
            os.close(fd)
        self._files = []


def _opened(path: Path) -> tuple[int, Any, Path]:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}") from error
    try:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, _TAIL.size, max(size - _TAIL.size, 0))
        if os.pread(fd, len(_MAGIC), 0) != _MAGIC:
            raise BadData(f"{path} is not a record file; pliant.train.write_records makes one")
        if len(tail) < _TAIL.size or tail[-8:] != _MAGIC:
            raise BadData(f"{path} was cut off: its index is missing. Write it again")
        count, crc, _ = _TAIL.unpack(tail)
        index = os.pread(fd, 8 * (count + 1), max(size - _TAIL.size - 8 * (count + 1), 0))
        if len(index) != 8 * (count + 1) or zlib.crc32(index) != crc:
            raise BadData(f"The index of {path} is damaged. Write the file again")
    except BaseException:
        os.close(fd)
        raise
    return fd, np.frombuffer(index, dtype="<u8"), path
