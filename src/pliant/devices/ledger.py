"""The ledger of one workload: the GPU memory of its processes. The shim counts it (native/shim/ledger.c).

The use is the sum of the live slots; a slot lives while its process holds an OFD lock on one byte of it.
The workload can write the file: false entries harm only itself, and nothing here trusts them.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAGIC, VERSION = b"PLNLEDGR", 1
SLOTS, MAX_GPUS, KINDS = 256, 8, ("context", "plain", "managed", "pool", "blocks", "arrays", "graphs")
_SLOT_LOCK = 1 << 20
_SLOT_AT, _SLOT_SIZE = 4096, 128
_CHARGED = _SLOT_AT + SLOTS * _SLOT_SIZE
_EXTRA = _CHARGED + MAX_GPUS * SLOTS * 8
_KIND = _EXTRA + MAX_GPUS * SLOTS * 8
SIZE = _KIND + SLOTS * MAX_GPUS * 8 * 8
_HEAD = struct.Struct("<8s4IQ128s")
_UUIDS = _HEAD.size
_SLOT = struct.Struct("<4I2Q16s2I8Q")
_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux


class LedgerError(Exception):
    """The file is no ledger: its message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one live process uses, in bytes by UUID of the GPU (without its prefix)."""

    pid: int  # as the process itself sees it
    name: str
    charged: dict[str, int]
    extra: dict[str, int]  # what the node saw beyond `charged`
    kinds: dict[str, dict[str, int]]
    peak: dict[str, int]
    refused: int  # number of allocations


def create(path: Path, workload: str) -> None:
    """Creates an empty ledger, all its space reserved. Raises OSError, also if the file system is full."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, SIZE)
        os.pwrite(descriptor, _HEAD.pack(b"", VERSION, SLOTS, 0, 0, 0, workload.encode()), 0)
        os.pwrite(descriptor, MAGIC, 0)  # last: a file that has it is complete
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def announce(path: Path, epoch: int) -> None:
    """Notifies running programs that gpu.conf is new. Raises FileNotFoundError or LedgerError."""
    with _mapped(path) as (at, _):
        struct.pack_into("<Q", at, 24, epoch)


def uses(path: Path, workload: str = "") -> list[ProcessUse]:
    """All living processes, of that workload if one is named. Raises FileNotFoundError or LedgerError."""
    with _mapped(path) as (at, descriptor):
        name = _HEAD.unpack_from(at)[6].split(b"\0", 1)[0].decode(errors="replace")
        if workload and name != workload:
            raise LedgerError(f"{path} belongs to another workload")
        return [_use(at, index) for index in _living(at, descriptor)]


def used(path: Path) -> dict[str, int]:
    """Bytes that the workload uses, by UUID without its prefix; {} if there is no file."""
    total: dict[str, int] = {}
    try:
        found = uses(path)
    except FileNotFoundError:
        return total
    for use in found:
        for uuid, amount in use.charged.items():
            total[uuid] = total.get(uuid, 0) + amount + use.extra[uuid]
    return total


def alive(path: Path) -> bool:
    """True if a process still holds a slot: its GPUs are not free then."""
    try:
        with _mapped(path) as (at, descriptor):
            return bool(_living(at, descriptor))
    except FileNotFoundError:
        return False


def observe(
    path: Path,
    uuid: str,
    seen: dict[int, int],
    before: dict[int, int],
    host_pids: dict[int, int] | None = None,
) -> dict[int, int]:
    """Enters what NVML sees on one GPU, bytes by pid of the machine. Returns `before` of the next call.

    Memory beyond the charge (contexts, modules) counts once two looks in a row see it: one look may fall
    between an allocation and its entry. host_pids: a process's own pid to the machine's, if they differ.
    """
    found: dict[int, int] = {}
    with _mapped(path) as (at, descriptor):
        names = _columns(at)
        if (column := names.get(uuid.split("-", 1)[-1])) is None:
            return found
        for index in _living(at, descriptor):
            slot = _SLOT_AT + index * _SLOT_SIZE
            (own,) = struct.unpack_from("<I", at, slot + 4)
            pid = (host_pids or {}).get(own, own)
            struct.pack_into("<I", at, slot + 8, pid)
            (charged,) = struct.unpack_from("<Q", at, _CHARGED + (column * SLOTS + index) * 8)
            found[pid] = max(0, seen.get(pid, 0) - charged)
            extra = min(before.get(pid, 0), found[pid])
            struct.pack_into("<Q", at, _EXTRA + (column * SLOTS + index) * 8, extra)
    return found


@contextmanager
def _mapped(path: Path) -> Iterator[tuple[mmap.mmap, int]]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_size < SIZE:
            raise LedgerError(f"{path} is cut short")
        with mmap.mmap(descriptor, SIZE) as at:
            magic, version, slots, *_ = _HEAD.unpack_from(at)
            if (magic, version, slots) != (MAGIC, VERSION, SLOTS):
                raise LedgerError(f"{path} is not a ledger of this version")
            yield at, descriptor
    finally:
        os.close(descriptor)


def _columns(at: mmap.mmap) -> dict[str, int]:
    (count,) = struct.unpack_from("<I", at, 16)
    found = {}
    for column in range(min(count, MAX_GPUS)):
        raw = at[_UUIDS + 16 * column : _UUIDS + 16 * (column + 1)].hex()
        found["-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))] = column
    return found


def _living(at: mmap.mmap, descriptor: int) -> list[int]:
    (high,) = struct.unpack_from("<I", at, 20)
    found = []
    for index in range(min(high, SLOTS)):
        (live,) = struct.unpack_from("<I", at, _SLOT_AT + index * _SLOT_SIZE)
        if live and locked(descriptor, _SLOT_LOCK + index):
            found.append(index)
    return found


def locked(descriptor: int, at: int) -> bool:
    """True if another open file holds the OFD lock on that byte: its process lives."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
    return bool(kind != fcntl.F_UNLCK)


def _use(at: mmap.mmap, index: int) -> ProcessUse:
    row = _SLOT.unpack_from(at, _SLOT_AT + index * _SLOT_SIZE)
    names = _columns(at)

    def number(where: int) -> int:
        return int(struct.unpack_from("<Q", at, where)[0])

    return ProcessUse(
        pid=row[1],
        name=row[6].split(b"\0", 1)[0].decode(errors="replace"),
        charged={uuid: number(_CHARGED + (k * SLOTS + index) * 8) for uuid, k in names.items()},
        extra={uuid: number(_EXTRA + (k * SLOTS + index) * 8) for uuid, k in names.items()},
        kinds={uuid: _kinds(at, index, k) for uuid, k in names.items()},
        peak={uuid: row[9 + k] for uuid, k in names.items()},
        refused=row[3],
    )


def _kinds(at: mmap.mmap, index: int, column: int) -> dict[str, int]:
    """Bytes by kind; plain allocations are what the others leave of the charge."""
    row = struct.unpack_from(f"<{len(KINDS)}Q", at, _KIND + (index * MAX_GPUS + column) * 64)
    (charged,) = struct.unpack_from("<Q", at, _CHARGED + (column * SLOTS + index) * 8)
    found = dict(zip(KINDS, row, strict=True))
    found["plain"] = max(0, charged - sum(row))
    return {kind: amount for kind, amount in found.items() if amount}
