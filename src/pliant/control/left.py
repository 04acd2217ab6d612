"""What a server whose database is lost has left where its tasks run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.control.ports import Stranger
from pliant.model.workload import Attempt, Phase, Workload

GONE = (Phase.COMPLETED, Phase.FAILED, Phase.DELETING)
"""Of a workload that does not start again."""


@dataclass(frozen=True, slots=True)
class Remnant:
    """An object that shows a row of a server whose database is lost."""

    kind: str  # of the object: Department | Project | NodePool | Workload
    name: str
    row: Mapping[str, Any]  # what that server left of its row; empty if it cannot be read
    phase: str = ""  # of a workload, as it was shown last
    identity: str = ""  # id of the workload that it stands for
    allows: Callable[[str], bool] = lambda project: True  # whether it may be about that project (name)
    cure: str = ""  # what to type where nothing can be made of it
    spec: Mapping[str, Any] | None = None  # somebody has applied it, and it is taken over from there


@dataclass(frozen=True, slots=True)
class Left:
    """What a server whose database is lost has left where its tasks run."""

    attempts: Sequence[Stranger] = ()
    objects: Sequence[Remnant] = ()
    # Work that others gave to the engine, its project by name, with attempts and whether each has ended.
    found: Sequence[tuple[Workload, Sequence[tuple[Attempt, bool]]]] = ()
    cluster: str = ""  # that server's name for what it managed
