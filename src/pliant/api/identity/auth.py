"""Authenticates callers: an account of this machine on the socket, or a client with a token."""

import getpass
import hashlib
import hmac
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pliant.api.connections.peer import PEER
from pliant.api.errors import Forbidden, Unauthorized, refusal
from pliant.api.identity.accounts import Accounts, Known, local
from pliant.api.identity.passwords import Tries
from pliant.api.identity.principal import ALL, PASSWORD, Principal
from pliant.api.identity.tokens import ACCESS, LIFE, REFRESH, REFRESH_LIFE, Issued, Keys, Signer
from pliant.api.identity.vault import Vault
from pliant.api.journal import journalled
from pliant.api.pace import Pace
from pliant.control.board.access import Access
from pliant.control.errors import BadRequest, Refused
from pliant.control.service import Service
from pliant.model.identity import (
    APPLICATION,
    UNIX,
    UNIX_GROUP,
    USER,
    AccessKey,
    Account,
    Application,
    User,
    subject_of,
)
from pliant.model.rights import Grant
from pliant.wire.proof import LEAST, MOST, PATH, key_of, named, proof

VOUCHED = "vouched"
"""Type of a subject that a holder of the state folder's token has vouched for."""

KEY = "plk_"
"""An access key as a token: this, its client id, `_`, its secret."""


def token_of(client: str, secret: str) -> str:
    return f"{KEY}{client}_{secret}"


NO_KEYS = "An application has no access keys: it logs in with its client id and secret."

NAMED = 16
"""Digits of a key's hash with which a client names the key when it asks for a proof."""

ADMINISTRATORS = "pliant-admin"
"""Group of the machine whose members are system administrators on a box."""

OPENID = "/api/v1/openid"
"""Prefix of the routes of a login by a provider; they are open, because the person is not known yet."""

OPEN = frozenset(
    {"/healthz", "/readyz", "/version", PATH, "/api/docs", "/api/v1/token", "/api/v2/token", OPENID}
    | {f"{OPENID}/{what}" for what in ("login", "arrived", "allow", "token")}
)
"""Paths that need no token."""

OPEN_TOKEN = re.compile(r"/auth/realms/[^/]+/protocol/openid-connect/token")
"""An older address of the token route, for any realm; it needs no token either."""

OF_ATTEMPTS = (("GET", "allocation"), ("POST", "link"), ("POST", "acks"), ("POST", "progress"))
"""What the token of an attempt may call, below its own path."""

LOOPBACK_OPEN = frozenset({"/metrics"})
"""Paths that need no token if the request comes from this machine."""


def attempt_token(attempt: str, secret: bytes) -> str:
    """The token with which the tasks of an attempt (`<workload>/<task>/<number>`) authenticate."""
    return f"attempt:{attempt}:{hmac.new(secret, attempt.encode(), hashlib.sha256).hexdigest()}"


def _account() -> str:
    """The name of the account that runs the server; its uid if it has no name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Authority:
    """Finds the principal of a request. Raises Unauthorized."""

    def __init__(
        self,
        token: Callable[[], str],
        secret: bytes,
        *,
        access: Callable[[], Access] = Access,
        keys: Keys | None = None,
        box: bool = False,
        least: int = 0,
    ) -> None:
        """`token()`: the state folder's token now; `secret` signs for attempts; `least`: smallest uid."""
        self._token = token
        self._secret = secret
        self.vault = Vault(secret)
        # Signs with a key of its own: the token of an attempt must never pass for one of these.
        self.signer = Signer(keys or (lambda: (secret,)))
        self._access = access
        self.tries = Tries()
        self.box = box
        self.accounts = Accounts(least)
        self.owner = _account()
        self._here = Account(os.geteuid(), self.owner)

    def who(self, header: str) -> Principal:
        """The principal of an `Authorization` header."""
        return self.resolver(header)()

    def resolver(self, header: str) -> Callable[[], Principal]:
        """Finds the principal of a header, with its rights at each call. A token may expire meanwhile."""
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if not header:
            raise Unauthorized("No token was sent.", "Send the header: Authorization: Bearer <token>")
        if scheme.lower() != "bearer":
            wrong = f"{scheme[:20]!r} is not a supported authorization scheme."
            raise Unauthorized(wrong, "Use: Authorization: Bearer <token>")
        if self.knows(token) or token.startswith(("attempt:", KEY)):
            return partial(self._of_secret, token)
        return partial(self._of_claims, self.signer.read(token, ACCESS))

    def _of_secret(self, token: str) -> Principal:
        """The principal of a token that holds no claims."""
        if self.knows(token):
            return self._owner()
        if token.startswith("attempt:"):
            return self._attempt(token)
        if not token.startswith(KEY):
            raise Unauthorized("The token is no longer valid.", "Log in again: pliant login")
        client, _, secret = token.removeprefix(KEY).partition("_")
        row = self.client(client, secret)
        return self._of_key(row) if isinstance(row, AccessKey) else self._of_application(row)

    async def peer(self, uid: int) -> Principal:
        """The principal of a process on the socket. Off a box root is the owner: it can read all files."""
        if not self.box:
            if uid not in (0, os.geteuid()):
                raise Unauthorized(
                    f"This server belongs to user {self.owner}.", "Start a server of your own: pliant up"
                )
            return self._owner()
        return self._of_account(await self.accounts.of(uid))

    def _of_account(self, known: Known) -> Principal:
        """The principal of an account of the machine."""
        name, uid = known.account.name, known.account.uid
        subject = subject_of(UNIX, name)
        groups = [subject_of(UNIX_GROUP, group) for group in known.groups]
        if uid in (0, os.geteuid()) or ADMINISTRATORS in known.groups:
            grants: tuple[Grant, ...] = ALL
        else:
            grants = self._access().grants((subject, *groups), uid)
        return Principal(
            name,
            subject,
            grants,
            account=known.account if uid else None,  # root owns no jobs
            admin=ALL[0] in grants,
            box=True,
        )

    def proof(self, name: str, nonce: str, at: tuple[str, int]) -> str:
        """The proof (wire.proof) that this server knows the named token; `at`: its end of the connection."""
        if not LEAST <= len(nonce) <= MOST or not nonce.isalnum():
            raise BadRequest("The nonce is not valid.", f"Send {LEAST} to {MOST} letters and digits.")
        row = next((row for row in self._access().clients.values() if row.secret[:NAMED] == name), None)
        key = bytes.fromhex(row.secret) if row is not None else key_of(self._token_named(name))
        return proof(key, nonce, *at)

    def _token_named(self, name: str) -> str:
        """The token that `name` stands for. Raises Unauthorized."""
        if name == named(token := self._token()):
            return token
        if name.startswith("attempt:"):
            return attempt_token(name.removeprefix("attempt:"), self._secret)
        return self.signer.completed(name)

    def knows(self, token: str) -> bool:
        """True for the token of the state folder; False on a box."""
        return not self.box and hmac.compare_digest(token.encode(), self._token().encode())

    def client(self, client: str, secret: str) -> Application | AccessKey:
        """The application or key with that client id. Raises Unauthorized if the secret is not its own."""
        row = self._access().clients.get(client)
        digest = hashlib.sha256(f"{KEY}{client}_{secret}".encode()).hexdigest()
        same = hmac.compare_digest(digest, row.secret if row is not None else "-" * len(digest))
        if row is None or not same:
            raise Unauthorized("The secret is not valid.", "Get a new one: pliant key create NAME")
        return row

    def issue(self, name: str) -> Issued:
        """Tokens for a name that a holder of the server's token vouches for. Raises BadRequest."""
        if not 0 < len(name) <= 128 or not name.isprintable():
            raise BadRequest(f"{name[:40]!r} cannot be a user's name.", "Use 1 to 128 printable characters.")
        claims = {"sub": subject_of(VOUCHED, name), "of": named(self._token())}
        return Issued(
            self.signer.sign(ACCESS, LIFE, claims), self.signer.sign(REFRESH, REFRESH_LIFE, claims), LIFE
        )

    def refresh(self, token: str) -> Issued:
        """New tokens for the refresh token of a vouched name. Raises Unauthorized."""
        claims = self.signer.read(token, REFRESH)
        kind, _, name = str(claims["sub"]).partition(":")
        if kind != VOUCHED or self.box or claims.get("of") != named(self._token()):
            raise Unauthorized("The token is not valid.", "Log in again: pliant login")
        return self.issue(name)

    def address(self, user: str) -> str:
        """A user in the form of an e-mail address."""
        return user if "@" in user else f"{user}@{socket.gethostname()}"

    # -- principals ---------------------------------------------------------------------------------

    def _owner(self) -> Principal:
        subject = subject_of(UNIX, self.owner)
        return Principal(self.owner, subject, ALL, account=self._here, owner=True, admin=True)

    def _of_claims(self, claims: Mapping[str, Any]) -> Principal:
        gone = Unauthorized("The token is no longer valid.", "Log in again: pliant login")
        subject = str(claims["sub"])
        kind, _, identity = subject.partition(":")
        access, generation = self._access(), claims.get("gen")
        # Only a holder of the server's token can have had it issued; it ends with that token.
        if kind == VOUCHED and not self.box and claims.get("of") == named(self._token()):
            if (user := access.user_names.get(identity)) is not None:
                return self._of_user(user, "")
            owner = identity == self.owner
            subject = subject_of(UNIX, self.owner) if owner else subject
            return Principal(identity, subject, ALL, account=self._here, admin=owner, vouched=True)
        if "key" in claims:  # also of a key that is gone: its owner's own tokens have no key
            key = access.keys.get(str(claims["key"]))
            if key is None or generation != key.generation:
                raise gone
            return self._of_key(key)
        if kind == USER and (user := access.users.get(identity)) is not None:
            session = str(claims.get("sid", ""))
            known = access.sessions.get(session)
            if generation != user.generation or known is None or known.expires <= time.time() * 1000:
                raise gone
            return self._of_user(user, session)
        if kind == APPLICATION and (program := access.applications.get(identity)) is not None:
            if generation != program.generation:
                raise gone
            return self._of_application(program)
        raise gone

    def _of_user(self, user: User, via: str) -> Principal:
        if not user.enabled:
            raise Unauthorized(f"The user {user.name} is disabled.", "Ask an administrator.")
        subject = subject_of(USER, user.id)
        principal = self._bound(user.name, subject, user.account, via)
        return replace(principal, only=PASSWORD) if user.must_change else principal

    def _of_application(self, row: Application) -> Principal:
        if not row.enabled:
            raise Unauthorized(f"The application {row.name} is disabled.", "Ask an administrator.")
        return self._bound(row.name, subject_of(APPLICATION, row.id), row.account, "")

    def _of_key(self, key: AccessKey) -> Principal:
        """A key has the rights of its owner, as they are now."""
        kind, _, identity = key.owner.partition(":")
        if key.expires is not None and key.expires <= time.time() * 1000:
            raise Unauthorized(
                f"The access key {key.name} has expired.", "Create another: pliant key create NAME"
            )
        if kind == APPLICATION:
            raise Unauthorized(NO_KEYS, f"For a new secret: pliant app secret {key.owner_name}")
        if kind == USER and (user := self._access().users.get(identity)) is not None:
            principal = self._of_user(user, key.id)
        elif kind == UNIX and not self.box and identity == self.owner:
            principal = self._owner()
        elif kind == UNIX and self.box and (known := local(identity)) is not None:
            principal = self._of_account(known)
        else:
            raise Unauthorized(
                "The owner of the access key was deleted.", "Create your own key: pliant key create NAME"
            )
        return replace(principal, via=key.id, only=principal.only or key.only, owner=False)

    def _bound(self, name: str, subject: str, account: Account | None, via: str) -> Principal:
        """The principal of a user or application of this server; off a box all jobs run as one account."""
        subjects = [subject]
        if self.box and account is not None and (known := local(account.name)) is not None:
            subjects += [subject_of(UNIX_GROUP, group) for group in known.groups]
        grants = self._access().grants(subjects)
        return Principal(
            name,
            subject,
            grants,
            account=account if self.box else self._here,
            admin=any(grant == ALL[0] for grant in grants),
            via=via,
            box=self.box,
        )

    def _attempt(self, token: str) -> Principal:
        attempt = token.removeprefix("attempt:").rpartition(":")[0]
        if not hmac.compare_digest(token.encode(), attempt_token(attempt, self._secret).encode()):
            raise Unauthorized("The token of this attempt is not valid.", "It is in $PLIANT_TOKEN_FILE.")
        return Principal(f"attempt {attempt}", attempt=attempt)


class Gate:
    """Middleware: refuses a request without a principal unless its path is open. No route can forget it."""

    def __init__(self, app: ASGIApp, authority: Authority, service: Service) -> None:
        self._app = app
        self._service = service
        self._authority = authority
        self._pace = Pace(
            lambda: service.board.settings.request_rate,
            "sends more than {rate} requests in a second",
            "Try again in 1 s. An administrator sets the rate: pliant cluster settings request-rate=N",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._open(scope):
            await self._app(scope, receive, send)
            return
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        try:
            peer = scope.get("state", {}).get(PEER)
            if peer is None or header:
                resolve: Callable[[], Any] = self._authority.resolver(header.decode("latin-1"))
                principal = resolve()
                self._demand_own(principal, peer)
            else:
                resolve = partial(self._authority.peer, peer)
                principal = await resolve()
            _check_reach(principal, scope["method"], scope["path"])
            if not (principal.owner or principal.attempt):
                self._pace.take(principal.person)
        except Refused as error:
            await refusal(error)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(principal=principal, resolve=resolve)
        await self._app(scope, receive, journalled(scope, self._service, send))

    def _demand_own(self, principal: Principal, peer: int | None) -> None:
        """On a box: raise Unauthorized if the socket's account is neither root nor the attempt's own."""
        if peer is None or not (self._authority.box and principal.attempt):
            return
        view = self._service.board.workloads.get(principal.attempt.partition("/")[0])
        owner = view.workload.owner if view is not None else None
        if owner is not None and peer not in (0, owner.uid):
            raise Unauthorized(
                "The token of this attempt belongs to another account.", "Use the one in $PLIANT_TOKEN_FILE."
            )

    @staticmethod
    def _open(scope: Scope) -> bool:
        path = scope["path"]
        host = scope["client"][0] if scope.get("client") else ""
        local = host == "::1" or host.startswith("127.") or PEER in scope.get("state", {})
        return path in OPEN or (path in LOOPBACK_OPEN and local) or bool(OPEN_TOKEN.fullmatch(path))


def _check_reach(principal: Principal, method: str, path: str) -> None:
    own = f"/api/v1/attempts/{principal.attempt}"
    if principal.attempt and (method, path) not in {(verb, f"{own}/{what}") for verb, what in OF_ATTEMPTS}:
        raise Forbidden(
            "The token of an attempt may only read its own allocation, acknowledge it and report.",
            f"Use the routes under {own}/.",
        )


async def _principal(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


Caller = Annotated[Principal, Depends(_principal)]


async def principal_now(request: Request) -> Principal:
    """The caller as its rights are now, while its request is still being answered. Raises Refused."""
    found = request.state.resolve()
    principal: Principal = await found if isawaitable(found) else found
    return principal
