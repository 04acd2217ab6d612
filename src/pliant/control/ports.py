"""What the loop needs of the outside, and nothing of how it is done."""

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

AccessRow = User | Application | AccessKey | AccessRule | LoginSession | Allowance | CustomRole
NoticeRow = Subscription | Notice | MailServer
Row = WorldRow | Cluster | Attempt | Progress | PriorityClass | Asset | AccessRow | Usage | NoticeRow
"""Everything that is stored by identity: put() replaces what has the same identity."""


R = TypeVar("R", bound=Row)


class StaleEpoch(Exception):
    """Another server leads now; nothing was written. The only cure is to stop."""


class StoreLost(Exception):
    """The store cannot be reached now; what it was told last may be written or not."""


class StoreClosed(Exception):
    """This server has closed the store, because it ends; nothing was read or written."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer once given to an `Idempotency-Key`."""

    key: str
    fingerprint: str  # of the request it answered
    status: int
    body: str  # JSON
    at: int  # ms


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What the processes of one task use."""

    cpu: int | None  # millicores, over the last moments; None: seen once only
    memory: int  # bytes of main memory that are resident, shared ones counted for each process


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What all processes together use of one GPU, as its driver says."""

    busy: int  # percent of the time
    memory: int  # bytes


@dataclass(frozen=True, slots=True)
class Stray:
    """A process on a GPU that belongs to no task."""

    pid: int
    start: int  # ticks after boot: with the pid it is never used again
    uid: int
    user: str  # the name of that account, or its number
    program: str
    memory: Mapping[str, int]  # bytes by GPU (uuid)


@dataclass(frozen=True, slots=True)
class Load:
    """What is used now, where it can be measured."""

    tasks: Mapping[AttemptId, TaskLoad] = field(default_factory=dict)
    gpus: Mapping[str, GpuLoad] = field(default_factory=dict)  # by uuid


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a workload's files are on its node."""

    working_dir: str  # in which its tasks start
    job: str
    logs: str | None  # of all tasks and attempts; None where only the server can open it


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of a deleted workload, as long as they can be brought back."""

    workload: str  # id
    name: str
    project: str  # name
    deleted: int  # ms
    size: int  # bytes of its job folder
    path: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction. It is on disk as a whole when `commit` returns, or it never was."""

    put: Sequence[Row | Remembered] = ()
    drop: Sequence[Row] = ()
    events: Sequence[Event] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    audit: Sequence[AuditRecord] = ()
    samples: Sequence[Sample] = ()
    durable: bool = True  # False: may be lost with the machine's power, never torn


@dataclass(frozen=True, slots=True)
class Saved:
    """All rows from which the world is built. Ended attempts and deleted workloads are not among them."""

    rows: Sequence[Row]  # in the order of their kinds, what is referred to comes first
    settings: Mapping[str, str]

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """The rows of one kind."""
        return tuple(row for row in self.rows if isinstance(row, kind))

    @property
    def cluster(self) -> Cluster | None:
        """The newest; None in a fresh store."""
        return max(self.of(Cluster), key=lambda row: row.created, default=None)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A living attempt that the store does not know."""

    id: AttemptId
    order: Mapping[str, Any]  # what its start left on disk; empty if nothing is there
    gpus: tuple[str, ...]  # what it was told last that it has
    allows: Callable[[str], bool] = lambda project: True  # whether its order may be about that project (name)
    over: bool = False  # it has ended, and the store is to learn how


class Store(Protocol):
    """One writer, many readers. All methods are safe to call from any thread."""

    def lead(self) -> int:
        """Raise the epoch by one and return it: from now on every lower one is refused."""

    def outrank(self, epoch: int) -> None:
        """Give out no epoch any more that is not above this one."""

    def commit(self, epoch: int, batch: Batch) -> None:
        """Write it, or raise StaleEpoch (nothing written) if a higher epoch leads."""

    def load(self) -> Saved: ...

    def events(self, subject: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Event]]:
        """(sequence number, event), oldest first."""

    def happened(
        self, since: int, *, before: int | None = None, limit: int = 500
    ) -> Sequence[tuple[int, Event]]:
        """(sequence number, event) of all subjects since then (ms), newest first; those `before` a number."""

    def audited(
        self, since: int, until: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, AuditRecord]]:
        """(sequence number, record) of that time (ms), before `until`; oldest first."""

    def samples(self, step: int, since: int, until: int, subject: str | None = None) -> Sequence[Sample]:
        """Of that step (ms), after `since` and up to `until` (ms), of one subject or of all; oldest first."""

    def attempts(self, *workloads: str) -> Sequence[Attempt]:
        """All attempts of these workloads, ended ones too, by workload, task and number."""

    def ended(self, project: str | None = None, limit: int = 500) -> Sequence[Workload]:
        """Deleted workloads still remembered, newest first."""

    def remembered(self, key: str) -> Remembered | None: ...

    def prune(self, before: int) -> int:
        """Forget history, ended attempts and deleted workloads older than `before` (ms); how many rows."""

    def prune_audit(self, before: int) -> int:
        """Forget records of the audit older than `before` (ms); how many."""

    def prune_samples(self, step: int, before: int) -> int:
        """Forget samples of that step (ms) older than `before` (ms); how many."""

    def backup(self, target: Path) -> None:
        """A consistent copy of a store that is in use."""

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
    """Ways to programs that listen in tasks which have network addresses of their own."""

    def connect(self, attempt: AttemptId, port: int) -> Session:
        """A connection, which is closed by `kill`. Raises ValueError or OSError if there cannot be one."""


class Input(Protocol):
    """What is typed into one running task. Both raise ValueError if it takes no input any more."""

    def send(self, data: bytes, *, stream: int, at: int, end: bool) -> int:
        """How many bytes were taken, one more for the end; the rest is for the next call.

        `at` counts the bytes that the sender `stream` sent before: what comes a second time counts once.
        """

    def resize(self, rows: int, columns: int) -> None: ...


Sink = Callable[[Fact], None]


class Engine(Protocol):
    """What runs tasks. It observes, starts, resizes, stops, execs and streams logs; it decides nothing.

    start, stop and resize return at once, may be repeated, and answer by facts into the sink, any thread.
    """

    name: str

    @property
    def tunnels(self) -> Tunnels | None:
        """None: tasks listen on the ports of the server's own machine."""

    def open(self, sink: Sink, known: Iterable[Attempt], epoch: int) -> None:
        """Begin: report every node, then one fact or more for each known attempt that is not ended:
        AttemptStarted if it lives, AttemptEnded if it ended or was lost, nothing if it was never begun."""

    def start(self, order: Start) -> None: ...
    def stop(self, order: Stop) -> None: ...
    def resize(self, order: Resize) -> None:
        """AttemptResized follows once what goes is seen empty; after the deadline that is brought about."""

    def register(self, attempt: AttemptId, pid: int) -> None:
        """The job's agent is that process: it follows the allocation document and uses no device itself."""

    def acknowledge(self, attempt: AttemptId, gpus: Sequence[str]) -> None:
        """The job says that it has left these devices: look now. It only ever shortens the wait."""

    def recorded(self, attempt: AttemptId) -> None:
        """Its end is on disk: what was kept only to tell it may go."""

    def answer(self, workload: str, why: str, *, taken: bool) -> None:
        """Work that it found is a workload now (and waits, if there is a reason), or is not taken in."""

    def refuse(self, launch: Launch, variables: Variables) -> BadRequest | None:
        """Why this engine could never run that; None if it could."""

    def seal(self, workload: str, sealed: Sealed) -> None:
        """Keep the values of a workload's environment variables, durably, until it is forgotten. OSError.

        With nothing, what was kept is dropped.
        """

    def sealed(self, workload: str) -> bool:
        """True if it still has what `seal` was given for that workload."""

    def retain(self, workloads: Container[str]) -> None:
        """Drop what was sealed for any other workload: its submission was never recorded."""

    def unseen(self, launch: Launch) -> bool:
        """True if a task should start in `launch.seen` and would find another folder there, or none."""

    def notice(self, launch: Launch) -> str | None:
        """What the submitter should know before it runs, e.g. that an image is unknown here."""

    def allocation(self, attempt: AttemptId, document: Mapping[str, object]) -> None:
        """Write the allocation document into the attempt's folder."""

    def timed(self, attempt: AttemptId) -> bool:
        """False if its log was written by a release that noted no times."""

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

        With `timestamps` the time of its arrival stands before each line, or `-` where it was not recorded.
        """

    def exec(
        self, attempt: AttemptId, argv: Sequence[str], *, tty: bool, stdin: bool, rows: int, columns: int
    ) -> Session: ...

    def signal(self, attempt: AttemptId, number: int) -> None:
        """To all processes of a running attempt. Raises ValueError or OSError if they did not get it."""

    def input(self, attempt: AttemptId) -> Input:
        """Raises ValueError if nothing can be typed into tasks here."""

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        """What living tasks use of their shares of GPUs, as it was seen last."""

    def load(self) -> Load:
        """What living tasks use of their node now; may take a look of half a second."""

    def forget(self, workload: Workload) -> None:
        """Move files and logs of a workload of which nothing lives to the trash; if it is to be purged,
        remove them.

        Raises ValueError if something of it lives, and OSError; may be repeated.
        """

    def folders(self, workload: Workload) -> Folders | None:
        """None: its tasks have no folders."""

    def leaves(self, workload: Workload) -> Kept | None:
        """What `forget` would keep of it; None: it has no files."""

    def trash(self) -> Sequence[Kept]:
        """Oldest first."""

    def restore(self, kept: Kept) -> str:
        """Bring files and logs back; the folder in which they are from now on. Raises OSError."""

    def sweep(self, before: int, room: int) -> Sequence[Kept]:
        """Remove for good what was deleted before that time (ms), and the oldest of the trash while less than
        `room` thousandths of its disk are free; what went."""

    def close(self) -> None:
        """Let go; what runs goes on running."""


class Devices(Protocol):
    """What GPUs this machine has."""

    simulated: bool

    def nodes(self) -> Sequence[Node]: ...


class Clock(Protocol):
    def now(self) -> int:
        """Ms since the epoch; may be set back by people."""


class Halt(Protocol):
    """Named points at which tests stop or kill the server; does nothing in production."""

    def __call__(self, point: str) -> None: ...
