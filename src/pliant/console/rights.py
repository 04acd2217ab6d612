"""What the reader of a page may do, and where: asked of the API, so that a page offers nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.console.calls import Calls


@dataclass(frozen=True, slots=True)
class Reach:
    """Where one right holds: scopes as (kind, id); `own`: there for the reader's own things only."""

    scopes: frozenset[tuple[str, str]] = frozenset()
    own: frozenset[tuple[str, str]] = frozenset()

    def covers(self, department: str = "", project: str = "", *, mine: bool = False) -> bool:
        """True if it holds there; without a place: in the whole tenant."""
        places = {("tenant", ""), ("department", department), ("project", project)}
        return bool(places & self.scopes) or (mine and bool(places & self.own))


@dataclass(slots=True)
class Rights:
    name: str = ""  # whose they are, as `submittedBy` says it
    all: frozenset[str] = frozenset()  # rights that hold somewhere
    reaches: dict[str, Reach] = field(default_factory=dict)

    def may(self, right: str) -> bool:
        """True if it holds at any scope; an empty one is everybody's."""
        return not right or right in self.all

    def where(self, right: str) -> Reach:
        """Of a right that `learn` has asked about."""
        return self.reaches[right]

    async def learn(self, calls: Calls, *rights: str) -> None:
        """Asks where these hold. Raises Refusal."""
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
    """Raises Refusal."""
    who = await calls.get("/api/v1/whoami")
    told = await calls.get("/api/v1/authorization/permissions")
    return Rights(who["id"], frozenset(_named(told)))


def _named(told: Mapping[str, Any]) -> list[str]:
    return [f"{it['resourceType']}:{action}" for it in told["permissions"] for action in it["actions"]]
