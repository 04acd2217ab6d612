"""Whose names somebody may read in an answer: those of other projects are left out, numbers stay."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pliant.api.auth import Principal
from pliant.control.board.view import Board
from pliant.sched.explain.remedies import Named

Sees = Callable[[str], bool]
"""True for the id of a project whose names may be told."""

WORKLOAD, PROJECT = "a workload", "another project"


def sight(board: Board, caller: Principal) -> Sees:
    """The account that runs the server sees all; others where they have submitted something."""
    if caller.admin:
        return lambda project: True
    own = {view.project.id for view in board.workloads.values() if view.workload.user == caller.user}
    return lambda project: project in own


def shown(name: Named, sees: Sees) -> Named:
    """The same, with its names only if they may be told."""
    if not name.project or sees(name.project):
        return name
    return Named(WORKLOAD if name.project_name else PROJECT, name.project, name.project_name and PROJECT)


def censored(item: Mapping[str, Any], board: Board, sees: Sees, own: str) -> dict[str, Any]:
    """A reason or an event as it travels, without names of projects that are not to be seen.

    `own` is the project of the workload that it is about. Names are replaced wherever they stand as words.
    """
    hidden = {view.queue.name for key, view in board.projects.items() if key != own and not sees(key)}
    if not hidden:
        return dict(item)
    numbers = dict(item.get("numbers") or {})
    text = str(item.get("message", ""))
    told = numbers.get("beneficiary")
    if isinstance(told, str) and told and numbers.get("project") in hidden:
        text = _replaced(text, told, WORKLOAD)
        numbers["beneficiary"] = WORKLOAD
    for field, value in numbers.items():
        if value in hidden and field in ("project", "from_project", "queue"):
            text = _replaced(text, str(value), PROJECT)
            numbers[field] = PROJECT
    for field in ("holders", "protected"):
        if numbers.get(field):
            text = _replaced(text, str(numbers[field]), "others")
            numbers[field] = "others"
    text = text.replace(f"project {PROJECT}", PROJECT)
    return {**item, "message": text, "numbers": numbers}


def _replaced(text: str, name: str, by: str) -> str:
    return re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", by, text)
