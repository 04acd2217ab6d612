"""Login and logout: login page, one-time links, the cookie. It works without scripts."""

import contextlib
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Scope

from pliant.console.calls import Calls, Reader, Refusal
from pliant.console.design import ICON, STYLE
from pliant.console.session import LIFE, Session, Sessions

HOME = "/console/"

_PAGE = re.compile(r"[a-z0-9]([-a-z0-9]|/(?=[a-z0-9]))*|")
"""Matches the path of a page below HOME, and nothing that leads to another server."""

KEY = "plk_"
"""The prefix of an access key given as a token: this, its client id, `_`, its secret."""

REFERRER = "same-origin"
"""With a stricter policy a browser would not say which page sent a form."""

_CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)


class Door:
    def __init__(self, api: ASGIApp, sessions: Sessions, peer: str, home: str = "") -> None:
        """`home`: address of the pages, if it is not that of the API."""
        self._api, self._sessions, self._peer, self._home = api, sessions, peer, home

    async def answer(self, request: Request) -> Response | None:
        """The answer to a path of the door; None for any other path."""
        match request.method, request.url.path.removeprefix("/console/"):
            case "GET", "style.css":
                return Response(STYLE, media_type="text/css", headers={"Cache-Control": "no-cache"})
            case "GET", "icon.svg":
                return Response(ICON, media_type="image/svg+xml", headers={"Cache-Control": "no-cache"})
            case "GET", "login":
                return await self._login_page(request, going=request.query_params.get("next", ""))
            case "GET", "openid":
                return await self._to_provider(request)
            case "GET", "openid/back":
                return await self._from_provider(request)
            case "POST", "openid/allow":
                return await self._allow(request)
            case "POST", "login":
                return await self._log_in(request)
            case "POST", "password":
                return await self._set_password(request)
            case "POST", "logout":
                return await self._log_out(request)
            case "POST", "link":
                return await self._link(request)
            case "GET", "enter":
                return self._enter(request)
        return None

    def asked(self, path: str) -> str:
        """The address of the login page, which leads on to the requested page."""
        going = path.removeprefix(HOME)
        return f"{HOME}login?next={going}" if going and _PAGE.fullmatch(going) else f"{HOME}login"

    def session(self, scope: Scope) -> Session | None:
        """The session of a request's cookie; None without a valid one."""
        sent = next((value for name, value in scope["headers"] if name == b"cookie"), b"")
        try:
            found = SimpleCookie(sent.decode("latin-1")).get(cookie_name(scope))
        except CookieError:
            return None
        return self._sessions.opened(found.value) if found is not None else None

    def calls(self, session: Session, scope: Scope) -> Calls:
        return self._sessions.calls(session, scope.get("client"))

    def remember(self, response: Response, session: Session, scope: Scope) -> Response:
        """Set the session's cookie in the response."""
        response.set_cookie(
            cookie_name(scope),
            self._sessions.sealed(session),
            max_age=LIFE,
            path="/console",
            secure=sealed(scope),
            httponly=True,
            samesite="strict",
        )
        return response

    # -- in -----------------------------------------------------------------------------------------

    async def _login_page(
        self, request: Request, error: str = "", name: str = "", going: str = "", status: int = 200
    ) -> Response:
        """The login page, with a link to each login provider and, after a logout, to its own logout."""
        told = await self._asked(request).get("/api/v1/openid")
        left = "out" in request.query_params
        return page(login_form(error, name, going, told["providers"], left), status)

    def _asked(self, request: Request) -> Calls:
        """Calls without credentials, before a login."""
        return Calls(self._api, Reader(client=request.scope.get("client")))

    async def _to_provider(self, request: Request) -> Response:
        """Redirect to the provider's login page. A cookie marks the browser that began the login."""
        secret = secrets.token_urlsafe(32)
        holder = hashlib.sha256(secret.encode()).hexdigest()
        going = request.query_params.get("next", "")
        try:
            begun = (
                await self._asked(request).send("POST", "/api/v1/openid/login", {"holder": holder})
            ).json()
        except Refusal as error:
            return await self._login_page(request, str(error), "", going, error.status)
        response = RedirectResponse(begun["url"], 303)
        response.set_cookie(
            f"{cookie_name(request.scope)}-openid",
            f"{begun['state']}.{secret}.{going if _PAGE.fullmatch(going) else ''}",
            max_age=begun["expiresIn"],
            path="/console/openid",
            secure=sealed(request.scope),
            httponly=True,
            samesite="lax",  # the browser returns from another site
        )
        return response

    async def _from_provider(self, request: Request) -> Response:
        """The browser returns: open the console, or ask the user whether a command may log in."""
        told = request.query_params
        state, code = told.get("state", ""), told.get("code", "")
        mine, _, rest = request.cookies.get(f"{cookie_name(request.scope)}-openid", "").partition(".")
        secret, _, going = rest.partition(".")
        if "error" in told or not code:
            why = told.get("error", "")[:60] or "it sent no code"
            text = f"The login provider refused the login: {why}. Log in again, or ask its administrator."
            return await self._login_page(request, text, "", going, 403)
        calls = self._asked(request)
        came = {"state": state, "code": code} | ({"issuer": told["iss"]} if "iss" in told else {})
        try:
            if not mine or not hmac.compare_digest(mine.encode(), state.encode()):
                asked = (await calls.send("POST", "/api/v1/openid/arrived", came)).json()
                return page(allow_form(state, asked["ticket"], asked["code"], asked["user"]))
            tokens = (await calls.send("POST", "/api/v1/openid/token", {**came, "secret": secret})).json()
            reader = Reader(tokens["accessToken"], client=request.scope.get("client"))
            who = await Calls(self._api, reader).get("/api/v1/whoami")
        except Refusal as error:
            status = error.status if error.status in (401, 503) else 403
            return await self._login_page(request, str(error), "", going, status)
        made = self._sessions.begin(
            who["id"], token=tokens["accessToken"], refresh=tokens["refreshToken"], provider=True
        )
        # A redirect that began at another site would lack the new cookie, so this page forwards itself.
        target = f"{HOME}{going}" if _PAGE.fullmatch(going) else HOME
        on = f'<p role="status">You are logged in as {escape(made.name)}. <a href="{target}">Continue</a></p>'
        response = self.remember(page(on, going=target), made, request.scope)
        response.delete_cookie(f"{cookie_name(request.scope)}-openid", path="/console/openid")
        return response

    async def _allow(self, request: Request) -> Response:
        """The user has compared the codes and lets the command log in."""
        if not own_origin(request.scope):
            return page(login_form("This form was sent by another site: nothing was done."), 403)
        state, ticket = await _sent(request, "state", "ticket")
        try:
            await self._asked(request).send(
                "POST", "/api/v1/openid/allow", {"state": state, "ticket": ticket}
            )
        except Refusal as error:
            return page(f'<p class="note bad" role="alert">{escape(str(error))}</p>', error.status)
        return page('<p role="status">The command is logged in. You can close this page.</p>')

    async def _log_in(self, request: Request) -> Response:
        if not own_origin(request.scope):
            return page(login_form("This form was sent by another site: nothing was done."), 403)
        name, secret, going = await _sent(request, "name", "secret", "next")
        try:
            told, who = await self._signed_in(request, name, secret)
        except Refusal as error:
            return await self._login_page(
                request, str(error), name, going, 429 if error.status == 429 else 401
            )
        if who["mustChangePassword"]:
            return page(password_form(name, going))
        return self._begun(request, told, who, going)

    async def _set_password(self, request: Request) -> Response:
        """Replace a password that an administrator gave, and log in with the new one."""
        if not own_origin(request.scope):
            return page(login_form("This form was sent by another site: nothing was done."), 403)
        name, old, new, again, going = await _sent(request, "name", "secret", "new", "again", "next")
        if new != again:
            return page(password_form(name, going, "The two new passwords differ."), 400)
        try:
            told, _ = await self._signed_in(request, name, old)
            calls = Calls(self._api, Reader(told["accessToken"], client=request.scope.get("client")))
            await calls.send("POST", "/api/v1/me/password", {"currentPassword": old, "newPassword": new})
            told, who = await self._signed_in(request, name, new)
        except Refusal as error:
            said = error.fields.get("newPassword")
            said = f"The new password is not valid: {said}" if said else str(error)
            return page(password_form(name, going, said), error.status)
        return self._begun(request, told, who, going)

    async def _signed_in(self, request: Request, name: str, secret: str) -> tuple[Any, Any]:
        """(the tokens, their user) for a name and a password, or for a token alone. Raises Refusal."""
        body = {"grantType": "password", "username": name, "password": secret}
        if not name and secret.startswith(KEY):
            client, _, rest = secret.removeprefix(KEY).partition("_")
            body = {"grantType": "client_credentials", "clientID": client, "clientSecret": rest}
        calls = Calls(self._api, reader := Reader(client=request.scope.get("client")))
        told = (await calls.send("POST", "/api/v1/token", body)).json()
        reader.token = told["accessToken"]
        return told, await calls.get("/api/v1/whoami")

    def _begun(self, request: Request, told: Any, who: Any, going: str) -> Response:
        """Redirect to the requested page, with the cookie of a new session."""
        made = self._sessions.begin(
            who["id"], token=told["accessToken"], refresh=told.get("refreshToken") or ""
        )
        target = f"{HOME}{going}" if _PAGE.fullmatch(going) else HOME
        return self.remember(RedirectResponse(target, 303), made, request.scope)

    async def _link(self, request: Request) -> Response:
        """Give a caller of the API a path that opens the console once; a cookie is no credential here."""
        state = request.scope.get("state", {})
        header = request.headers.get("authorization", "")
        token = header.partition(" ")[2].strip()
        reader = Reader(token, {self._peer: state[self._peer]} if self._peer in state else {})
        try:
            who = await Calls(self._api, reader).get("/api/v1/whoami")
        except Refusal as error:
            told = {"message": error.message, "details": error.details, "reason": error.reason}
            return Response(json.dumps(told), error.status, media_type="application/problem+json")
        uid = None if token else state.get(self._peer)
        ticket = self._sessions.link(self._sessions.begin(who["id"], token=token, uid=uid))
        told = {"path": f"{HOME}enter?ticket={ticket}", "home": self._home}
        return Response(json.dumps(told), media_type="application/json")

    def _enter(self, request: Request) -> Response:
        """Open a one-time link. The page forwards itself: a redirect would come without the new cookie."""
        session = self._sessions.redeemed(request.query_params.get("ticket", ""))
        if session is None:
            text = "This link has been used, or is older than 2 minutes. Make another: pliant console"
            return page(login_form(text), 403)
        who = escape(session.name)
        on = f'<p role="status">You are logged in as {who}. <a href="{HOME}">Open the console</a></p>'
        return self.remember(page(on, going=HOME), session, request.scope)

    async def _log_out(self, request: Request) -> Response:
        if not own_origin(request.scope):
            return page(login_form("This form was sent by another site: nothing was done."), 403)
        if (session := self.session(request.scope)) is not None:
            with contextlib.suppress(Refusal):  # its token is invalid already, as it should be
                await self.calls(session, request.scope).send("POST", "/api/v1/me/logout")
            try:
                await self._sessions.end(session)
            except OSError as error:
                text = f"You are still logged in: the server cannot record the logout ({error.strerror})."
                return page(f'<p class="note bad" role="alert">{text} Ask its administrator.</p>', 503)
        out = "?out" if session is not None and session.provider else ""
        response = RedirectResponse(f"{HOME}login{out}", 303)
        response.delete_cookie(cookie_name(request.scope), path="/console")
        return response


def cookie_name(scope: Scope) -> str:
    """A name per port, because browsers send a cookie to all ports of a machine."""
    port = (scope.get("server") or ("", 0))[1]
    return f"{'__Secure-' if sealed(scope) else ''}pliant-{port}"


def sealed(scope: Scope) -> bool:
    """True if the request came by TLS."""
    return scope.get("scheme") in ("https", "wss")


def own_origin(scope: Scope) -> bool:
    """True if a page of this server sent the request, by the Origin header, which no page can change."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    scheme = "https" if sealed(scope) else "http"
    return headers.get(b"origin") == f"{scheme}://{headers.get(b'host')}"


def login_form(
    error: str = "", name: str = "", going: str = "", providers: Sequence[Any] = (), left: bool = False
) -> str:
    """`providers`: as GET /api/v1/openid gives them; `left`: a session of a provider has just ended."""
    ways = "".join(
        f'<p><a href="/console/openid?next={quote(going)}">Continue with {escape(it["name"])}</a></p>'
        for it in providers
    )
    out = "".join(
        '<p class="note" role="status">You are logged out of Pliant. '
        f'<a href="{escape(it["logoutUrl"])}">Log out of {escape(it["name"])} too</a></p>'
        for it in providers
        if left and it["logoutUrl"]
    )
    told = f'<p class="note bad" role="alert" id="wrong">{escape(error)}</p>' if error else ""
    invalid = ' aria-invalid="true" aria-describedby="wrong"' if error else ""
    return (
        f'{told}{out}{ways}<form method="post" action="/console/login">'
        f'<input type="hidden" name="next" value="{escape(going)}">'
        '<label for="name">User name</label>'
        f'<input id="name" name="name" autocomplete="username" value="{escape(name)}"{invalid}>'
        '<label for="secret">Password or token</label>'
        f'<input id="secret" name="secret" type="password" autocomplete="current-password" required{invalid}>'
        '<p class="soft">With a token or an access key, leave the user name empty. '
        "On the server's machine <code>pliant console</code> opens this page logged in.</p>"
        "<button>Log in</button></form>"
    )


def allow_form(state: str, ticket: str, code: str, user: str) -> str:
    """Asks for consent: else an attacker who sends a user a provider's address is logged in as that user."""
    return (
        f"<p>A command asks to log in as <b>{escape(user)}</b>. It must show this code:</p>"
        f'<p><code id="code">{escape(code)}</code></p>'
        '<p class="note bad">Continue only if you started <code>pliant login sso</code> yourself, just now, '
        "and your terminal shows this code. Another person who has you continue can do all that you may.</p>"
        '<form method="post" action="/console/openid/allow">'
        f'<input type="hidden" name="state" value="{escape(state)}">'
        f'<input type="hidden" name="ticket" value="{escape(ticket)}">'
        "<button>Log in the command</button></form>"
    )


def password_form(name: str, going: str, error: str = "") -> str:
    """The form for a user whose password an administrator set."""
    told = f'<p class="note bad" role="alert" id="wrong">{escape(error)}</p>' if error else ""
    fields = (
        ("secret", "Password that you were given", "current-password"),
        ("new", "New password", "new-password"),
        ("again", "New password again", "new-password"),
    )
    inputs = "".join(
        f'<label for="{field}">{label}</label>'
        f'<input id="{field}" name="{field}" type="password" autocomplete="{kind}" required>'
        for field, label, kind in fields
    )
    return (
        f'{told}<p role="status">An administrator gave you this password. Set your own, of 8 characters or '
        'more.</p><form method="post" action="/console/password">'
        f'<input type="hidden" name="next" value="{escape(going)}">'
        '<label for="name">User name</label>'
        f'<input id="name" name="name" autocomplete="username" value="{escape(name)}" readonly>'
        f"{inputs}<button>Set the password</button></form>"
    )


async def _sent(request: Request, *names: str) -> tuple[str, ...]:
    """The form's fields with these names; "" for a missing one."""
    form = parse_qs((await request.body()).decode(errors="replace"))
    return tuple(form.get(name, [""])[0].strip() for name in names)


def page(content: str, status: int = 200, *, going: str = "") -> Response:
    on = f'<meta http-equiv="refresh" content="0;url={going}">' if going else ""
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in · Pliant</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{on}'
        '<link rel="icon" href="/console/icon.svg"><link rel="stylesheet" href="/console/style.css"></head>'
        f'<body class="door"><main class="card"><div class="brand">'
        f'<img src="/console/icon.svg" alt="" width="34" height="34"><h1>Pliant</h1></div>'
        f"{content}</main></body></html>",
        status,
        headers={"Content-Security-Policy": _CSP, "Referrer-Policy": REFERRER},
    )
