"""Logouts of the web console: the cookie of an ended session stays refused, whichever server leads."""

import errno
from collections.abc import Mapping

from pliant.control.audit import TRAIL
from pliant.control.errors import Refused
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.model.identity import EndedSession


class Logouts:
    """The ids of ended sessions."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __contains__(self, identity: str) -> bool:
        return identity in self._loop.board.access.ended

    def add(self, identity: str, life: float) -> None:
        """Records the end of a session whose cookies expire within `life` seconds. Raises OSError."""
        self.keep({identity: self._loop.clock.now() + round(life * 1000)})

    def keep(self, until: Mapping[str, int]) -> None:
        """Records ends of sessions, each until that time (ms). Raises OSError."""

        def run(draft: Draft) -> None:
            for identity, expires in until.items():
                draft.put(EndedSession(identity, expires))

        trail = TRAIL.set(None)  # the API has recorded the logout; this is the console's part of it
        try:
            self._loop.call(run)
        except Refused as error:
            raise OSError(errno.EIO, error.message.rstrip(".")) from error
        finally:
            TRAIL.reset(trail)

    def forget(self) -> None:
        """Drops the sessions of which no cookie is valid any more."""

        def run(draft: Draft) -> None:
            for row in self._loop.state.access.seen.ended.values():
                if row.expires <= draft.now:
                    draft.drop(row)

        self._loop.call(run)
