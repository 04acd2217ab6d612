"""One answer for one Idempotency-Key: a client that is not sure whether a POST arrived may send it again.

A POST that creates something stores its answer, sealed, in the transaction of the change: see `answered`. For
all other POSTs the answer is stored after the change is on disk. If the server is killed between the two, a
repeated POST is carried out again and finds the change already made.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.api.errors import refusal
from pliant.api.identity.vault import Vault
from pliant.api.journal import is_dry
from pliant.api.paths_elsewhere import KINDS
from pliant.control.audit import TRAIL
from pliant.control.errors import BadRequest, Conflict, Refused
from pliant.control.kept import KEEPING, Keeping
from pliant.control.ports import Halt
from pliant.control.service import Service

HEADER = b"idempotency-key"
KEY = re.compile(r"[\x21-\x7e]{1,255}")
BY_THEMSELVES = frozenset(f"/api/v1/workloads/{kind}" for kind in KINDS)
"""Submissions: here they only wait for one another; `submit.accept` keeps their answers."""

AT_ONCE = re.compile(
    r"/api/v\d/((exec|attempts|server|sessions|token)(/.*)?|openid/token|workloads/[^/]+/exec(/port)?)"
    r"|/auth/.*/openid-connect/.*"
)
"""Paths whose POSTs take no key: their answers cannot be repeated."""

LONGEST = 2**20
"""Largest answer that is stored, in bytes."""


T = TypeVar("T")

SEALED: ContextVar[Vault | None] = ContextVar("sealed", default=None)


def answered(
    change: Callable[[], T], told: Callable[[T], Response], at: Callable[[T], str] | None = None
) -> Response:
    """The response that `told` makes of the change; with an Idempotency-Key it is stored in its transaction.

    `at`: the path where a repeated request reads the answer, for answers that are known only afterwards.
    """
    kept, vault = KEEPING.get(), SEALED.get()
    if kept is None or vault is None:
        return told(change())
    made: list[Response] = []

    def tell(result: T) -> tuple[int, str]:
        if at is not None:
            return 201, vault.sealed({"at": at(result)})
        made.append(told(result))
        return made[0].status_code, vault.sealed({"body": bytes(made[0].body).decode()})

    kept.answer = tell
    try:
        result = change()
    finally:
        kept.answer = None
    return made[0] if made else told(result)


def takes_key(path: str) -> bool:
    return AT_ONCE.fullmatch(path) is None


class Repeats:
    """Middleware inside Gate: each caller has its own keys."""

    def __init__(self, app: ASGIApp, service: Service, vault: Vault, halt: Halt) -> None:
        self._app, self._service, self._vault, self._halt = app, service, vault, halt
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # key -> (its lock, how many hold or want it)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        name = f"{scope['state']['principal'].subject} {key}"
        if scope["path"] in BY_THEMSELVES:
            async with self._turn(name):
                await self._app(scope, receive, send)
            return
        try:
            if KEY.fullmatch(key) is None:
                raise BadRequest(
                    "The Idempotency-Key is not valid.",
                    "Use 1 to 255 printable ASCII characters without spaces.",
                    field="Idempotency-Key",
                )
            if not takes_key(scope["path"]):
                raise BadRequest(
                    "An Idempotency-Key has no effect here.", "Leave it out.", field="Idempotency-Key"
                )
            body = await _body(receive)
            async with self._turn(name):
                answer = await self._answered(scope, name, body, send)
        except Refused as error:
            answer = refusal(error)
        if answer is not None:
            await answer(scope, receive, send)

    async def _answered(self, scope: Scope, name: str, body: bytes, send: Send) -> Response | None:
        """The stored answer; None if the answer was sent here. Raises Conflict."""
        mark = _mark(scope, body)
        before = await run_in_threadpool(self._service.remembered, name)
        if before is None:
            await self._ask(scope, name, mark, body, send)
            return None
        if before.fingerprint != mark:
            raise Conflict("This Idempotency-Key was used for another request.", "Use a new key for each.")
        kept = self._vault.opened(
            before.body,
            "The answer that was given for this Idempotency-Key was",
            "Check whether it was done before you try again with a new key.",
        )
        if "at" in kept:
            await self._read(scope, kept["at"], before.status, send)
            return None
        text = kept["body"]
        return Response(text, before.status, media_type="application/json" if text else None)

    async def _read(self, scope: Scope, path: str, status: int, send: Send) -> None:
        """Send what was created, as it is now, with the stored status."""

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message = {**message, "status": status}
            await send(message)

        reading = {"method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        await self._app({**scope, **reading}, nothing, tell)

    async def _ask(self, scope: Scope, name: str, mark: str, body: bytes, send: Send) -> None:
        told: list[Message] = []
        sent = False

        async def once() -> Message:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()  # no disconnect: the request runs to its end
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            told.append(message)

        keeping = Keeping(name, mark)
        KEEPING.set(keeping)
        SEALED.set(self._vault)
        await self._app(scope, once, keep)
        KEEPING.set(None)
        self._halt("answered")
        status = told[0]["status"]
        text = b"".join(message.get("body", b"") for message in told[1:])
        if 200 <= status < 300 and len(text) <= LONGEST and not keeping.kept:
            sealed = self._vault.sealed({"body": text.decode()})
            await run_in_threadpool(self._remember, name, mark, status, sealed)
        for message in told:
            await send(message)

    def _remember(self, name: str, mark: str, status: int, sealed: str) -> None:
        TRAIL.set(None)  # storing the answer is no change of its own
        self._service.remember(name, mark, status, sealed)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Lets requests with the same key pass one after another."""
        lock, wanted = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._turns[name]
            if wanted == 1:
                del self._turns[name]
            else:
                self._turns[name] = (lock, wanted - 1)


def _key(scope: Scope) -> str | None:
    """The key of an authenticated POST that is no dry run; None if it has none."""
    if scope["type"] != "http" or scope["method"] != "POST" or "principal" not in scope.get("state", {}):
        return None
    if is_dry(scope):
        return None
    found = next((value for name, value in scope["headers"] if name == HEADER), None)
    return None if found is None else found.decode("latin-1")


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _mark(scope: Scope, body: bytes) -> str:
    """The same text for requests with the same path, query and JSON body."""
    try:
        said = json.dumps(json.loads(body), sort_keys=True).encode()
    except ValueError:
        said = body
    asked = f"POST {scope['path']}?{scope.get('query_string', b'').decode('latin-1')}\n"
    return hashlib.sha256(asked.encode() + said).hexdigest()
