"""What a server with a lost database has left where its tasks run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.control.ports import Stranger
from pliant.model.workload import Attempt, Phase, Workload

GONE = (Phase.COMPLETED, Phase.FAILED, Phase.DELETING)
"""Phases of a workload that does not start again."""


@dataclass(frozen=True, slots=True)
class Remnant:
    """An object on a cluster that shows a row of a server with a lost database."""

    kind: str  # of the object: Department | Project | NodePool | Workload
    name: str
    row: Mapping[str, Any]  # what that server left of its row; empty if it cannot be read
    phase: str = ""  # of a workload, as last shown
    identity: str = ""  # id of the workload that it shows
    allows: Callable[[str], bool] = lambda project: True  # True if it may name that project
    cure: str = ""  # the command to type if it cannot be taken over
    spec: Mapping[str, Any] | None = None  # set if a user applied the object: the row comes from it


@dataclass(frozen=True, slots=True)
class Left:
    """What a server with a lost database has left where its tasks run."""

    attempts: Sequence[Stranger] = ()
    objects: Sequence[Remnant] = ()
    # Work that users gave to the engine itself, its project by name, with (attempt, True if it has ended).
    found: Sequence[tuple[Workload, Sequence[tuple[Attempt, bool]]]] = ()
    cluster: str = ""  # that server's name for what it managed
