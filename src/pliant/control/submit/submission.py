"""Submissions: what a user requests, and the checks of it that need no server state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pliant.control.errors import BadRequest
from pliant.control.state.retries import ENDLESS
from pliant.control.submit.placing import Placing
from pliant.control.submit.sequence import Start
from pliant.control.submit.variables import Variables, check_variables
from pliant.model.priority import PREEMPTIBLE_BELOW, PRIORITIES
from pliant.model.quantity import GPU, format_bytes, plain, spell_gpus
from pliant.model.reason import Reason
from pliant.model.workload import ELASTICDL, Kind, Launch, Port, Request, SubGroup, Workload

NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LEAST_GPU_MEMORY = 100 * 10**6
"""Bytes; Run:ai refuses less."""

CPU_PER_GPU, CPU_ALONE = 1000, 100
MEMORY_PER_GPU, MEMORY_ALONE = 100 * 2**20, 100 * 10**6
"""Default millicores and bytes of a task, per GPU and without a GPU: spec of Run:ai."""

DEFAULT_PRIORITY = {Kind.WORKSPACE: "high", Kind.INFERENCE: "very-high"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """Several tasks that work together."""

    framework: str  # PyTorch | MPI | TF | XGBoost | JAX | ElasticDL
    workers: int = 1
    least: int | None = None  # fewest workers with which it runs; None: all
    most: int | None = None  # most workers, while GPUs are idle; None: `workers`
    slots: int = 1  # MPI: ranks inside each worker
    lead: bool = True  # a master beside the workers; MPI has its launcher, JAX none
    leader: "Submission | None" = (
        None  # how the master starts and what it requests; None: the framework's default
    )
    groups: "tuple[GroupAsk, ...]" = ()  # instead of a master and workers
    levels: tuple[SubGroup, ...] = ()  # of those groups
    least_groups: int | None = None  # groups and levels at the top that it needs to run; None: all


@dataclass(frozen=True, slots=True)
class GroupAsk:
    """A named group of equal tasks."""

    name: str
    each: "Submission"  # how each task starts, its request, priority and placing
    tasks: int = 1
    least: int | None = None  # None: all
    most: int | None = None  # None: `tasks`
    parent: str = ""  # the level it belongs to; empty: the workload


@dataclass(frozen=True, slots=True)
class Submission:
    """What a user asks for. None means: not stated."""

    project: str  # id or name
    launch: Launch
    kind: Kind = Kind.TRAINING
    name: str | None = None
    name_base: str | None = None  # generated as <base>-<index> or <base>-<12 hex>
    name_index: bool = False  # the smallest free index instead of hex digits
    gpus: int | None = (
        None  # milli-GPUs of `gpuDevicesRequest`, or a v1 `-g`: whole devices or a fraction of one
    )
    portion: int | None = None  # thousandths of each device
    gpu_memory: int | None = None  # bytes of each device
    portion_limit: int | None = None
    gpu_memory_limit: int | None = None
    cpu: int | None = None  # millicores
    memory: int | None = None  # bytes
    elastic: bool = False
    live_resize: bool = False
    distribution: Distribution | None = None
    replicas: int = 1  # of an inference
    ports: tuple[Port, ...] = ()
    runs: int | None = None  # independent tasks that must succeed
    at_once: int | None = None  # most of these at a time
    priority: str | None = None  # a name or a number
    class_value: int | None = None  # value of the priority class that `priority` names
    preemptible: bool | None = None
    semi_preemptible: bool = False  # only what it has above its minimum is preemptible
    pools: tuple[str, ...] = ()
    placing: Placing = field(default_factory=Placing)
    start: Start = field(default_factory=Start)
    backoff_limit: int | None = None
    restart: bool = False
    category: str = ""
    source: str = "CLI"
    fields: Mapping[str, Any] = field(default_factory=dict)  # attributes of the Workload, as they are
    variables: Variables = field(default_factory=Variables)
    card_owner: str = ""  # on a shared machine: the owner of its parts of GPUs; see share-across-users


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid submission: what `Service.check` returns and `submit` and `rehearse` take."""

    asked: Submission
    workload: Workload  # what it becomes, without what is known only when it is submitted
    notices: tuple[str, ...] = ()  # what its owner should know


@dataclass(slots=True)
class Accepted:
    """A submission that was recorded."""

    workload: Workload
    reason: Reason | None = None  # why it waits, by the plan recorded with it
    elements: tuple[str, ...] = ()  # names of the elements, if it is an array; `workload` is the first


def check_name(name: str, what: str = "workload") -> str:
    """The name, if it is a DNS-1035 label."""
    if not NAME.fullmatch(name):
        raise BadRequest(
            f"{name!r} cannot be the name of a {what}.",
            "Use 1 to 63 lower-case letters, digits and '-'; first a letter, last a letter or digit.",
            field="name",
        )
    return name


def request_of(ask: Submission) -> Request:
    """What each task asks for, checked."""
    devices, portion = 0, GPU
    if ask.gpu_memory is not None and ask.portion is not None:
        raise BadRequest(
            "A portion and an amount of GPU memory are both requested.",
            "Choose one of them.",
            field="spec.compute.gpuMemoryRequest",
        )
    if ask.gpus is not None:
        if ask.gpus < 0 or (ask.gpus == 0 and ask.portion is None and ask.gpu_memory is None):
            raise BadRequest(
                f"A job cannot ask for {ask.gpus // GPU} GPUs.",
                "Ask for 1 or more, for a fraction such as 0.5, or leave it out for a workload without GPUs.",
                field="spec.compute.gpuDevicesRequest",
            )
        if ask.gpus < GPU:
            if ask.portion is not None or ask.gpu_memory is not None:
                raise BadRequest(
                    "The fraction of a GPU is given twice.",
                    "Give it once.",
                    field="spec.compute.gpuPortionRequest",
                )
            devices, portion = (1, ask.gpus) if ask.gpus else (0, GPU)
        elif ask.gpus % GPU:
            raise BadRequest(
                f"{spell_gpus(ask.gpus)} cannot be requested: only whole GPUs or a fraction of one.",
                "Use a whole number, or less than 1.",
                field="spec.compute.gpuDevicesRequest",
            )
        else:
            devices = ask.gpus // GPU
    if ask.portion is not None:
        if not 0 < ask.portion <= GPU:
            raise BadRequest(
                f"{plain(ask.portion)} is not a portion of a GPU.",
                "Give a number above 0 and up to 1.",
                field="spec.compute.gpuPortionRequest",
            )
        devices, portion = max(devices, 1), ask.portion
    if ask.gpu_memory is not None:
        if ask.gpu_memory < LEAST_GPU_MEMORY:
            raise BadRequest(
                f"{format_bytes(ask.gpu_memory)} of GPU memory is too little to run anything.",
                "Request at least 100M.",
                field="spec.compute.gpuMemoryRequest",
            )
        devices = max(devices, 1)
        if devices > 1:
            raise BadRequest(
                "Several GPUs can be shared by portion only.",
                "Ask for a portion of each, or for memory of one GPU.",
                field="spec.compute.gpuMemoryRequest",
            )
    for limit, least, what in (
        (ask.portion_limit, portion, "portion"),
        (ask.gpu_memory_limit, ask.gpu_memory or 0, "GPU memory"),
    ):
        if limit is not None and limit < least:
            raise BadRequest(f"The limit on {what} is below the request.", "Raise the limit or leave it out.")
    cpu = ask.cpu if ask.cpu is not None else CPU_PER_GPU * devices or CPU_ALONE
    memory = ask.memory if ask.memory is not None else MEMORY_PER_GPU * devices or MEMORY_ALONE
    if cpu < 0 or memory < 0:
        raise BadRequest("CPU and memory cannot be negative.", "State what one task needs.")
    return Request(
        devices=devices,
        portion=portion,
        gpu_memory=ask.gpu_memory or 0,
        cpu=cpu,
        memory=memory,
        portion_limit=ask.portion_limit or 0,
        gpu_memory_limit=ask.gpu_memory_limit or 0,
    )


def priority_of(ask: Submission) -> tuple[int, str, bool]:
    """(value, name, preemptible) by Run:ai's rule: 100 and above is non-preemptible unless said otherwise."""
    name = ask.priority or DEFAULT_PRIORITY.get(ask.kind, "low")
    if ask.class_value is not None:
        value = ask.class_value
    elif name in PRIORITIES:
        value = PRIORITIES[name]
    elif name.isdigit():
        value = int(name)
    else:
        known = ", ".join(sorted(PRIORITIES, key=lambda word: PRIORITIES[word]))
        raise BadRequest(
            f"There is no priority {name!r}.",
            f"Choose one of {known}; or create it: pliant priorityclass create NAME --value N.",
            field="spec.priorityClass",
        )
    default = value < PREEMPTIBLE_BELOW if ask.priority else ask.kind in (Kind.TRAINING, Kind.DISTRIBUTED)
    if ask.distribution is not None and ask.distribution.framework == ELASTICDL:
        default = True  # its priority classes only order jobs
    return value, name, default if ask.preemptible is None else ask.preemptible


def check_preemptible(row: Workload) -> None:
    """Raise BadRequest if its preemptibility contradicts its other properties."""
    if row.background and not row.preemptible:
        raise BadRequest(
            "A background job gives way to every other job, so it is always preemptible.",
            "Leave out the preemptibility and a priority of 100 or more, or do not make it a background job.",
        )
    if row.semi_preemptible and (row.subgroups or row.min_groups is not None):
        raise BadRequest(
            "A job with levels of groups cannot be semi-preemptible: it has no single minimum to guarantee.",
            "Leave out the levels and minGroups, or make it preemptible or non-preemptible.",
        )


def backoff_of(ask: Submission) -> int:
    """Retries of a task after failures; an inference is always retried."""
    if ask.backoff_limit is not None:
        return ask.backoff_limit
    if ask.distribution is not None and ask.distribution.framework == ELASTICDL:
        return 0
    return {Kind.WORKSPACE: 0, Kind.INFERENCE: ENDLESS}.get(ask.kind, 6)


def check_times(row: Workload) -> None:
    """Raise BadRequest if one of its times is out of range."""
    if row.stale_grace is not None and row.stale_grace < -1:
        raise BadRequest(
            "A broken gang cannot be kept for a negative time.",
            "Give 0 or more; -1: for ever.",
            field="spec.staleGraceSeconds",
        )
    if row.preemption_delay < 0:
        raise BadRequest(
            "A preemption delay cannot be negative.", "Give 0 or more.", field="spec.preemptionDelaySeconds"
        )
    if row.max_runtime is not None and row.max_runtime < 1000:
        raise BadRequest(
            "The maximum runtime is below 1 s.",
            "Use 1s or more.",
            field="spec.maxRuntimeSeconds",
        )


def launch_of(ask: Submission) -> Launch:
    """How each task is started, checked, with the names of its variables."""
    launch = ask.launch
    if not (launch.image.strip() or launch.command or launch.args):
        raise BadRequest(
            "-i, --image must be set.",
            "Name an image, or a command: submit NAME -- COMMAND...",
            field="spec.image",
        )
    check_variables(ask.variables)
    return replace(
        launch,
        image=launch.image.strip(),
        variables=tuple(name for name, _ in ask.variables.given),
        captured=tuple(name for name, _ in ask.variables.captured),
    )


def check_ports(ask: Submission) -> tuple[Port, ...]:
    """Its ports. Raises BadRequest for an invalid or a repeated one."""
    numbers = [port.container for port in ask.ports]
    for number in numbers:
        if not 0 < number < 65_536:
            raise BadRequest(f"Invalid port {number}.", "Ports are 1 to 65535.", field="spec.ports")
        if numbers.count(number) > 1:
            raise BadRequest(f"Port {number} is named twice.", "Name each port once.", field="spec.ports")
    return ask.ports
