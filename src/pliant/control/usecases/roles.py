"""Use cases about the roles that administrators define from permission sets."""

from collections.abc import Callable
from dataclasses import replace

from pliant.control.board.access import Access
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.state.state import LAST_ROLE
from pliant.model.identity import CustomRole

MOST = 100
"""Most roles besides the built-in ones."""

BUILT_IN = 100
"""Built-in roles have ids up to this, all others have higher ones."""


class Roles:
    """Every method returns once the change is on disk; it applies from the next request on."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @property
    def _seen(self) -> Access:
        return self._loop.state.access.seen

    def create(self, made: CustomRole) -> CustomRole:
        """Create a role; its id and time are set here."""

        def run(draft: Draft) -> CustomRole:
            self._check_name(made)
            if len(self._seen.roles) >= MOST:
                raise Conflict(
                    f"There are {MOST} custom roles, the maximum.",
                    "Delete one: pliant role delete NAME",
                )
            state = self._loop.state
            identity = 1 + max([BUILT_IN, state.last_role, *self._seen.roles])
            row = replace(made, id=identity, created=draft.now)
            draft.put(row)
            return row

        return self._loop.call(run)

    def change(self, identity: int, change: Callable[[CustomRole], CustomRole]) -> CustomRole:
        """Change a role, from the next request of each of its users on."""

        def run(draft: Draft) -> CustomRole:
            row = replace(change(self._known(identity)), updated=draft.now)
            self._check_name(row)
            draft.put(row)
            return row

        return self._loop.call(run)

    def delete(self, identity: int) -> None:
        """Delete a role with the rules that give it. One that is in use must be disabled first."""

        def run(draft: Draft) -> None:
            row = self._known(identity)
            rules = [rule for rule in self._seen.rules.values() if rule.role == identity]
            if row.enabled and rules:
                raise Conflict(
                    f"The role {row.name} is enabled and given by access rules: {len(rules)}.",
                    f"Disable it first: pliant role disable {identity}",
                )
            draft.drop(row)
            for rule in rules:
                draft.drop(rule)
            state = self._loop.state
            state.last_role = max(state.last_role, identity)
            draft.settings[LAST_ROLE] = str(state.last_role)

        self._loop.call(run)

    def _known(self, identity: int) -> CustomRole:
        row = self._seen.roles.get(identity)
        if row is None:
            raise NotFound(f"There is no custom role {identity}.", "See the roles with: pliant role list")
        return row

    def _check_name(self, wanted: CustomRole) -> None:
        name, known = wanted.name, self._seen.role(wanted.name)
        if not name.isprintable() or name != name.strip() or name.isdigit():
            raise BadRequest(
                f"{name[:40]!r} cannot be the name of a role.",
                "Use 2 to 128 printable characters, not digits alone.",
                field="name",
            )
        if known is not None and known.id != wanted.id:
            raise NameTaken(f"A role named {name!r} already exists.", "Choose another name.", field="name")
