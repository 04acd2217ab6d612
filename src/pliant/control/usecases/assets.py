"""Use cases about what is kept for submissions: assets, templates, policies."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pliant.control.errors import NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.submit.submission import check_name
from pliant.model.asset import CREDENTIALS, DATA_SOURCES, Asset, AssetKind, Scope
from pliant.model.event import EventKind

NAMED = frozenset({AssetKind.ENVIRONMENT, AssetKind.COMPUTE, AssetKind.TEMPLATE}) | CREDENTIALS | DATA_SOURCES
"""Kinds that submissions refer to by name."""


class Assets:
    """The part of the service that keeps them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def create(self, row: Asset, user: str) -> Asset:
        """Create it with a new id. Raises NameTaken, BadRequest, NotFound."""

        def run(draft: Draft) -> Asset:
            if row.kind in NAMED:
                check_name(row.name, row.kind.value)
            made = replace(
                self._placed(row),
                id=str(uuid.uuid4()),
                created=draft.now,
                updated=draft.now,
                created_by=user,
            )
            self._check_alone(made)
            return self._put(draft, made, EventKind.SUBMITTED, f"{user} created {_called(made)}.", user)

        return self._loop.call(run)

    def update(
        self, identity: str, change: Mapping[str, Any] | Callable[[Asset], Mapping[str, Any]], user: str
    ) -> Asset:
        """Set these attributes: name, description, body. A function gets the present row."""

        def run(draft: Draft) -> Asset:
            old = self._known(identity)
            named = change(old) if callable(change) else change
            made = replace(old, **named, updated=draft.now)
            if made.kind in NAMED:
                check_name(made.name, made.kind.value)
            self._check_alone(made)
            return self._put(draft, made, EventKind.UPDATED, f"{user} changed {_called(made)}.", user)

        return self._loop.call(run)

    def delete(self, identity: str, user: str) -> None:
        def run(draft: Draft) -> None:
            row = self._known(identity)
            draft.drop(row)
            text = f"{user} deleted {_called(row)}."
            draft.event(f"asset/{row.id}", EventKind.DELETED, text, who=user)

        self._loop.call(run)

    def _put(self, draft: Draft, row: Asset, kind: EventKind, text: str, user: str) -> Asset:
        draft.put(row)
        draft.event(f"asset/{row.id}", kind, text, who=user)
        return row

    def _known(self, identity: str) -> Asset:
        row = self._loop.state.assets.get(identity)
        if row is None:
            raise NotFound(f"There is no asset {identity[:60]!r}.", "List them first.")
        return row

    def _placed(self, row: Asset) -> Asset:
        """The row with the id of its department or project, which it may give by name."""
        if row.scope is Scope.TENANT:
            return replace(row, scope_id="")
        world = self._loop.world
        queues = world.projects if row.scope is Scope.PROJECT else world.departments
        for queue in queues.values():
            if row.scope_id in (queue.id, queue.name):
                return replace(row, scope_id=queue.id)
        raise NotFound(
            f"There is no {row.scope.value} {row.scope_id[:60]!r}.",
            f"See them with: pliant {row.scope.value} list",
            field="meta.scopeId",
        )

    def _check_alone(self, row: Asset) -> None:
        for other in self._loop.state.assets.values():
            if other.id != row.id and _place(other) == _place(row):
                raise NameTaken(
                    f"There is {_called(other)} already.",
                    "Change that one, or choose another name.",
                    field="meta.name",
                )


def _place(row: Asset) -> tuple[str, ...]:
    return row.kind, row.workloads, row.name, row.scope, row.scope_id


def _called(row: Asset) -> str:
    of = f" of {row.workloads}" if row.workloads else ""
    name = f" {row.name}" if row.name else ""
    return f"the {row.kind.value}{name}{of} for the {row.scope.value}" + (
        f" {row.scope_id}" if row.scope_id else ""
    )
