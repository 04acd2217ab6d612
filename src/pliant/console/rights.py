"""The rights of a page's reader and their scopes, read from the API: a page offers nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.console.calls import Calls


@dataclass(frozen=True, slots=True)
class Reach:
    """The scopes of one right, as (kind, id); in those of `own` it covers only the reader's own things."""

    scopes: frozenset[tuple[str, str]] = frozenset()
    own: frozenset[tuple[str, str]] = frozenset()

    def covers(self, department: str = "", project: str = "", *, mine: bool = False) -> bool:
        """True if the right holds in this place; without a place: in the whole tenant."""
        places = {("tenant", ""), ("department", department), ("project", project)}
        return bool(places & self.scopes) or (mine and bool(places & self.own))


@dataclass(slots=True)
class Rights:
    name: str = ""  # the reader's id, as in `submittedBy`
    all: frozenset[str] = frozenset()  # rights that hold somewhere
    reaches: dict[str, Reach] = field(default_factory=dict)

    def may(self, right: str) -> bool:
        """True if the right holds at any scope; the empty right always holds."""
        return not right or right in self.all

    def where(self, right: str) -> Reach:
        """The reach of a right that `learn` has read."""
        return self.reaches[right]

    async def learn(self, calls: Calls, *rights: str) -> None:
        """Read where these rights hold. Raises Refusal."""
        for right in rights:
            resource, _, action = right.partition(":")
            query = [("resourceType", resource), ("action", action)]
            told = await calls.get("/api/v1/authorization/permitted-scopes", query)
            found = {(it["type"], it["id"]): it["own"] for it in told["scopes"]}
            self.reaches[right] = Reach(
                frozenset(place for place, own in found.items() if not own),
                frozenset(place for place, own in found.items() if own),
            )


async def rights_of(calls: Calls) -> Rights:
    """The reader's rights, with no reach learned yet. Raises Refusal."""
    who = await calls.get("/api/v1/whoami")
    told = await calls.get("/api/v1/authorization/permissions")
    return Rights(who["id"], frozenset(_named(told)))


def _named(told: Mapping[str, Any]) -> list[str]:
    return [f"{it['resourceType']}:{action}" for it in told["permissions"] for action in it["actions"]]
