"""What a workload waits for before it competes for GPUs: other workloads, a time, its turn, a limit."""

from dataclasses import dataclass
from enum import StrEnum


class When(StrEnum):
    """What another workload must do to meet a dependency, in Slurm's terms."""

    AFTER = "after"  # it has started, or ended
    OK = "afterok"  # it succeeded
    ANY = "afterany"  # it ended
    NOT_OK = "afternotok"  # it failed, was cancelled or deleted


@dataclass(frozen=True, slots=True)
class Dependency:
    """One workload that another one waits for."""

    workload: str  # id
    name: str
    when: When
    met: bool = False  # stays met, whatever happens to that workload


@dataclass(frozen=True, slots=True)
class Element:
    """The place of a workload in an array: equal workloads that were submitted together."""

    array: str  # id, common to all of its elements
    name: str  # of the array; the element is called <name>-<index>
    index: int
    count: int  # elements of the array
    least: int  # index
    most: int
    at_once: int = 0  # elements that may compete or run at the same time; 0: all


@dataclass(frozen=True, slots=True)
class Limited:
    """The limit of its user that a workload waits for."""

    of: str  # gpus: held at once; gpu-hours: within 30 days
    most: int  # milli-GPUs; milli-GPU-ms
    in_project: bool  # False: in all projects together
    asked: int  # milli-GPUs of the workload
    until: int | None = None  # ms; when used hours stop counting


DEPENDENCY, BEGIN_TIME, ARRAY_LIMIT, USER_LIMIT = "dependency", "begin-time", "array-limit", "user-limit"
"""Codes of the holds that end by themselves."""

ASSEMBLING = "assembling"
"""Code of the hold of work that was given to an engine and is not complete there."""

PASSING = (DEPENDENCY, BEGIN_TIME, ARRAY_LIMIT, USER_LIMIT)
