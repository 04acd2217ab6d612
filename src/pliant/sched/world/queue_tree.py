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
    """Projects below a department, by the parents of their departments; it may be unknown itself."""
    found = []
    for pid, project in projects.items():
        now, seen = project.department, {""}
        while now not in seen and now != department:
            seen.add(now)
            now = departments[now].parent if now in departments else ""
        if now == department:
            found.append(pid)
    return found


def path_of(
    projects: Mapping[str, Project], departments: Mapping[str, Department], project: str
) -> tuple[str, ...]:
    """Keys of the queue tree from a project to its root."""
    row = projects.get(project)
    above = ancestry(departments, row.department) if row is not None else ()
    return (project, *(department_key(did) for did in above))


def children_of(
    projects: Mapping[str, Project], departments: Mapping[str, Department]
) -> dict[str | None, list[str]]:
    """Keys of the queues right below each department (by id), or below None at the top."""
    below: dict[str | None, list[str]] = {}
    for pid, project in sorted(projects.items()):
        department = project.department if project.department in departments else None
        below.setdefault(department, []).append(pid)
    for did in sorted(departments):
        below.setdefault(parent_of(departments, did), []).append(department_key(did))
    return below
