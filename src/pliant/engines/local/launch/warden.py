"""Sends orders to the warden, which is root on a shared machine; the contract is docs/reference/warden.md."""

import array
import errno
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from pliant.model.workload import AttemptId

MAGIC, VERSION = 0x444C5750, 3
ORDER = struct.Struct("=4IQ2I3Q2Q4I64s96s64s4096s1024s128I")
ANSWER = struct.Struct("=2I2i2I5Q512s")
DEVICES = 64
SECONDS = 40  # the warden gives up on an order after 30
TTY, STDIN, END = 1, 2, 4


class Verb(IntEnum):
    START = 1
    EXEC = 2
    SIGNAL = 3
    LIMITS = 4
    LIST = 5
    DISCARD = 6
    STRAY = 7


class Refused(OSError):
    """The warden refused the order: errno and a sentence."""


class Away(OSError):
    """There is no warden, or it went away before it answered."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The account that an attempt runs as. An account with the same uid and another name is not the owner."""

    uid: int
    name: str


@dataclass(frozen=True, slots=True)
class Walls:
    """The limits of a job; 0: no limit, for processes the warden's default."""

    memory: int = 0  # bytes
    cpu: int = 0  # millicores: its weight against other jobs
    processes: int = 0
    devices: tuple[tuple[int, int], ...] = ()  # (major, minor) of the cards that it may open


@dataclass(frozen=True, slots=True)
class Group:
    """What the kernel reports about a job's control group."""

    uid: int
    attempt: AttemptId
    populated: bool
    oom: int  # processes killed for want of memory
    peak: int  # bytes
    limit: int  # bytes; 0: none
    unforked: int  # how often another process was refused
    processes: int  # limit on their number


@dataclass(frozen=True, slots=True)
class Met:
    """Limits that an attempt ran into. `oom`: it was killed for want of memory."""

    oom: bool = False
    text: str = ""


@dataclass(slots=True)
class Answer:
    """`connection` is open if a second answer follows."""

    pid: int
    status: int
    oom: int
    peak: int
    limit: int
    unforked: int
    processes: int
    fds: list[int] = field(default_factory=list)
    connection: socket.socket | None = None

    def met(self) -> Met:
        texts = []
        if self.oom:
            texts.append(f"it used {_size(self.peak)} of the {_size(self.limit)} that it may have")
        if self.unforked:
            refused = "another was refused" + (f" {self.unforked} times" if self.unforked > 1 else "")
            texts.append(f"it had the {self.processes} processes that it may have, and {refused}")
        return Met(bool(self.oom), "; ".join(texts))


def _size(amount: int) -> str:
    """With one decimal: the use of a killed job is just below its limit."""
    power, unit = (30, "GiB") if amount >= 2**30 else (20, "MiB")
    return f"{amount / 2**power:.1f} {unit}"


def launch(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """A descriptor with a command and its environment, so that no argument or message has the values."""
    words = [*map(os.fsencode, argv), *(os.fsencode(f"{name}={value}") for name, value in env.items())]
    if any(b"\0" in word for word in words):
        raise ValueError("a word of the command or a variable has a null byte")
    fd = os.memfd_create("launch", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(struct.pack("=2I", len(argv), len(env)) + b"".join(word + b"\0" for word in words))
    except OSError:
        os.close(fd)
        raise
    return fd


@dataclass(frozen=True, slots=True)
class Warden:
    """One connection for each order. Every method raises Refused or Away."""

    path: Path

    def ask(
        self,
        verb: Verb,
        epoch: int,
        *,
        attempt: AttemptId | None = None,
        owner: Owner | None = None,
        walls: Walls = Walls(),
        fds: Sequence[int] = (),
        flags: int = 0,
        cwd: str = "",
        folder: str = "",
        grace: int = 0,
        log_max: int = 0,
        log_keep: int = 0,
        umask: int = 0o022,
        signal: int = 0,
        keep: bool = False,
    ) -> Answer:
        """`grace` in ms, `log_max` in bytes. `keep`: the caller takes the connection."""
        workload, task, number = attempt or AttemptId("", "", 0)
        uid, name = (owner.uid, owner.name) if owner else (0, "")
        if len(walls.devices) > DEVICES:
            raise Refused(errno.E2BIG, f"more than {DEVICES} devices")
        numbers = [word for device in walls.devices for word in device]
        texts = [
            _room(text, room)
            for text, room in (
                (workload, 64), (task, 96), (name, 64), (cwd, 4096), (folder, 1024),
            )
        ]  # fmt: skip
        words = (MAGIC, VERSION, verb, flags, epoch, uid, number, walls.memory, walls.cpu, walls.processes)
        tail = (grace, log_max, log_keep, umask, len(walls.devices), signal)
        message = ORDER.pack(*words, *tail, *texts, *numbers, *[0] * (2 * DEVICES - len(numbers)))
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            link.settimeout(SECONDS)
            link.connect(str(self.path))
            socket.send_fds(link, [message], list(fds))
            answer = receive(link)
        except Refused:
            link.close()
            raise
        except OSError as error:
            link.close()
            raise Away(error.errno or 0, f"the warden does not answer at {self.path}: {error}") from None
        if keep:
            answer.connection = link
        else:
            link.close()
        return answer

    def epoch(self) -> int:
        """The highest epoch that the warden has seen; orders need at least that one."""
        fd = os.memfd_create("list", os.MFD_CLOEXEC)
        try:
            return self.ask(Verb.LIST, 0, fds=(fd,)).limit
        finally:
            os.close(fd)

    def end_stray(self, epoch: int, pid: int, start: int, number: int) -> None:
        """Signal a process that holds a card and belongs to no task."""
        self.ask(
            Verb.STRAY, epoch, attempt=AttemptId("", "", pid), walls=Walls(processes=start), signal=number
        )

    def discard(self, epoch: int, workload: str, owner: Owner) -> None:
        """Remove its folders, also those of an account that is gone."""
        self.ask(Verb.DISCARD, epoch, attempt=AttemptId(workload, "", 0), owner=owner)

    def list(self, epoch: int) -> list[Group]:
        """The control groups of all jobs. Listing accepts any epoch."""
        fd = os.memfd_create("list", os.MFD_CLOEXEC)
        with open(fd, "r+", encoding="utf-8") as file:
            self.ask(Verb.LIST, epoch, fds=(fd,))
            file.seek(0)
            lines = [line.split() for line in file]
        found = []
        for uid, name, *numbers in lines:
            workload, task, number = name.split("/")
            populated, *facts = map(int, numbers)
            found.append(Group(int(uid), AttemptId(workload, task, int(number)), bool(populated), *facts))
        return found


def receive(link: socket.socket) -> Answer:
    """One answer; the caller owns its descriptors."""
    data, fds = _receive(link)
    if len(data) != ANSWER.size:
        for fd in fds:
            os.close(fd)
        raise Away(errno.EPIPE, "the connection ended before the answer")
    magic, version, error, pid, status, _, oom, peak, limit, unforked, processes, text = ANSWER.unpack(data)
    if (magic, version) != (MAGIC, VERSION):
        raise Away(errno.EPROTO, f"it speaks version {version}, this release speaks {VERSION}")
    if error:
        raise Refused(error, text.split(b"\0")[0].decode(errors="replace"))
    return Answer(pid, status, oom, peak, limit, unforked, processes, fds)


def _receive(link: socket.socket) -> tuple[bytes, list[int]]:
    room = array.array("i")
    data, control, _, _ = link.recvmsg(
        ANSWER.size + 1, socket.CMSG_SPACE(4 * room.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            room.frombytes(content[: len(content) - len(content) % room.itemsize])
    return data, list(room)


def _room(text: str, room: int) -> bytes:
    data = os.fsencode(text)
    if len(data) >= room or b"\0" in data:
        raise Refused(errno.ENAMETOOLONG, f"{text[:64]!r} does not fit into {room - 1} bytes")
    return data


def close(answer: Answer) -> None:
    """Close the descriptors that came with it."""
    for fd in answer.fds:
        with suppress(OSError):
            os.close(fd)
