"""Who asks: the token of the state folder, tokens made from it, and the tokens of running attempts."""

import getpass
import hashlib
import hmac
import os
import socket
import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from starlette.types import ASGIApp, Receive, Scope, Send

from pliant.api.errors import Forbidden, Unauthorized, refusal
from pliant.api.peer import PEER
from pliant.control.errors import BadRequest

LIFE = 24 * 3600
"""Seconds for which an access token is good."""

REFRESH_LIFE = 30 * LIFE

OPEN = frozenset({"/healthz", "/readyz", "/version", "/api/v1/token", "/api/v2/token"})
"""Paths that anybody may ask for."""

OF_ATTEMPTS = (("GET", "allocation"), ("POST", "link"), ("POST", "acks"), ("POST", "progress"))
"""What the token of an attempt is good for, below its own path."""

LOOPBACK_OPEN = frozenset({"/metrics"})
"""Paths that anybody on this machine may ask for."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request."""

    user: str
    owner: bool = False  # has the token itself, and may say in whose name it submits
    admin: bool = False  # the server's account: it is told the names of all projects
    attempt: str = ""  # `<workload>/<task>/<number>`; set for one, which sees nothing but what concerns it


@dataclass(frozen=True, slots=True)
class Issued:
    access: str
    refresh: str
    life: int  # seconds


def attempt_token(attempt: str, secret: bytes) -> str:
    """What the tasks of an attempt (`<workload>/<task>/<number>`) show to the server."""
    return f"attempt:{attempt}:{hmac.new(secret, attempt.encode(), hashlib.sha256).hexdigest()}"


def _account() -> str:
    """The name of the account that runs the server; its number where it has no name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Authority:
    """Knows the two secrets of this server. Raises Unauthorized."""

    def __init__(self, token: str, secret: bytes) -> None:
        self._token = token.strip().encode()
        self._secret = secret
        # A key of its own: what attempts can have signed must never pass for one of these.
        self._key = OctKey.import_key(hashlib.sha256(b"pliant jwt\0" + secret).digest())
        self.owner = _account()

    def who(self, header: str) -> Principal:
        """The principal of an `Authorization` header."""
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if not header:
            raise Unauthorized("No token was sent.", "Send the header: Authorization: Bearer <token>")
        if scheme.lower() != "bearer":
            raise Unauthorized(
                f"{scheme[:20]!r} is not a way to log in.", "Use: Authorization: Bearer <token>"
            )
        if self.knows(token):
            return Principal(self.owner, owner=True, admin=True)
        if token.startswith("attempt:"):
            return self._attempt(token)
        user = self._subject(token, "access")
        return Principal(user, admin=user == self.owner)  # only who has the token can have had it issued

    def peer(self, uid: int) -> Principal:
        """The principal of a process at the other end of the Unix socket; root may read all files anyway."""
        if uid not in (0, os.geteuid()):
            raise Unauthorized(
                f"This server belongs to user {self.owner}.", "Start a server of your own: pliant up"
            )
        return Principal(self.owner, owner=True, admin=True)

    def knows(self, token: str) -> bool:
        """True for the token of the state folder."""
        return hmac.compare_digest(token.encode(), self._token)

    def issue(self, subject: str) -> Issued:
        if not 0 < len(subject) <= 128 or not subject.isprintable():
            raise BadRequest(
                f"{subject[:40]!r} cannot be a user's name.", "Use 1 to 128 printable characters."
            )
        return Issued(self._sign(subject, "access", LIFE), self._sign(subject, "refresh", REFRESH_LIFE), LIFE)

    def refresh(self, token: str) -> Issued:
        return self.issue(self._subject(token, "refresh"))

    def address(self, user: str) -> str:
        """A user in the form of an e-mail address."""
        return user if "@" in user else f"{user}@{socket.gethostname()}"

    def _sign(self, subject: str, use: str, life: int) -> str:
        now = int(time.time())
        claims = {"iss": "pliant", "sub": subject, "use": use, "iat": now, "exp": now + life}
        return jwt.encode({"alg": "HS256", "typ": "JWT"}, claims, self._key)

    def _subject(self, token: str, use: str) -> str:
        wrong = Unauthorized(
            "The token is not valid.", "It is the content of the file `token` in the server's state folder."
        )
        rules = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": "pliant"},
            sub={"essential": True},
            exp={"essential": True},
            use={"essential": True, "value": use},
        )
        try:
            claims = jwt.decode(token, self._key, algorithms=["HS256"]).claims
            rules.validate(claims)
        except (JoseError, ValueError) as error:
            if getattr(error, "error", "") == "expired_token":
                raise Unauthorized("The token has expired.", "Get a new one: POST /api/v1/token") from error
            raise wrong from error
        return str(claims["sub"])

    def _attempt(self, token: str) -> Principal:
        attempt = token.removeprefix("attempt:").rpartition(":")[0]
        if not hmac.compare_digest(token.encode(), attempt_token(attempt, self._secret).encode()):
            raise Unauthorized("The token of this attempt is not valid.", "It is in $PLIANT_TOKEN_FILE.")
        return Principal(f"attempt {attempt}", attempt=attempt)


class Gate:
    """Lets nothing pass without a principal but what is open. A route cannot forget to ask."""

    def __init__(self, app: ASGIApp, authority: Authority) -> None:
        self._app = app
        self._authority = authority

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._open(scope):
            await self._app(scope, receive, send)
            return
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        try:
            peer = scope.get("state", {}).get(PEER)
            if peer is None or header:
                principal = self._authority.who(header.decode("latin-1"))
            else:
                principal = self._authority.peer(peer)
            _check_reach(principal, scope["method"], scope["path"])
        except (Unauthorized, Forbidden) as error:
            await refusal(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)

    @staticmethod
    def _open(scope: Scope) -> bool:
        path = scope["path"]
        host = scope["client"][0] if scope.get("client") else ""
        local = host == "::1" or host.startswith("127.") or PEER in scope.get("state", {})
        return path in OPEN or (path in LOOPBACK_OPEN and local)


def _check_reach(principal: Principal, method: str, path: str) -> None:
    own = f"/api/v1/attempts/{principal.attempt}"
    if principal.attempt and (method, path) not in {(verb, f"{own}/{what}") for verb, what in OF_ATTEMPTS}:
        raise Forbidden(
            "The token of an attempt may only read its own allocation, acknowledge it and report.",
            f"Under {own}/ are the routes for it.",
        )


async def _principal(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


Caller = Annotated[Principal, Depends(_principal)]

BEARER = HTTPBearer(auto_error=False, description="The server's token, or one from POST /api/v1/token.")
"""Only tells OpenAPI; Gate does the work."""
