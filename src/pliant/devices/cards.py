"""The simulated cards of one node: creates the file that the simulated drivers share, and reads its counts.

Layout and meaning: native/sim/card.h. A process uses it when PLIANT_SIM_CARDS names the file and the folder
of the simulated drivers comes first in LD_LIBRARY_PATH. On tmpfs it takes only the touched pages of 2.6 MiB.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pliant.devices.ledger import locked

MAGIC, VERSION = b"PLNTCARD", 1
MAX_GPUS, MAX_PROCESSES, MAX_TAGS, TRACE = 16, 512, 64, 65_536
DRIVERS = Path(__file__).parent / "bin" / "sim"  # libcuda.so.1 and libnvidia-ml.so.1, if they were built

_GPUS, _TAGS, _PROCESSES = 4096, 8192, 32_768
_TRACE = _PROCESSES + MAX_PROCESSES * 1024
SIZE = _TRACE + TRACE * 32
_HEAD = struct.Struct("<8s4IQ")
_GPU = struct.Struct("<64s64s6Q")
_KERNEL = struct.Struct("<2Q4I")
_KERNELS_AT = 48  # of card_head
_NOBODY = bytes(4)
_PROCESS_LOCK = 1 << 20  # the process of row N keeps byte _PROCESS_LOCK + N locked while it lives
_PROCESS = struct.Struct("<2I16s16QI")


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: memory in bytes; peak is the most that was ever in use; busy in ns of kernel time."""

    uuid: str
    name: str
    total: int
    reserved: int = 0
    used: int = 0
    peak: int = 0
    busy: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel that ran, or is due: start and end in ns of the card's clock."""

    start: int
    end: int
    pid: int
    gpu: int
    tag: str


def create(path: Path, cards: Sequence[Card], *, context: int = 0, virtual_clock: bool = False) -> None:
    """Writes the file, by rename. context: bytes that a context costs. Raises ValueError."""
    if not 1 <= len(cards) <= MAX_GPUS:
        raise ValueError(f"{len(cards)} simulated cards: a node has 1 to {MAX_GPUS}")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("xb") as file:
        file.truncate(SIZE)
        file.write(_HEAD.pack(MAGIC, VERSION, len(cards), int(virtual_clock), 0, context))
        for index, card in enumerate(cards):
            file.seek(_GPUS + index * 256)
            file.write(
                _GPU.pack(card.uuid.encode(), card.name.encode(), card.total, card.reserved, 0, 0, 0, 0)
            )
    fresh.chmod(0o600)
    fresh.rename(path)


class Cards:
    """Reads the file. `used` includes the memory of a killed process until a live process clears it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, or ValueError if it is no such file."""
        self._file = path.open("rb")
        try:
            self._at = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            if len(self._at) < SIZE or self._at[:8] != MAGIC:
                raise ValueError(f"{path} is not a file of simulated cards")
        except (OSError, ValueError):
            self._file.close()
            raise

    def close(self) -> None:
        self._at.close()
        self._file.close()

    def cards(self) -> tuple[Card, ...]:
        count = struct.unpack_from("<I", self._at, 12)[0]
        found = []
        for index in range(count):
            row = _GPU.unpack_from(self._at, _GPUS + index * 256)
            uuid, name, total, reserved, used, peak, _, busy = row
            found.append(Card(_text(uuid), _text(name), total, reserved, used, peak, busy))
        return tuple(found)

    def tags(self, gpu: int = 0) -> dict[str, tuple[int, int]]:
        """(bytes in use, most bytes ever in use) by tag: PLIANT_SIM_TAG of the process, else its attempt."""
        found = {}
        for index in range(MAX_TAGS):
            at = _TAGS + index * 320
            if name := _text(self._at[at : at + 64]):
                (used,) = struct.unpack_from("<Q", self._at, at + 64 + 8 * gpu)
                (peak,) = struct.unpack_from("<Q", self._at, at + 192 + 8 * gpu)
                found[name] = (used, peak)
        return found

    def processes(self) -> dict[str, dict[int, int]]:
        """Bytes by pid for each card (uuid), of live processes with a context or memory there."""
        uuids = [card.uuid for card in self.cards()]
        found: dict[str, dict[int, int]] = {uuid: {} for uuid in uuids}
        for index in range(MAX_PROCESSES):
            at = _PROCESSES + index * 1024
            if self._at[at : at + 4] == _NOBODY or not locked(self._file.fileno(), _PROCESS_LOCK + index):
                continue
            pid, _, _, *used, contexts = _PROCESS.unpack_from(self._at, at)
            for gpu, uuid in enumerate(uuids):
                if used[gpu] or contexts >> gpu & 1:
                    found[uuid][pid] = used[gpu]
        return found

    def kernels(self) -> list[Kernel]:
        """The last 65,536 kernels in the order of their arrival."""
        (count,) = struct.unpack_from("<Q", self._at, _KERNELS_AT)
        names = [_text(self._at[at : at + 64]) for at in range(_TAGS, _TAGS + MAX_TAGS * 320, 320)]
        found = []
        for number in range(max(0, count - TRACE), count):
            start, end, pid, gpu, tag, _ = _KERNEL.unpack_from(self._at, _TRACE + number % TRACE * 32)
            found.append(Kernel(start, end, pid, gpu, names[tag]))
        return found


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")
