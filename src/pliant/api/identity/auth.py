"""Who asks: an account of this machine at the other end of the socket, or anyone who has a token."""

import getpass
import hashlib
import hmac
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
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
"""Type of a subject for which anyone who has the token of the state folder has spoken."""

KEY = "plk_"
"""An access key as a token: this, its client id, `_`, its secret."""


def token_of(client: str, secret: str) -> str:
    return f"{KEY}{client}_{secret}"


NAMED = 16
"""Digits of its hash by which a client names a key in the question for a proof."""

ADMINISTRATORS = "pliant-admin"
"""Group of the machine whose members are system administrators on a box."""

OPENID = "/api/v1/openid"
"""Below it lies what a login by a provider asks for; it is open, as the person is not known yet."""

OPEN = frozenset(
    {"/healthz", "/readyz", "/version", PATH, "/api/docs", "/api/v1/token", "/api/v2/token", OPENID}
    | {f"{OPENID}/{what}" for what in ("login", "arrived", "allow", "token")}
)
"""Paths that anybody may ask for."""

OPEN_TOKEN = re.compile(r"/auth/realms/[^/]+/protocol/openid-connect/token")
"""So may it be, whatever the realm: an older address of the same."""

OF_ATTEMPTS = (("GET", "allocation"), ("POST", "link"), ("POST", "acks"), ("POST", "progress"))
"""What the token of an attempt is good for, below its own path."""

LOOPBACK_OPEN = frozenset({"/metrics"})
"""Paths that anybody on this machine may ask for."""


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
    """Knows who sends what. Raises Unauthorized."""

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
        """`token()` is that of the state folder now, `secret` signs for attempts; `least`: uid on a box."""
        self._token = token
        self._secret = secret
        self.vault = Vault(secret)
        # A key of its own: what attempts can have signed must never pass for one of these.
        self.signer = Signer(keys or (lambda: (secret,)))
        self._access = access
        self.tries = Tries()
        self.box = box
        self.accounts = Accounts(least)
        self.owner = _account()
        self._here = Account(os.geteuid(), self.owner)

    def who(self, header: str) -> Principal:
        """The principal of an `Authorization` header."""
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if not header:
            raise Unauthorized("No token was sent.", "Send the header: Authorization: Bearer <token>")
        if scheme.lower() != "bearer":
            raise Unauthorized(
                f"{scheme[:20]!r} is not a supported authorization scheme.",
                "Use: Authorization: Bearer <token>",
            )
        if self.knows(token):
            return self._owner()
        if token.startswith("attempt:"):
            return self._attempt(token)
        if token.startswith(KEY):
            client, _, secret = token.removeprefix(KEY).partition("_")
            row = self.client(client, secret)
            return self._of_key(row) if isinstance(row, AccessKey) else self._of_application(row)
        return self._of_claims(self.signer.read(token, ACCESS))

    async def peer(self, uid: int) -> Principal:
        """The principal of a process at the other end of the Unix socket; root may read all files anyway."""
        if not self.box:
            if uid not in (0, os.geteuid()):
                raise Unauthorized(
                    f"This server belongs to user {self.owner}.", "Start a server of your own: pliant up"
                )
            return self._owner()
        return self._of_account(await self.accounts.of(uid))

    def _of_account(self, known: Known) -> Principal:
        """An account of the machine, by whichever way it comes."""
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
        """That this server knows the token of that name (wire.proof), shown to who reached it there."""
        if not LEAST <= len(nonce) <= MOST or not nonce.isalnum():
            raise BadRequest("The nonce is not valid.", f"Send {LEAST} to {MOST} letters and digits.")
        row = next((row for row in self._access().clients.values() if row.secret[:NAMED] == name), None)
        key = bytes.fromhex(row.secret) if row is not None else key_of(self._token_named(name))
        return proof(key, nonce, *at)

    def _token_named(self, name: str) -> str:
        """Raises Unauthorized."""
        if name == named(token := self._token()):
            return token
        if name.startswith("attempt:"):
            return attempt_token(name.removeprefix("attempt:"), self._secret)
        return self.signer.completed(name)

    def knows(self, token: str) -> bool:
        """True for the token of the state folder, which counts for nothing on a box."""
        return not self.box and hmac.compare_digest(token.encode(), self._token().encode())

    def client(self, client: str, secret: str) -> Application | AccessKey:
        """The program or key with that client id, if the secret is its own."""
        row = self._access().clients.get(client)
        digest = hashlib.sha256(f"{KEY}{client}_{secret}".encode()).hexdigest()
        if (
            not hmac.compare_digest(digest, row.secret if row is not None else "-" * len(digest))
            or row is None
        ):
            raise Unauthorized("The secret is not valid.", "Get a new one: pliant key create NAME")
        return row

    def issue(self, name: str) -> Issued:
        """For anyone who has the server's own token and says who they are."""
        if not 0 < len(name) <= 128 or not name.isprintable():
            raise BadRequest(f"{name[:40]!r} cannot be a user's name.", "Use 1 to 128 printable characters.")
        claims = {"sub": subject_of(VOUCHED, name), "of": named(self._token())}
        return Issued(
            self.signer.sign(ACCESS, LIFE, claims), self.signer.sign(REFRESH, REFRESH_LIFE, claims), LIFE
        )

    def refresh(self, token: str) -> Issued:
        """Another pair for anyone who was vouched for. Raises Unauthorized."""
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
        # Only who has the server's token can have had it issued; with that token it ends.
        if kind == VOUCHED and not self.box and claims.get("of") == named(self._token()):
            if (user := access.user_names.get(identity)) is not None:
                return self._of_user(user, "")
            owner = identity == self.owner
            subject = subject_of(UNIX, self.owner) if owner else subject
            return Principal(identity, subject, ALL, account=self._here, admin=owner, vouched=True)
        if (key := access.keys.get(str(claims.get("key", "")))) is not None and "key" in claims:
            if generation != key.generation:
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
        access = self._access()
        kind, _, identity = key.owner.partition(":")
        if key.expires is not None and key.expires <= time.time() * 1000:
            raise Unauthorized(
                f"The access key {key.name} has expired.", "Create another: pliant key create NAME"
            )
        if kind == USER:
            user = access.users.get(identity)
            if user is None:
                raise Unauthorized(
                    "The owner of the access key was deleted.", "Create your own key: pliant key create NAME"
                )
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
        """Somebody of this server's own users; off a box all jobs are processes of one account."""
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
    """Lets nothing pass without a principal but what is open. A route cannot forget to ask."""

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
                principal = self._authority.who(header.decode("latin-1"))
                self._demand_own(principal, peer)
            else:
                principal = await self._authority.peer(peer)
            _check_reach(principal, scope["method"], scope["path"])
            if not (principal.owner or principal.attempt):
                self._pace.take(principal.person)
        except Refused as error:
            await refusal(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, journalled(scope, self._service, send))

    def _demand_own(self, principal: Principal, peer: int | None) -> None:
        """The token of an attempt is good only in the hands of the account that the attempt runs as."""
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
