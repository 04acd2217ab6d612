"""The queue tree: departments over projects, each node named by a key."""

from pliant.model.quantity import Resources

NOTHING = Resources()


def department_key(department: str) -> str:
    """Key of a department. Projects are keyed by their id, which a department may share."""
    return f"department/{department}"
