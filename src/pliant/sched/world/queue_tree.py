"""The queue tree: departments in departments over projects, each node named by a key."""

from collections.abc import Mapping

from pliant.model.quantity import Resources
from pliant.model.tenancy import Department, Project

NOTHING = Resources()


def department_key(department: str) -> str:
    """Key of a department. Projects are keyed by their id, which a department may share."""
    return f"department/{department}"


def parent_of(departments: Mapping[str, Department], did: str) -> str | None:
    """The department above one; None at the top. One that is its own ancestor counts as at the top."""
    above = departments[did].parent
    seen = {did}
    now = above
    while now in departments and now not in seen:
        seen.add(now)
        now = departments[now].parent
    return None if above not in departments or now == did else above


def ancestry(departments: Mapping[str, Department], did: str) -> tuple[str, ...]:
    """The department and all above it, up to the top; empty if it is unknown."""
    found: list[str] = []
    now: str | None = did if did in departments else None
    while now is not None:
        found.append(now)
        now = parent_of(departments, now)
    return tuple(found)


def below(
    projects: Mapping[str, Project], departments: Mapping[str, Department], department: str
) -> list[str]:
    """Projects that lead up to a department by the parents of theirs, whether it is known or not."""
    found = []
    for pid, project in projects.items():
        now, seen = project.department, {""}
        while now not in seen and now != department:
            seen.add(now)
            now = departments[now].parent if now in departments else ""
        if now == department:
            found.append(pid)
    return found
