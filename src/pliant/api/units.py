"""Projects and departments as requests name them: by id or name."""

from collections.abc import Mapping

from pliant.api.identity.principal import Principal, unit_place
from pliant.control.board.view import Board, QueueView
from pliant.control.errors import NotFound
from pliant.model.tenancy import Project


def units(board: Board, what: str) -> Mapping[str, QueueView]:
    """All of them, by id. `what`: project or department."""
    return board.projects if what == "project" else board.departments


def unit_named(board: Board, what: str, key: str) -> QueueView | None:
    """The one with that id or name; None if there is none."""
    return next((it for it in units(board, what).values() if key in (it.queue.id, it.queue.name)), None)


def unit_missing(what: str, key: str, field: str = "") -> NotFound:
    """The error for one that does not exist, or that the caller may not see."""
    return NotFound(
        f"There is no {what} {key[:60]!r}.", f"See the {what}s with: pliant {what} list", field=field
    )


def project_named(board: Board, key: str) -> Project | None:
    """The project with that id or name; None if there is none."""
    found = unit_named(board, "project", key)
    return found.queue if found is not None and isinstance(found.queue, Project) else None


def may_see_unit(caller: Principal, view: QueueView, what: str) -> bool:
    return caller.may(f"{what}s:read", unit_place(view.queue))


def known_unit(board: Board, what: str, key: str) -> QueueView:
    """The one with that id or name. Raises NotFound."""
    found = unit_named(board, what, key)
    if found is None:
        raise unit_missing(what, key)
    return found


def seen_unit(caller: Principal, board: Board, what: str, key: str, field: str = "") -> QueueView:
    """The one with that id or name. Raises NotFound, with that field, also if the caller may not see it."""
    found = unit_named(board, what, key)
    if found is None or not may_see_unit(caller, found, what):
        raise unit_missing(what, key, field)
    return found


def seen_project(caller: Principal, board: Board, key: str, field: str = "") -> Project:
    """seen_unit() for a project."""
    found = project_named(board, key)
    if found is None or not caller.may("projects:read", unit_place(found)):
        raise unit_missing("project", key, field)
    return found
