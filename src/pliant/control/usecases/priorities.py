"""Use cases about priority classes, and the values of the classes that a submission names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.submit.submission import Distribution, Submission
from pliant.model.event import EventKind
from pliant.model.priority import PRIORITIES, PriorityClass

LEAST, MOST = -(2**31), 10**9
"""Values that a class may have, as in Kubernetes, which reserves higher ones."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Priorities:
    """The part of the service that is about priority classes."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def create(self, row: PriorityClass, user: str) -> PriorityClass:
        """Create it. Raises NameTaken, BadRequest."""
        _check(row)

        def run(draft: Draft) -> PriorityClass:
            if row.name in self._loop.state.priorities:
                raise NameTaken(
                    f"A priority class named {row.name!r} already exists.",
                    "Choose another name, or delete it first.",
                    field="name",
                )
            return self._put(draft, row, user)

        return self._loop.call(run)

    def apply(self, rows: Sequence[PriorityClass], user: str) -> list[tuple[PriorityClass, str]]:
        """Apply all of them or none; each with its outcome: created, configured or unchanged."""
        for row in rows:
            _check(row)
            if sum(other.name == row.name for other in rows) > 1:
                raise BadRequest(f"Priority class {row.name} is named twice.", "Name each once.")

        def run(draft: Draft) -> list[tuple[PriorityClass, str]]:
            return [self._applied(draft, row, user) for row in rows]

        return self._loop.call(run)

    def _applied(self, draft: Draft, row: PriorityClass, user: str) -> tuple[PriorityClass, str]:
        known = self._loop.state.priorities.get(row.name)
        if known is None:
            return self._put(draft, row, user), "created"
        if known.value != row.value:
            raise Conflict(
                f"Priority class {row.name} has the value {known.value}: it cannot become {row.value}.",
                f"Delete it first (pliant priorityclass delete {row.name}), or choose another name; "
                "workloads keep the value that they were submitted with.",
            )
        if known.description == row.description:
            return known, "unchanged"
        changed = replace(known, description=row.description)
        draft.put(changed)
        words = f"{user} changed the description of priority class {row.name}."
        draft.event(_subject(row.name), EventKind.UPDATED, words, who=user)
        return changed, "configured"

    def delete(self, name: str, user: str) -> None:
        """Delete it; workloads that name it keep its value."""

        def run(draft: Draft) -> None:
            row = self._loop.state.priorities.get(name)
            if row is None:
                if name in PRIORITIES:
                    raise Conflict(f"The priority {name} is built in: it cannot be deleted.")
                raise NotFound(
                    f"There is no priority class {name!r}.", "See them with: pliant priorityclass list"
                )
            draft.drop(row)
            draft.event(_subject(name), EventKind.DELETED, f"{user} deleted priority class {name}.", who=user)

        self._loop.call(run)

    def _put(self, draft: Draft, row: PriorityClass, user: str) -> PriorityClass:
        made = replace(row, created=draft.now)
        draft.put(made)
        words = f"{user} created priority class {row.name} with the value {row.value}."
        draft.event(_subject(row.name), EventKind.SUBMITTED, words, who=user)
        return made


def _subject(name: str) -> str:
    return f"priority-class/{name}"


def _check(row: PriorityClass) -> None:
    if len(row.name) > 253 or not _NAME.fullmatch(row.name):
        raise BadRequest(
            f"{row.name[:60]!r} cannot be the name of a priority class.",
            "Use lower-case letters, digits, '-' and '.'; first and last a letter or digit.",
            field="name",
        )
    if row.name in PRIORITIES or row.name.isdigit() or row.name.startswith("system-"):
        raise BadRequest(
            f"The name {row.name} is reserved for built-in priorities.", "Choose another name.", field="name"
        )
    if not LEAST <= row.value <= MOST:
        raise BadRequest(
            f"{row.value} cannot be the value of a priority class.",
            f"Give {LEAST} to {MOST}; a higher value is scheduled first.",
            field="value",
        )


def valued(ask: Submission, classes: Iterable[PriorityClass]) -> Submission:
    """The submission with the values of the classes that it and its groups name."""
    return _valued(ask, {row.name: row.value for row in classes})


def _valued(ask: Submission, classes: Mapping[str, int]) -> Submission:
    known = classes.get(ask.priority or "")
    chosen = None if ask.distribution is None else _valued_parts(ask.distribution, classes)
    return replace(ask, class_value=known, distribution=chosen)


def _valued_parts(chosen: Distribution, classes: Mapping[str, int]) -> Distribution:
    leader = None if chosen.leader is None else _valued(chosen.leader, classes)
    groups = tuple(replace(group, each=_valued(group.each, classes)) for group in chosen.groups)
    return replace(chosen, leader=leader, groups=groups)
