"""Whose names somebody may read in an answer: those of other projects are left out, numbers stay."""

from pliant.api.identity.principal import Principal, place_of
from pliant.control.board.view import Board
from pliant.model.reason import MayRead, Named

WORKLOAD, PROJECT = "a workload", "another project"
"""What an entry of a list says instead of a name."""


def sight(board: Board, caller: Principal) -> MayRead:
    """Anyone who may read the work of a project is told its names, and where they have submitted something.

    Of somebody for whom the owner of the state folder has spoken only the latter counts.
    """
    if caller.admin:
        return lambda project: True
    own = {
        view.project.id
        for view in board.workloads.values()
        if (view.workload.user == caller.user if caller.vouched else caller.owns(view.workload))
    }
    if caller.vouched:
        return lambda project: project in own
    return lambda project: project in own or caller.may("workloads:read", place_of(board, project))


def sight_when_asked(board: Board, caller: Principal) -> MayRead:
    """The same; what it takes to know is done at the first question, which most readers never have."""
    found: list[MayRead] = []

    def may_read(project: str) -> bool:
        if not found:
            found.append(sight(board, caller))
        return found[0](project)

    return may_read


def own_too(may_read: MayRead, project: str) -> MayRead:
    """Anyone who may read of a workload at all is told the names of its own project."""
    return lambda other: other == project or may_read(other)


def shown(name: Named, may_read: MayRead) -> tuple[str, str]:
    """(name, name of its project) for an entry of a list."""
    seen = name.seen_by(may_read)
    if not seen.name:
        return (WORKLOAD if name.kind == "workload" else PROJECT), PROJECT
    return seen.name, seen.project_name
