"""Mounts the console beside the API on one port: routes requests, checks sessions, limits what pages load."""

import asyncio
import importlib
import re
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.console.door import HOME, REFERRER, Door, own_origin, page
from pliant.console.session import Ended, Sessions

News = Callable[[], AbstractContextManager[asyncio.Event]]
"""Opens an event that is set whenever something has changed."""

LINK = f"{HOME}link"

SHORT = {"/": HOME, "/console": HOME, "/projects": "/console/projects"}
"""Path -> the path to which it redirects."""

_SCRIPT = re.compile(rb"<script\b")
_ASSET = re.compile(r"/console/_nicegui/.*")
_CLOSE: Message = {"type": "websocket.close", "code": 1008}


class Console:
    """Answers the requests for the console and passes all others to the API."""

    def __init__(
        self,
        below: ASGIApp,
        api: ASGIApp,
        *,
        secret: bytes,
        peer: str,
        ended: Ended,
        news: News,
        home: str = "",
    ) -> None:
        """`below` gets the requests that are not for the console; pages call `api`, which has all its layers.

        `secret` signs cookies; `peer` and `ended`: as in Sessions; `home`: as in Door.
        """
        self._below, self._news = below, news
        self._door = Door(api, Sessions(api, secret, peer, ended), peer, home)
        self._loaded: asyncio.Task[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http" and (scope["path"] in SHORT or scope["path"].startswith(HOME)):
            await self._http(scope, receive, send)
        else:
            await self._below(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if (short := SHORT.get(scope["path"])) is not None:
            await RedirectResponse(short)(scope, receive, send)
            return
        if _ASSET.fullmatch(scope["path"]) and scope["method"] in ("GET", "HEAD"):
            await (await self._pages())(scope, receive, send)
            return
        if (answer := await self._door.answer(request)) is not None:
            self._pages_soon()
            await answer(scope, receive, send)
            return
        session = self._door.session(scope)
        if session is None:
            await RedirectResponse(self._door.asked(scope["path"]), 303)(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await page("<p>This page takes no such request.</p>", 405)(scope, receive, send)
        else:
            scope.setdefault("state", {})["console"] = (self._door.calls(session, scope), session, self._news)
            scope["headers"] = [
                it for it in scope["headers"] if it[0] not in (b"accept-encoding", b"x-forwarded-prefix")
            ]
            cookie = self._door.remember(Response(), session, scope) if session.changed else None
            await (await self._pages())(scope, receive, guarded(send, cookie))

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The socket of an open page: accepted only from a page of this server with a valid cookie."""
        known = scope["path"].startswith(f"{HOME}_nicegui_ws/") and own_origin(scope)
        if known and self._door.session(scope) is not None:
            await (await self._pages())(scope, receive, send)
        else:
            await receive()
            await send(_CLOSE)

    # -- the pages, loaded at the first visit --------------------------------------------------------

    def _pages_soon(self) -> asyncio.Task[ASGIApp]:
        if self._loaded is None:
            self._loaded = asyncio.create_task(load())
        return self._loaded

    async def _pages(self) -> ASGIApp:
        return await asyncio.shield(self._pages_soon())


class Alone:
    """On a machine shared by accounts, serves only pages to requests that do not come by the Unix socket.

    The socket identifies the account of a request, a port does not: so the API cannot be reached by the port.
    """

    def __init__(self, app: ASGIApp, peer: str) -> None:
        self._app, self._peer = app, peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pages = scope.get("path", "") in SHORT or scope.get("path", "").startswith(HOME)
        if self._peer in scope.get("state", {}) or (pages and scope["path"] != LINK):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send(_CLOSE)
        else:
            text = (
                f'<p>Only <a href="{HOME}">the web console</a> is reached here. Commands use the socket.</p>'
            )
            await page(text, 404)(scope, receive, send)


async def load() -> ASGIApp:
    """Load the pages. Their imports take a second, which a server without visitors saves."""
    site: Any = await run_in_threadpool(importlib.import_module, "pliant.console.site")
    made: ASGIApp = await site.started()
    return made


def guarded(send: Send, cookie: Response | None) -> Send:
    """Wraps `send`: headers let the browser run only the page's own scripts; adds the cookie if given."""
    nonce = secrets.token_urlsafe(16)
    head: Message | None = None
    body = b""

    async def told(message: Message) -> None:
        nonlocal head, body
        if message["type"] == "http.response.start":
            head = message
            return
        body += message.get("body", b"")
        if message.get("more_body", False) or head is None:
            return
        headers = [it for it in head["headers"] if it[0].lower() != b"content-length"]
        if any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in headers):
            body = _SCRIPT.sub(f'<script nonce="{nonce}"'.encode(), body)
            headers.append((b"content-security-policy", policy(nonce).encode()))
            headers.append((b"referrer-policy", REFERRER.encode()))
        headers.append((b"content-length", str(len(body)).encode()))
        headers += [it for it in (cookie.raw_headers if cookie is not None else ()) if it[0] == b"set-cookie"]
        await send({**head, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return told


def policy(nonce: str) -> str:
    """The content policy of a page. Vue compiles table templates in the browser, hence `unsafe-eval`."""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
