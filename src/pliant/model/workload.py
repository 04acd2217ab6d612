"""What users submit, and the tasks and attempts it becomes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pliant.model.affinity import Affinity, Toleration
from pliant.model.hold import Dependency, Element, Limited
from pliant.model.machine import Placement
from pliant.model.origin import Origin, Owner
from pliant.model.quantity import GPU, Resources
from pliant.model.topology import Within
from pliant.model.volume import Volume

ELASTICDL = "ElasticDL"
"""A framework whose master starts alone, and whose workers come and go."""


class Kind(StrEnum):
    __hash__ = str.__hash__  # Enum.__hash__ is a Python call, and the core hashes kinds all the time

    TRAINING = "Training"
    WORKSPACE = "Workspace"
    INFERENCE = "Inference"
    DISTRIBUTED = "Distributed"


class Phase(StrEnum):
    """The state that a user sees; names of the API."""

    CREATING = "Creating"
    INITIALIZING = "Initializing"
    RESUMING = "Resuming"
    PENDING = "Pending"
    RUNNING = "Running"
    UPDATING = "Updating"
    DEGRADED = "Degraded"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    TERMINATING = "Terminating"
    DELETING = "Deleting"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    final: bool  # it has ended; stored, not computed: the core reads it all the time


class Desired(StrEnum):
    """What its owner wants of a workload."""

    RUNNING = "Running"
    STOPPED = "Stopped"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class Request:
    """What one task asks of one node. GPUs are asked for whole, as thousandths, or as memory of a device."""

    devices: int = 0  # how many devices
    portion: int = GPU  # thousandths of each; GPU = whole devices; ignored when `gpu_memory` is set
    gpu_memory: int = 0  # bytes of each device; 0: `portion` counts
    cpu: int = 0  # millicores
    memory: int = 0  # bytes
    portion_limit: int = 0  # the most a dynamic fraction may grow to; 0: its request
    gpu_memory_limit: int = 0
    owner: str = ""  # it shares a device only with parts of this owner; empty: with parts without one

    # Written out: requests are keys of many look-ups, and mypyc compiles no derived method.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[int, int, int, int, int, tuple[int, int, str]]:
        rest = self.portion_limit, self.gpu_memory_limit, self.owner
        return self.devices, self.portion, self.gpu_memory, self.cpu, self.memory, rest

    @property
    def shared(self) -> bool:
        """True if it can share its devices with others."""
        return self.devices > 0 and (self.gpu_memory > 0 or self.portion < GPU)

    @property
    def gpu(self) -> int:
        """Milli-GPUs; 0 for a memory request, whose portion depends on the device it lands on."""
        return 0 if self.gpu_memory else self.devices * self.portion

    @property
    def resources(self) -> Resources:
        return Resources(self.gpu, self.cpu, self.memory)


JOB_FOLDER = "@job"
"""As a working directory: the folder that the engine keeps for the workload."""


@dataclass(frozen=True, slots=True)
class SeenFolder:
    """A folder as the submitter's client saw it. In a container its path may mean another one."""

    path: str  # absolute
    device: int  # st_dev
    inode: int  # st_ino
    boot: str  # boot id of the machine: after a restart the numbers may differ


@dataclass(frozen=True, slots=True)
class Launch:
    """How a task is started. The scheduler never looks inside."""

    image: str  # empty: none, the command is a program of the node
    command: tuple[str, ...] = ()  # replaces the image's entry point
    args: tuple[str, ...] = ()  # appended to the entry point or the command
    variables: tuple[str, ...] = ()  # names of its environment variables; the engine has the values
    captured: tuple[str, ...] = ()  # names of those that come from the submitter's own environment
    working_dir: str = ""  # asked for: absolute, or JOB_FOLDER; empty: the image's, `seen`, or the job folder
    seen: SeenFolder | None = None  # where it was submitted, or `working_dir`, as the client saw it
    tty: bool = False
    stdin: bool = False
    grace: int = 30_000  # ms between SIGTERM and SIGKILL
    volumes: tuple[Volume, ...] = ()  # data that is there when it starts


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Equal tasks of one workload. Core: `min` tasks; asked for: up to `wanted`; bonus: up to `max`."""

    name: str
    request: Request
    min: int = 1
    wanted: int = 1
    max: int = 1  # min <= wanted <= max; that many task rows exist
    priority: int | None = None  # None: the workload's
    elastic: bool = False  # its one task holds 1 .. what its node can spare; wanted = request.devices
    live_resize: bool = False  # the task's GPUs can change without a restart
    at_once: int = 0  # so many tasks at a time, new ones as others succeed; 0: all `max` rows exist
    launch: Launch | None = None  # how its tasks are started; None: as the workload
    parent: str = ""  # the sub-group it belongs to; empty: the workload itself
    within: Within | None = None  # how close together its tasks are
    affinity: Affinity | None = None  # None: the workload's
    tolerations: tuple[Toleration, ...] = ()  # besides the workload's
    apart: str = ""  # label key: no two of its tasks on nodes of equal value; empty: the workload's


@dataclass(frozen=True, slots=True)
class SubGroup:
    """One level of a workload: task groups and sub-groups, `min` of which must be at their minimum."""

    name: str
    parent: str = ""  # the sub-group above it; empty: the workload itself
    min: int | None = None  # how many of its children must be at their own minimum; None: all
    within: Within | None = None  # how close together all of its tasks are


@dataclass(frozen=True, slots=True)
class Port:
    """Where a program listens. On one machine the tasks of a group take neighbouring ports by index."""

    container: int
    service: str = ""  # NodePort | LoadBalancer | ClusterIP | URL | Serving
    external: int = 0  # what was asked for; 0: nothing

    @property
    def public(self) -> bool:
        """True if its address is shown to users."""
        return self.service != "ClusterIP"


@dataclass(frozen=True, slots=True)
class Workload:
    """One submission. Identity is `id`: a deleted name is free at once."""

    id: str
    name: str
    project: str  # id
    kind: Kind
    launch: Launch
    groups: tuple[TaskGroup, ...]
    priority: int = 50
    preemptible: bool = True
    semi_preemptible: bool = False  # then not `preemptible`, but what it holds above its core may be taken
    background: bool = False  # then `preemptible`: runs on idle GPUs, counts nowhere, is evicted first
    pools: tuple[str, ...] = ()  # node pools by name, in the order to try; empty: the project's, then all
    node_type: str = ""  # value of the label run.ai/type; empty: any
    backoff_limit: int = 6  # failed attempts per task before the workload fails
    restart: bool = False  # start again also after exit 0
    backoff_exact: bool = False  # the limit was asked for: a recurring crash is retried, too
    terminate_after_preemption: bool = False
    grow_doubling: bool = False  # elastic by the 2021 rule: allocation doubles or halves
    framework: str = ""  # of a distributed workload: PyTorch | MPI | TF | XGBoost | JAX | ElasticDL
    ports: tuple[Port, ...] = ()  # where its program listens
    slots: int = 1  # MPI: ranks that are started inside each worker
    ends_with: str = ""  # the group whose success completes it; empty: its whole core
    subgroups: tuple[SubGroup, ...] = ()
    min_groups: int | None = None  # how many children of the workload itself are its core; None: all
    within: Within | None = None  # how close together all of its tasks are
    ttl: int | None = None  # ms after its end until it is deleted
    stale_grace: int | None = None  # ms a broken gang keeps its remains; -1: for ever; None: the setting
    preemption_delay: int = 0  # ms of waiting during which it takes nothing but bonus
    affinity: Affinity | None = None  # None: any node
    tolerations: tuple[Toleration, ...] = ()
    apart: str = ""  # label key: no two of all its tasks on nodes of equal value; empty: anywhere
    max_runtime: int | None = None  # declared ms of its run at most: backfill relies on it
    begin: int | None = None  # ms; it does not compete before
    after: tuple[Dependency, ...] = ()  # what it waits for
    after_any: bool = False  # one of them is enough
    keep_pending: bool = False  # a dependency that cannot be met does not cancel it: it waits for a new job
    element: Element | None = None  # its place in an array
    user: str = ""
    source: str = "CLI"
    category: str = ""
    priority_class: str = ""
    created: int = 0  # ms since the epoch
    serial: int = 0  # order of submission; unique
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    desired: Desired = Desired.RUNNING
    purge: bool = False  # once deleted, its files are removed at once instead of being kept for a while
    held: str = ""  # code of the reason why it is not started (reason.hold_of); empty: none
    limited: Limited | None = None  # set while it is held for a limit of its user
    phase: Phase = Phase.CREATING
    phase_since: int = 0  # ms
    phase_message: str = ""
    completed: int | None = None  # ms; set with a final phase
    deleted: int | None = None  # ms; set once its last attempt is gone
    ended_as: Phase | None = None  # the final phase that it reached; kept when it is deleted
    cancelled_by: str = ""  # who cancelled it; `desired` is then STOPPED, and its last phase FAILED
    owner: Owner | None = None  # None: submitted before owners were recorded
    origin: Origin | None = None  # None: it was submitted here
    shared: tuple[str, ...] = ()  # who may read its logs besides: `project`, or a user's name
    pending_ms: int = 0  # sums over all finished stays in the phase
    running_ms: int = 0

    @property
    def sealed(self) -> bool:
        """True if its engine keeps values of environment variables for it."""
        launches = (self.launch, *(group.launch for group in self.groups if group.launch is not None))
        return any(launch.variables or launch.captured for launch in launches)

    def group(self, name: str) -> TaskGroup:
        return next(group for group in self.groups if group.name == name)

    def launch_of(self, task: str) -> Launch:
        """How the task of that name is started."""
        name = task.rpartition("-")[0]
        return next((group.launch for group in self.groups if group.name == name), None) or self.launch


class TaskPhase(StrEnum):
    WAITING = "waiting"  # no attempt lives
    ORDERED = "ordered"  # an attempt is recorded; its start is not confirmed
    RUNNING = "running"
    STOPPING = "stopping"  # a stop is recorded; the attempt may still live
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    live: bool  # an attempt may hold devices
    over: bool  # it has ended for good


for _phase in Phase:
    _phase.final = _phase in (Phase.COMPLETED, Phase.FAILED)
for _state in TaskPhase:
    _state.live = _state in (TaskPhase.ORDERED, TaskPhase.RUNNING, TaskPhase.STOPPING)
    _state.over = _state in (TaskPhase.SUCCEEDED, TaskPhase.FAILED)
ORDERED: Final = TaskPhase.ORDERED  # in Python 3.11, access to a member by its Enum is a call
TaskKey = tuple[str, ...]
"""(workload, name) of a task. Always two: compiled code copies a tuple whose type names each element."""


@dataclass(slots=True, init=False, unsafe_hash=True)
class Task:
    """One process or pod of a workload, over all its attempts. Never changed.

    `claims` is what the scheduler has given it; `carries` what its attempt occupies until its end is seen.
    """

    workload: str  # id
    name: str  # `<group>-<index>`
    group: str
    index: int  # place in its group, from 0
    phase: TaskPhase = TaskPhase.WAITING
    claims: Placement | None = None
    carries: Placement | None = None  # set exactly while phase.live
    attempt: int = 0  # number of the present or last attempt; 0: none yet
    started: int | None = None  # ms; when the present attempt was seen to run
    first_started: int | None = None
    failures: int = 0  # failed attempts since the workload was last resumed
    last_code: int | None = None  # exit code of the previous attempt if it failed; else None
    ooms: int = 0  # how many of `failures` were out of memory
    retry_at: int | None = None  # ms; not started again before
    resizes: tuple[int, ...] = ()  # ms of the restarts for growth within the last 10 minutes
    short_runs: int = 0  # attempts in a row that soon succeeded, of what always starts again

    def __init__(  # written out, and not frozen: see Share
        self, workload: str, name: str, group: str, index: int, phase: TaskPhase = TaskPhase.WAITING,
        claims: Placement | None = None, carries: Placement | None = None, attempt: int = 0,
        started: int | None = None, first_started: int | None = None, failures: int = 0,
        last_code: int | None = None, ooms: int = 0, retry_at: int | None = None,
        resizes: tuple[int, ...] = (), short_runs: int = 0,
    ) -> None:  # fmt: skip
        self.workload = workload
        self.name = name
        self.group = group
        self.index = index
        self.phase = phase
        self.claims = claims
        self.carries = carries
        self.attempt = attempt
        self.started = started
        self.first_started = first_started
        self.failures = failures
        self.last_code = last_code
        self.ooms = ooms
        self.retry_at = retry_at
        self.resizes = resizes
        self.short_runs = short_runs

    @property
    def key(self) -> TaskKey:
        return (self.workload, self.name)

    def ordered(self, place: Placement) -> "Task":
        """Its row with its next attempt ordered at `place`; made field by field, which is twice as fast."""
        return Task(
            self.workload, self.name, self.group, self.index, ORDERED, place, place,
            self.attempt + 1, None, self.first_started, self.failures, self.last_code, self.ooms,
            self.retry_at, self.resizes, self.short_runs,
        )  # fmt: skip

    def stopping(self, claims: Placement | None, resizes: tuple[int, ...]) -> "Task":
        """Its row with the end of its attempt ordered."""
        return Task(
            self.workload, self.name, self.group, self.index, TaskPhase.STOPPING, claims, self.carries,
            self.attempt, self.started, self.first_started, self.failures, self.last_code, self.ooms,
            self.retry_at, resizes, self.short_runs,
        )  # fmt: skip


class AttemptId(NamedTuple):
    """The id of an attempt in orders, facts, logs and exit records."""

    workload: str
    task: str
    number: int

    def __str__(self) -> str:
        return f"{self.workload}/{self.task}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> "AttemptId":
        workload, task, number = text.split("/")
        return cls(workload, task, int(number))


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended, as its supervisor or its engine saw it."""

    at: int  # ms since the epoch
    code: int | None = None
    signal: int | None = None
    stopped: bool = False  # after our stop signal: neither success nor failure, whatever the code
    lost: bool = False  # it has no process left and no recorded exit
    error: str = ""  # why it could not be started, for people
    oom: bool = False  # the kernel killed it: out of memory
    max_rss: int = 0  # bytes of main memory of its largest process; 0: not known
    note: str = ""  # limits that it hit; else the last message to its programs about their GPU share

    @property
    def succeeded(self) -> bool:
        return self.code == 0 and not (self.stopped or self.lost or self.error)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One numbered run of a task. Recorded before any order leaves."""

    id: AttemptId
    placement: Placement
    epoch: int  # leadership under which it was ordered
    cause: str  # id of the decision to start it
    ordered: int  # ms
    started: int | None = None  # ms
    stop_cause: str = ""  # id of the decision to stop it; a stop is outstanding while set and `exit` is not
    stop_ordered: int | None = None
    exit: Exit | None = None
    resized: int | None = None  # ms; of the last live resize, since when it has held `placement`
    held_before: int = 0  # milli-GPU-ms that it held until then

    def held(self, now: int) -> int:
        """Milli-GPU-ms that it has held, until its end or until `now`."""
        since = self.resized if self.resized is not None else self.started
        if since is None:
            return 0
        lasts = (self.exit.at if self.exit is not None else now) - since
        return self.held_before + max(0, lasts) * self.placement.gpu
