"""The console's sessions: the content of a browser's cookie, and one-time links."""

import asyncio
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi.concurrency import run_in_threadpool
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.types import ASGIApp

from pliant.console.calls import Calls, Reader, Refusal

LIFE = 7 * 24 * 3600
"""Seconds for which a cookie is valid; its tokens may expire earlier."""

ENDED_LIFE = LIFE + 3600
"""Seconds for which an ended session is remembered; an answer may renew its cookie while it ends."""

LINK_LIFE = 120.0
"""Seconds for which a one-time link is valid."""


@dataclass(slots=True, eq=False)
class Session:
    """One login. It holds tokens of the API, or the uid that the Unix socket gave."""

    id: str
    name: str  # for the page
    token: str = ""
    refresh: str = ""
    uid: int | None = None
    provider: bool = False  # by a login provider, whose own login may outlast this session
    changed: bool = False  # since the browser's cookie was made
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def told(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "token": self.token,
            "refresh": self.refresh,
            "uid": self.uid,
            "provider": self.provider,
        }


class Ended(Protocol):
    """The ids of ended sessions; a restart keeps them, and another server that leads then knows them."""

    def __contains__(self, identity: str) -> bool: ...

    def add(self, identity: str, life: float) -> None:
        """Remembers the id for at least `life` seconds. Raises OSError."""


class Sessions:
    """Accepts every cookie that it made until its session ends, also after a restart of the server."""

    def __init__(self, api: ASGIApp, secret: bytes, peer: str, ended: Ended) -> None:
        """`peer`: key in a request's state under which the API finds the uid of the Unix socket's caller."""
        self._api, self._peer, self._ended = api, peer, ended
        self._seal = URLSafeTimedSerializer(secret, salt="pliant console")
        self._known: dict[str, Session] = {}
        self._links: dict[str, tuple[float, Session]] = {}

    def begin(
        self, name: str, *, token: str = "", refresh: str = "", uid: int | None = None, provider: bool = False
    ) -> Session:
        made = Session(secrets.token_urlsafe(16), name, token, refresh, uid, provider)
        self._known[made.id] = made
        return made

    def sealed(self, session: Session) -> str:
        session.changed = False
        return str(self._seal.dumps(session.told()))

    def opened(self, cookie: str) -> Session | None:
        """The session of a cookie; None if it is not one of ours, too old, or was ended."""
        try:
            told = self._seal.loads(cookie, max_age=LIFE)
        except BadSignature:
            return None
        if told["id"] in self._ended:
            return None
        return self._known.setdefault(told["id"], Session(**told))

    async def end(self, session: Session) -> None:
        """Raises OSError if the end cannot be recorded; then the session stays."""
        await run_in_threadpool(self._ended.add, session.id, ENDED_LIFE)
        self._known.pop(session.id, None)

    def calls(self, session: Session, client: tuple[str, int] | None) -> Calls:
        """Calls of the API as the session's user."""

        async def renew() -> bool:
            return await self._renewed(session, reader)

        reader = Reader(client=client, renew=renew if session.refresh else None)
        if session.uid is not None:
            reader.state[self._peer] = session.uid
        else:
            reader.token = session.token
        return Calls(self._api, reader)

    async def _renewed(self, session: Session, reader: Reader) -> bool:
        """Give the reader a newer token than it has used. False: there is none."""
        async with session.turn:
            if reader.token == session.token:
                body = {"grantType": "refresh_token", "refreshToken": session.refresh}
                try:
                    answer = await Calls(self._api, Reader(client=reader.client)).send(
                        "POST", "/api/v1/token", body
                    )
                except Refusal:
                    return False
                told = answer.json()
                session.token, session.refresh = told["accessToken"], told["refreshToken"]
                session.changed = True
            reader.token = session.token
            return True

    # -- links that open the console once -----------------------------------------------------------

    def link(self, session: Session) -> str:
        """A ticket that `redeemed` exchanges for the session once."""
        self._links = dict(self._living())
        ticket = secrets.token_urlsafe(32)
        self._links[ticket] = (time.monotonic() + LINK_LIFE, session)
        return ticket

    def redeemed(self, ticket: str) -> Session | None:
        until, session = self._links.pop(ticket, (0.0, None))
        return session if until > time.monotonic() else None

    def _living(self) -> Iterable[tuple[str, tuple[float, Session]]]:
        now = time.monotonic()
        return ((ticket, it) for ticket, it in self._links.items() if it[0] > now)
