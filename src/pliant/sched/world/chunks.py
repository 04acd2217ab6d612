"""The types for what a workload asks for next and what it still lacks."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from pliant.model.quantity import Resources
from pliant.model.workload import Desired, Phase, Request, TaskGroup, TaskKey, Workload


class Step(IntEnum):
    """The steps of a workload: what is taken last comes first."""

    __hash__ = int.__hash__  # Enum.__hash__ is a Python call, and chunks are hashed all the time

    CORE = 0
    WANTED = 1
    BONUS = 2


# Read for each job: in Python 3.11, access to a member by its Enum is a call.
CORE: Final = Step.CORE
RUNNING: Final = Desired.RUNNING


# Constructors are written out: these are made for each workload, and mypyc compiles no derived one.
@dataclass(slots=True, init=False)
class Part:
    """What one task should get: a place for `request`, or (`extends`) so many more devices on its node."""

    task: TaskKey
    request: Request
    extends: bool
    most: int  # devices that the task would like in the end; its core prefers a node that has them

    def __init__(self, task: TaskKey, request: Request, extends: bool = False, most: int = 0) -> None:
        self.task = task
        self.request = request
        self.extends = extends
        self.most = most


@dataclass(slots=True, init=False)
class Chunk:
    """What a workload asks for next; all of it or nothing. Never changed once it is made."""

    workload: Workload
    step: Step
    parts: tuple[Part, ...]
    resources: Resources  # what it asks for; requests by GPU memory count no GPUs here: see admission.asked
    by_memory: bool  # some part asks for GPU memory
    extends: bool  # it is bound to the node where its task sits
    shape: int  # two chunks of equal shape (that do not extend) fit the same nodes
    reached: Step  # what its workload holds already: CORE below its core, WANTED at it, BONUS above it
    priority: int  # of its group; of a core the highest of its groups
    alone: bool  # it is all that its workload asks for, which holds nothing yet

    def __init__(
        self, workload: Workload, step: Step, parts: tuple[Part, ...], resources: Resources, by_memory: bool,
        extends: bool, shape: int, reached: Step, priority: int, alone: bool = False,
    ) -> None:  # fmt: skip
        self.workload = workload
        self.step = step
        self.parts = parts
        self.resources = resources
        self.by_memory = by_memory
        self.extends = extends
        self.shape = shape
        self.reached = reached
        self.priority = priority
        self.alone = alone


@dataclass(slots=True, init=False)
class Need:
    """What a workload holds, lacks and could have. Never changed once it is made."""

    chunk: Chunk | None  # its next core or wanted portion
    lacks: Resources  # what it lacks of core and wanted portions; for GPU memory requests see lacks_memory
    lacks_memory: tuple[tuple[Request, int], ...]  # (request by GPU memory, how often)
    holds: bool  # claims anything
    bonus: int  # devices or tasks held beyond what is wanted
    bonus_gpu: int  # milli-GPUs of that
    stretchable: bool  # could take (more) bonus if there were room
    broken: bool  # it holds something, but not all of its core
    failed: bool  # some task of the chunk is or was in back-off

    def __init__(
        self, chunk: Chunk | None, lacks: Resources, lacks_memory: tuple[tuple[Request, int], ...],
        holds: bool, bonus: int, bonus_gpu: int, stretchable: bool, broken: bool, failed: bool = False,
    ) -> None:  # fmt: skip
        self.chunk = chunk
        self.lacks = lacks
        self.lacks_memory = lacks_memory
        self.holds = holds
        self.bonus = bonus
        self.bonus_gpu = bonus_gpu
        self.stretchable = stretchable
        self.broken = broken
        self.failed = failed


NOTHING_MORE = Need(None, Resources(), (), False, 0, 0, False, False)
SERVED = replace(NOTHING_MORE, holds=True)


def priority_of(workload: Workload, group: TaskGroup) -> int:
    """The priority of a portion of this group."""
    return workload.priority if group.priority is None else group.priority


def rigid(workload: Workload) -> bool:
    """True if it is one task that has all it asked for or nothing: the most frequent kind."""
    groups = workload.groups
    return len(groups) == 1 == groups[0].min == groups[0].max and not groups[0].elastic


def core_priority(workload: Workload) -> int:
    """The highest priority of the groups that its core consists of."""
    groups = workload.groups
    if len(groups) == 1:
        return workload.priority if groups[0].priority is None or not groups[0].min else groups[0].priority
    return max((priority_of(workload, group) for group in groups if group.min), default=workload.priority)


def by_priority(workload: Workload) -> list[TaskGroup]:
    """Its groups in the order in which they get portions."""
    return sorted(workload.groups, key=lambda group: -priority_of(workload, group))


def waiting_since(workload: Workload) -> int:
    """When (ms) it began to wait: its submission or, unless it runs, its last change of phase if later."""
    waits = workload.phase not in (Phase.RUNNING, Phase.UPDATING, Phase.DEGRADED, Phase.INITIALIZING)
    return max(workload.created, workload.phase_since) if waits else workload.created


def may_lose(workload: Workload, step: Step) -> bool:
    """True if such a portion may be taken: any of preemptible work, all but the core of semi-preemptible."""
    return workload.preemptible or (workload.semi_preemptible and step is not Step.CORE)


def workload_open(workload: Workload) -> bool:
    """True if its owner wants it to run and it has not ended."""
    return workload.desired is RUNNING and not workload.phase.final
