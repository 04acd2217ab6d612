"""Calls the API within the process, by its normal routes: a page may read and do what its reader may."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from orjson import loads  # a quarter of the standard library's time
from starlette.types import ASGIApp, Message

log = logging.getLogger(__name__)

MOST = 500
"""Entries of one page of a list."""


class Refusal(Exception):
    """The API refused a call. `status` is the HTTP status; `message` and `details` are for users."""

    def __init__(self, status: int, told: Mapping[str, Any]) -> None:
        self.status = status
        self.message = str(told.get("message") or "The server made a mistake.")
        self.details = str(told.get("details") or "")
        self.reason = str(told.get("reason") or "")
        self.fields = {str(it["field"]): str(it["message"]) for it in told.get("fields") or ()}
        super().__init__(f"{self.message} {self.details}".strip())


@dataclass(slots=True)
class Reader:
    """The credentials of a page's reader, which the API gets instead of the browser's cookie."""

    token: str = ""
    state: dict[str, Any] = field(default_factory=dict)  # of a caller identified by the Unix socket
    client: tuple[str, int] | None = None  # the browser's address, for the audit
    renew: Callable[[], Awaitable[bool]] | None = None  # gets a newer token; False: there is none


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return loads(self.body) if self.body else None


class Calls:
    """Calls the API for one reader. The methods raise Refusal."""

    def __init__(self, api: ASGIApp, reader: Reader) -> None:
        self._api, self._reader = api, reader

    async def get(self, path: str, query: Sequence[tuple[str, Any]] = ()) -> Any:
        return (await self.send("GET", path, query=query)).json()

    async def all(
        self, path: str, name: str, query: Sequence[tuple[str, Any]] = (), most: int = 20_000
    ) -> Any:
        """All entries of a list, at most `most`."""
        found: list[Any] = []
        while len(found) < most:
            page = await self.get(path, [*query, ("offset", len(found)), ("limit", MOST)])
            found += page[name]
            if page.get("next") is None:
                break
        return found[:most]

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Sequence[tuple[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`body`: bytes are sent as they are, anything else as JSON."""
        answer = await self._once(method, path, body, query, headers)
        if answer.status == 401 and self._reader.renew is not None and await self._reader.renew():
            answer = await self._once(method, path, body, query, headers)
        if answer.status >= 400:
            raise Refusal(answer.status, problem(answer.body))
        return answer

    async def _once(
        self,
        method: str,
        path: str,
        body: Any,
        query: Sequence[tuple[str, Any]],
        headers: Mapping[str, str] | None,
    ) -> Answer:
        status, told, chunks = 500, dict[str, str](), list[bytes]()

        async def take(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                told.update((name.decode().lower(), value.decode()) for name, value in message["headers"])
            else:
                chunks.append(message.get("body", b""))

        await self._run(method, path, body, query, headers, asyncio.Event(), take)
        return Answer(status, told, b"".join(chunks))

    async def stream(self, path: str, query: Sequence[tuple[str, Any]] = ()) -> AsyncIterator[bytes]:
        """Yields the body piece by piece as it arrives."""
        status, refused = 500, b""
        async with contextlib.aclosing(self._messages(path, query)) as messages:
            async for message in messages:
                if message["type"] == "http.response.start":
                    status = message["status"]
                elif status >= 400:
                    refused += message.get("body", b"")
                elif piece := message.get("body", b""):
                    yield piece
        if status >= 400:
            raise Refusal(status, problem(refused))

    async def _messages(self, path: str, query: Sequence[tuple[str, Any]]) -> AsyncGenerator[Message]:
        """Yields the API's messages. If the caller stops early, the API sees a client that disconnects."""
        sent: asyncio.Queue[Message | None] = asyncio.Queue(8)
        gone = asyncio.Event()

        async def run() -> None:
            await self._run("GET", path, None, query, None, gone, sent.put)
            await sent.put(None)

        task = asyncio.create_task(run())
        try:
            while (message := await sent.get()) is not None:
                yield message
        finally:
            gone.set()
            task.cancel()

    async def _run(
        self,
        method: str,
        path: str,
        body: Any,
        query: Sequence[tuple[str, Any]],
        headers: Mapping[str, str] | None,
        gone: asyncio.Event,
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Run one request; `gone` is set when its answer is no longer needed."""
        words = [
            (name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in query
        ]
        kind = b"application/octet-stream" if isinstance(body, bytes) else b"application/json"
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        told = [(b"host", b"localhost"), (b"content-type", kind)]
        if self._reader.token:
            told.append((b"authorization", f"Bearer {self._reader.token}".encode()))
        told += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(words).encode(),
            "headers": told,
            "client": self._reader.client,
            "server": None,
            "state": dict(self._reader.state),
        }
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": data, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        try:
            await self._api(scope, receive, send)
        except Exception:  # the page shows a server error; the log has the details
            log.exception("%s %s failed", method, path)


def problem(body: bytes) -> Mapping[str, Any]:
    """The problem document in an error answer; {} if it is not a JSON object."""
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
