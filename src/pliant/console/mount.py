"""The console beside the API on one port: which requests are its own, who may come in, what may be loaded."""

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
from pliant.console.session import Sessions

News = Callable[[], AbstractContextManager[asyncio.Event]]
"""Gives an event that is set whenever something has changed."""

LINK = f"{HOME}link"

SHORT = {"/": HOME, "/console": HOME, "/projects": "/console/projects"}
"""Paths that lead there."""

_SCRIPT = re.compile(rb"<script\b")
_ASSET = re.compile(r"/console/_nicegui/.*")
_CLOSE: Message = {"type": "websocket.close", "code": 1008}


class Console:
    """Takes what is for the console; everything else goes on to the API."""

    def __init__(
        self, below: ASGIApp, api: ASGIApp, *, secret: bytes, peer: str, news: News, home: str = ""
    ) -> None:
        """`below` gets what is not for the console; `api`, from its outermost layer on, is for the pages.

        `secret` signs cookies; `peer`: as in Sessions; `home`: as in Door.
        """
        self._below, self._news = below, news
        self._door = Door(api, Sessions(api, secret, peer), peer, home)
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
        """What keeps an open page alive: only from a page of this server, with its cookie."""
        known = scope["path"].startswith(f"{HOME}_nicegui_ws/") and own_origin(scope)
        if known and self._door.session(scope) is not None:
            await (await self._pages())(scope, receive, send)
        else:
            await receive()
            await send(_CLOSE)

    # -- the pages, loaded when somebody comes -------------------------------------------------------

    def _pages_soon(self) -> asyncio.Task[ASGIApp]:
        if self._loaded is None:
            self._loaded = asyncio.create_task(load())
        return self._loaded

    async def _pages(self) -> ASGIApp:
        return await asyncio.shield(self._pages_soon())


class Alone:
    """On a machine that accounts share, what comes from elsewhere than the Unix socket gets pages alone.

    The socket knows whose a request is, a port does not: the API is not reached there.
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
    """The pages: a second of imports, which a server that is never looked at does not pay."""
    site: Any = await run_in_threadpool(importlib.import_module, "pliant.console.site")
    made: ASGIApp = await site.started()
    return made


def guarded(send: Send, cookie: Response | None) -> Send:
    """Sends a page with headers by which a browser runs no script but those that the page was made with."""
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
    """What a page may load. Vue compiles our templates of tables in the browser, hence `unsafe-eval`."""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
