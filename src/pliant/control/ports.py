"""The protocols and records by which the loop reaches store, engines, devices and clock."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pliant.control.errors import BadRequest
from pliant.control.fractions import TaskUse
from pliant.control.submit.variables import Sealed, Variables
from pliant.model.asset import Asset
from pliant.model.audit import AuditRecord
from pliant.model.event import Event
from pliant.model.fact import Fact
from pliant.model.identity import (
    AccessKey,
    AccessRule,
    Allowance,
    Application,
    CustomRole,
    EndedSession,
    LoginSession,
    User,
)
from pliant.model.ledger import Usage
from pliant.model.machine import Cluster, Node
from pliant.model.notice import MailServer, Notice, Subscription
from pliant.model.order import Resize, Start, Stop
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.sample import Sample
from pliant.model.workload import Attempt, AttemptId, Launch, Workload
from pliant.sched.world.rows import Row as WorldRow

AccessRow = User | Application | AccessKey | AccessRule | LoginSession | Allowance | CustomRole | EndedSession
NoticeRow = Subscription | Notice | MailServer
Row = WorldRow | Cluster | Attempt | Progress | PriorityClass | Asset | AccessRow | Usage | NoticeRow
"""Everything that is stored by identity: a put replaces the row with the same identity."""


R = TypeVar("R", bound=Row)


class StaleEpoch(Exception):
    """Another server leads now; nothing was written. This server must stop."""


class StoreLost(Exception):
    """The store cannot be reached now; the last transaction may have been written or not."""


class StoreClosed(Exception):
    """This server is ending and has closed the store; nothing was read or written."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer that was given to a request with an `Idempotency-Key`."""

    key: str
    fingerprint: str  # of the request it answered
    status: int
    body: str  # JSON
    at: int  # ms


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What the processes of one task use."""

    cpu: int | None  # millicores, over the last moments; None: seen only once so far
    memory: int  # resident bytes of main memory; shared pages count for each process


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What all processes together use of one GPU, as its driver reports it."""

    busy: int  # percent of the time
    memory: int  # bytes


@dataclass(frozen=True, slots=True)
class Stray:
    """A process on a GPU that belongs to no task."""

    pid: int
    start: int  # ticks after boot; a pid and start never occur twice
    uid: int
    user: str  # name of that account, or its number
    program: str
    memory: Mapping[str, int]  # bytes by GPU (uuid)


@dataclass(frozen=True, slots=True)
class Load:
    """What is used now, as far as it can be measured."""

    tasks: Mapping[AttemptId, TaskLoad] = field(default_factory=dict)
    gpus: Mapping[str, GpuLoad] = field(default_factory=dict)  # by uuid


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a workload's files are on its node."""

    working_dir: str  # its tasks start there
    job: str
    logs: str | None  # of all tasks and attempts; None if only the server can open it


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of a deleted workload that can still be restored."""

    workload: str  # id
    name: str
    project: str  # name
    deleted: int  # ms
    size: int  # bytes of its job folder
    path: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction. When `commit` returns, it is on disk as a whole; otherwise nothing of it is."""

    put: Sequence[Row | Remembered] = ()
    drop: Sequence[Row] = ()
    events: Sequence[Event] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    audit: Sequence[AuditRecord] = ()
    samples: Sequence[Sample] = ()
    durable: bool = True  # False: a power failure may lose it as a whole, never a part of it


@dataclass(frozen=True, slots=True)
class Saved:
    """All rows from which the world is built, without ended attempts and deleted workloads."""

    rows: Sequence[Row]  # by kind; rows that others refer to come first
    settings: Mapping[str, str]

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """The rows of one kind."""
        return tuple(row for row in self.rows if isinstance(row, kind))

    @property
    def cluster(self) -> Cluster | None:
        """The newest one; None in a fresh store."""
        return max(self.of(Cluster), key=lambda row: row.created, default=None)


@dataclass(frozen=True, slots=True)
class Stranger:
    """An attempt that an engine found and the store does not know."""

    id: AttemptId
    order: Mapping[str, Any]  # the order that its start left on disk; {} if there is none
    gpus: tuple[str, ...]  # those that it was last told to use
    allows: Callable[[str], bool] = lambda project: True  # True if its order may name that project
    over: bool = False  # True: it has ended, and the store must still record how


class Store(Protocol):
    """One writer, many readers. All methods are safe to call from any thread."""

    def lead(self) -> int:
        """Raise the epoch by one and return it; from now on `commit` refuses every lower one."""

    def outrank(self, epoch: int) -> None:
        """Raise the epoch to at least this one, so that `lead` returns only higher ones."""

    def commit(self, epoch: int, batch: Batch) -> None:
        """Write it, or raise StaleEpoch (nothing written) if a higher epoch leads."""

    def load(self) -> Saved: ...

    def events(self, subject: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Event]]:
        """(sequence number, event), oldest first."""

    def happened(
        self, since: int, *, before: int | None = None, limit: int = 500
    ) -> Sequence[tuple[int, Event]]:
        """(sequence number, event) of all subjects since `since` (ms) below number `before`; newest first."""

    def audited(
        self, since: int, until: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, AuditRecord]]:
        """(sequence number, record) from `since` to before `until` (ms), oldest first."""

    def samples(self, step: int, since: int, until: int, subject: str | None = None) -> Sequence[Sample]:
        """Samples of a step (ms) after `since` up to `until` (ms), of one subject or of all; oldest first."""

    def attempts(self, *workloads: str) -> Sequence[Attempt]:
        """All attempts of these workloads, ended ones too, sorted by workload, task and number."""

    def ended(self, project: str | None = None, limit: int = 500) -> Sequence[Workload]:
        """Deleted workloads still remembered, newest first."""

    def remembered(self, key: str) -> Remembered | None: ...

    def prune(self, before: int) -> int:
        """Delete history, ended attempts and deleted workloads older than `before` (ms); how many rows."""

    def prune_audit(self, before: int) -> int:
        """Delete audit records older than `before` (ms); how many."""

    def prune_samples(self, step: int, before: int) -> int:
        """Delete samples of that step (ms) older than `before` (ms); how many."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy of the store, also while it is in use."""

    def close(self) -> None: ...


class Session(Protocol):
    """One command run inside a task's environment."""

    def read(self, timeout: float) -> bytes | None:
        """Output; b'' at its end; None if nothing came within `timeout` seconds."""

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def resize(self, rows: int, columns: int) -> None: ...
    def exit_code(self) -> int | None: ...
    def kill(self) -> None: ...


class Tunnels(Protocol):
    """Connections to programs that listen in tasks with network addresses of their own."""

    def connect(self, attempt: AttemptId, port: int) -> Session:
        """A connection, which `kill` closes. Raises ValueError or OSError if there cannot be one."""


class Input(Protocol):
    """The standard input of one running task. Both raise ValueError if it takes no more input."""

    def send(self, data: bytes, *, stream: int, at: int, end: bool) -> int:
        """How many bytes were taken, plus 1 for the end; the caller sends the rest in the next call.

        `at` counts the bytes that the sender `stream` sent before, so that bytes sent twice arrive once.
        """

    def resize(self, rows: int, columns: int) -> None: ...


Sink = Callable[[Fact], None]


class Engine(Protocol):
    """Runs tasks: observes, starts, resizes, stops, execs and streams logs; it decides nothing.

    start, stop and resize return at once, may be repeated, and answer with facts to the sink on any thread.
    """

    name: str

    @property
    def tunnels(self) -> Tunnels | None:
        """None if tasks listen on the ports of the server's own machine."""

    def open(self, sink: Sink, known: Iterable[Attempt], epoch: int) -> None:
        """Begin: report every node, then facts for each known attempt that is not recorded as ended:
        AttemptStarted if it lives, AttemptEnded if it ended or was lost, nothing if it was never started."""

    def start(self, order: Start) -> None: ...
    def stop(self, order: Stop) -> None: ...
    def resize(self, order: Resize) -> None:
        """Report AttemptResized once what the attempt loses is unused; after the deadline, make it so."""

    def register(self, attempt: AttemptId, pid: int) -> None:
        """Note the job's agent process, which follows the allocation document and uses no device itself."""

    def acknowledge(self, attempt: AttemptId, gpus: Sequence[str]) -> None:
        """The job has reported that it left these devices: check now. This only ever shortens the wait."""

    def recorded(self, attempt: AttemptId) -> None:
        """The attempt's end is on disk: delete what was kept only to report it."""

    def answer(self, workload: str, why: str, *, taken: bool) -> None:
        """The outcome for work that it found: `taken` as a workload (which waits if `why`), or not taken."""

    def refuse(self, launch: Launch, variables: Variables) -> BadRequest | None:
        """Why this engine can never run that; None if it can."""

    def seal(self, workload: str, sealed: Sealed) -> None:
        """Keep the values of a workload's environment variables on disk until `forget`. Raises OSError.

        An empty `sealed` drops what was kept.
        """

    def sealed(self, workload: str) -> bool:
        """True if it still has what `seal` stored for that workload."""

    def retain(self, workloads: Container[str]) -> None:
        """Drop what was sealed for all other workloads: their submissions were never recorded."""

    def unseen(self, launch: Launch) -> bool:
        """True if a task has to start in `launch.seen` and that folder is gone or is another one."""

    def notice(self, launch: Launch) -> str | None:
        """What the submitter should know before it runs, for example that an image is unknown here."""

    def allocation(self, attempt: AttemptId, document: Mapping[str, object]) -> None:
        """Write the allocation document into the attempt's folder."""

    def timed(self, attempt: AttemptId) -> bool:
        """False if a release that recorded no times wrote its log."""

    def logs(
        self,
        attempt: AttemptId,
        *,
        follow: bool,
        tail: int | None,
        since: int | None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """Log output; with `follow` yields b'' while waiting and ends when the attempt has ended.

        With `timestamps` each line begins with the time of its arrival, or `-` if that was not recorded.
        """

    def exec(
        self, attempt: AttemptId, argv: Sequence[str], *, tty: bool, stdin: bool, rows: int, columns: int
    ) -> Session: ...

    def signal(self, attempt: AttemptId, number: int) -> None:
        """Signal all processes of a running attempt. Raises ValueError or OSError if that fails."""

    def input(self, attempt: AttemptId) -> Input:
        """Raises ValueError if tasks of this engine take no input."""

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        """What living tasks use of their shares of GPUs, as last observed."""

    def load(self) -> Load:
        """What living tasks use of their node now; may take half a second."""

    def forget(self, workload: Workload) -> None:
        """Move the files and logs of a workload without live tasks to the trash, or remove them if it has
        `purge`.

        Raises ValueError if a task of it lives, and OSError; may be repeated.
        """

    def folders(self, workload: Workload) -> Folders | None:
        """Where its files are; None if its tasks have no folders."""

    def leaves(self, workload: Workload) -> Kept | None:
        """What `forget` would keep of it; None if it has no files."""

    def trash(self) -> Sequence[Kept]:
        """The kept files, oldest first."""

    def restore(self, kept: Kept) -> str:
        """Restore files and logs; the folder in which they are now. Raises OSError."""

    def sweep(self, before: int, room: int) -> Sequence[Kept]:
        """Remove for good what was deleted before `before` (ms), then the oldest of the trash while less than
        `room` thousandths of its disk are free; what was removed."""

    def close(self) -> None:
        """Release everything; tasks continue to run."""


class Devices(Protocol):
    """The GPUs of this machine."""

    simulated: bool

    def nodes(self) -> Sequence[Node]: ...


class Clock(Protocol):
    def now(self) -> int:
        """Ms since the epoch."""


class Halt(Protocol):
    """Named points at which tests stop or kill the server; does nothing in production."""

    def __call__(self, point: str) -> None: ...
