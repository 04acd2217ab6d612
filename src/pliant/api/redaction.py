"""Which names a caller may read in an answer: names of other projects are left out, numbers stay."""

from pliant.api.identity.principal import Principal, place_of
from pliant.control.board.view import Board
from pliant.model.reason import MayRead, Named

WORKLOAD, PROJECT = "a workload", "another project"
"""Shown in an entry of a list instead of a name."""


def sight(board: Board, caller: Principal) -> MayRead:
    """True for projects whose names the caller may read: it may read their workloads or has submitted one.

    For a caller that is `vouched` only the latter counts; an administrator may read all names.
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
    """The same, computed at the first question: most callers never ask one."""
    found: list[MayRead] = []

    def may_read(project: str) -> bool:
        if not found:
            found.append(sight(board, caller))
        return found[0](project)

    return may_read


def own_too(may_read: MayRead, project: str) -> MayRead:
    """Like `may_read`, but True for `project`, whose workload the caller may read."""
    return lambda other: other == project or may_read(other)


def shown(name: Named, may_read: MayRead) -> tuple[str, str]:
    """(name, name of its project) for an entry of a list."""
    seen = name.seen_by(may_read)
    if not seen.name:
        return (WORKLOAD if name.kind == "workload" else PROJECT), PROJECT
    return seen.name, seen.project_name
