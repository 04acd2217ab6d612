"""Whose names somebody may read in an answer: those of other projects are left out, numbers stay."""

from pliant.api.auth import Principal
from pliant.control.board.view import Board
from pliant.model.reason import MayRead, Named

WORKLOAD, PROJECT = "a workload", "another project"
"""What an entry of a list says instead of a name."""


def sight(board: Board, caller: Principal) -> MayRead:
    """The account that runs the server sees all; others where they have submitted something."""
    if caller.admin:
        return lambda project: True
    own = {view.project.id for view in board.workloads.values() if view.workload.user == caller.user}
    return lambda project: project in own


def own_too(may_read: MayRead, project: str) -> MayRead:
    """Whoever may read of a workload at all is told the names of its own project."""
    return lambda other: other == project or may_read(other)


def shown(name: Named, may_read: MayRead) -> tuple[str, str]:
    """(name, name of its project) for an entry of a list."""
    seen = name.seen_by(may_read)
    if not seen.name:
        return (WORKLOAD if name.kind == "workload" else PROJECT), PROJECT
    return seen.name, seen.project_name
