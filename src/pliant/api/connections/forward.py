"""Two servers over one store: the standby forwards writes, and a leader in doubt does not answer."""

import asyncio
import contextlib
import http.client
import ssl
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.api.errors import MOST_BODY, problem

NOT_LEADING = "not-leading"
"""Reason of an answer that says: nothing was done, ask again."""

ANSWER = 60.0
"""Seconds within which the leader must begin its answer."""

HANDED_ON = ("/api/v1/exec/", "/api/v1/attempts/", "/api/v1/server/")
"""Prefixes of paths that only the leader answers, with any method."""

OWN = ("/api/v1/token", "/api/v2/token")
"""Paths that this server answers itself, with any method."""

ALWAYS = ("/healthz", "/readyz", "/version")
"""Paths about this process: each server answers them itself."""

_HOP = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade"}


def silent(message: str, **more: str) -> ASGIApp:
    """The answer of a server that cannot handle the request now."""
    return problem(503, message, "Ask again.", NOT_LEADING, {"Retry-After": "1", **more})


async def probed(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers probes: the server is alive and could lead. Refuses all else, which is for the leader."""
    if scope["type"] == "http" and scope["path"] in ("/healthz", "/readyz"):
        await JSONResponse({"status": "ok", "role": "standby"})(scope, receive, send)
    else:
        await silent("This server does not lead.")(scope, receive, send)


class Doubt:
    """Middleware: a leader that was silent for longer than its lease answers nothing until it has checked."""

    def __init__(self, app: ASGIApp, doubtful: Callable[[], bool]) -> None:
        self._app, self._doubtful = app, doubtful

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["path"] not in ALWAYS and self._doubtful():
            # Another server may accept on the same socket by now: a new connection can reach either of them.
            app = silent("This server does not know whether it still leads.", Connection="close")
        await app(scope, receive, send)


class Forward:
    """Answers reads here, once this server has caught up with the store; forwards all else to the leader."""

    def __init__(
        self,
        app: ASGIApp,
        leader: Callable[[], str],
        catch_up: Callable[[], None],
        checking: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """`leader()`: the URL of the leader; '' if it is not known.

        `checking()`: the TLS context that verifies the leader.
        """
        self._app, self._leader, self._catch_up, self._checking = app, leader, catch_up, checking
        self._looks = ThreadPoolExecutor(4, thread_name_prefix="pliant-catch-up")
        self._calls = ThreadPoolExecutor(200, thread_name_prefix="pliant-forward")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in (*ALWAYS, *OWN):
            await self._app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD") and not scope["path"].startswith(HANDED_ON):
            await asyncio.get_running_loop().run_in_executor(self._looks, self._catch_up)
            await self._app(scope, receive, send)
        else:
            await self._hand_on(scope, receive, send)

    def close(self) -> None:
        for pool in (self._looks, self._calls):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > MOST_BODY:
                large = problem(
                    413, f"The body is larger than {MOST_BODY >> 20} MiB.", "Send a smaller body."
                )
                await large(scope, receive, send)
                return
        began = False

        async def told(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            async with contextlib.aclosing(self._answer(scope, body)) as answer:
                async for message in answer:
                    await told(message)
        except (OSError, http.client.HTTPException):
            if not began:
                await silent("The server that leads does not answer.")(scope, receive, send)

    async def _answer(self, scope: Scope, body: bytes) -> AsyncGenerator[Message]:
        """The leader's answer. Raises OSError, HTTPException."""
        run = asyncio.get_running_loop().run_in_executor
        connection = self._connection()
        try:
            response = await run(self._calls, self._ask, connection, scope, body)
            told = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in response.getheaders()]
            kept = [header for header in told if header[0].lower() not in _HOP - {b"content-length"}]
            yield {"type": "http.response.start", "status": response.status, "headers": kept}
            while piece := await run(self._calls, response.read1, 65536):
                yield {"type": "http.response.body", "body": piece, "more_body": True}
            yield {"type": "http.response.body", "body": b""}
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._leader())
        if not parts.hostname:
            raise OSError("no server leads")
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=ANSWER, context=self._checking()
            )
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER)

    @staticmethod
    def _ask(connection: http.client.HTTPConnection, scope: Scope, body: bytes) -> http.client.HTTPResponse:
        query = scope.get("query_string", b"").decode("latin-1")
        path = scope["raw_path"].decode("latin-1")
        connection.putrequest(
            scope["method"], f"{path}?{query}" if query else path, skip_accept_encoding=True
        )
        for name, value in scope["headers"]:
            if name.lower() not in _HOP:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        if connection.sock is not None:
            connection.sock.settimeout(None)  # what follows may take as long as a command runs
        return response
