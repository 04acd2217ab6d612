"""Turns what a client sends to log in into tokens; records logins and refused logins."""

import hashlib
import hmac
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request

from pliant.api.context import Context
from pliant.api.errors import Unauthorized
from pliant.api.identity.accounts import by_name, look_up
from pliant.api.identity.auth import Authority
from pliant.api.identity.openid import NotKnown, Person, Relying
from pliant.api.identity.passwords import fits
from pliant.api.identity.principal import Principal, place_of
from pliant.api.identity.tokens import ACCESS, LIFE, REFRESH, REFRESH_LIFE, Issued
from pliant.api.journal import begin, keep_login
from pliant.control.audit import TRAIL
from pliant.control.errors import BadRequest, Conflict, NotFound, Refused
from pliant.control.usecases.identities import Told
from pliant.model.identity import APPLICATION, USER, Account, Application, Provider, User, subject_of
from pliant.model.rights import TENANT, Grant

log = logging.getLogger(__name__)

T = TypeVar("T")

GRANTS = {
    "client_credentials": ("clientID", "clientSecret"),
    "app_token": ("appID", "appSecret"),
    "password": ("username", "password"),
}
"""Grant -> the fields that carry the name and the secret."""


def sign_in(
    here: Context, request: Request, fields: dict[str, str], grants: Iterable[str] = GRANTS
) -> Issued:
    """Raises Unauthorized, BadRequest, Slow."""
    grant = fields["grantType"]
    if grant == "refresh_token":
        return _refreshed(here, fields["refreshToken"])
    if grant not in grants:
        raise BadRequest(
            f"There is no grant {grant[:40]!r}.",
            f"Use one of {', '.join(grants)}, refresh_token.",
            field="grantType",
        )
    name, secret = (fields[field] for field in GRANTS[grant])
    if here.authority.knows(secret):
        return here.authority.issue(name or here.authority.owner)
    address = _source(request)
    here.authority.tries.check(name, address)
    trail = begin(request, Principal(name[:128]), "self:write", "sign-in")
    TRAIL.set(trail)
    try:
        issued = (
            _by_password(here, name, secret, address)
            if grant == "password"
            else _by_secret(here, name, secret)
        )
    except Unauthorized as error:
        keep_login(here.service, trail)
        refused = here.authority.tries.wrong(name, address)
        raise refused if grant == "password" else error from error
    here.authority.tries.right(name, address)
    return issued


def _source(request: Request) -> str:
    return request.client.host if request.client is not None else "unix"


def _by_password(here: Context, name: str, password: str, address: str) -> Issued:
    user = here.service.board.access.user_names.get(name)
    wrong = Unauthorized("The name or the password is not valid.", "Ask an administrator to reset it.")
    if not fits(password, user.password if user is not None else None) or user is None or not user.enabled:
        raise wrong
    session = here.service.identities.begin_session(user.id, address)
    if session is None:
        raise wrong
    return _of_session(here.authority, user, session.id, 0)


def _by_secret(here: Context, client: str, secret: str) -> Issued:
    row = here.authority.client(client, secret)
    if isinstance(row, Application):
        if not row.enabled:
            raise Unauthorized(f"The application {row.name} is disabled.", "Ask an administrator.")
        claims = {"sub": subject_of(APPLICATION, row.id), "gen": row.generation}
    else:
        claims = {"sub": row.owner, "key": row.id, "gen": row.generation}
    return Issued(here.authority.signer.sign(ACCESS, LIFE, claims), "", LIFE)


def _refreshed(here: Context, token: str) -> Issued:
    claims = here.authority.signer.read(token, REFRESH)
    if "sid" not in claims:
        return here.authority.refresh(token)
    gone = Unauthorized("The token is no longer valid.", "Log in again: pliant login")
    user = here.service.board.access.users.get(str(claims["sub"]).partition(":")[2])
    if user is None or not user.enabled or claims.get("gen") != user.generation:
        raise gone
    session = here.service.identities.use_session(str(claims["sid"]), int(claims.get("use", -1)))
    if session is None:
        raise gone
    return _of_session(here.authority, user, session.id, session.uses)


def _of_session(authority: Authority, user: User, session: str, uses: int) -> Issued:
    claims = {"sub": subject_of(USER, user.id), "sid": session, "gen": user.generation}
    return Issued(
        authority.signer.sign(ACCESS, LIFE, claims),
        authority.signer.sign(REFRESH, REFRESH_LIFE, {**claims, "use": uses}),
        LIFE,
    )


# -- by a provider ----------------------------------------------------------------------------------

LIVES = 600.0
"""Seconds within which a login that has begun must be finished."""

AGAIN = "refresh-token"
"""Name of the provider's refresh token in what is kept sealed in the row of a user."""

MOST_LOGINS = 10_000
"""Most logins that have begun; with more the oldest are forgotten."""


class Foreign(NotKnown):
    """There is no such login, or another client began it: the provider was not asked."""


class Pending(Conflict):
    """The login in the browser is not finished."""

    code = "login-pending"


@dataclass(slots=True)
class Login:
    """A login that has begun."""

    state: str  # goes through the provider and the browser
    nonce: str
    verifier: str
    holder: str  # SHA-256 of the secret of the browser (a cookie) or program that began it
    shown: str  # the code that the person compares, if a program began; empty: a page of this server did
    until: float
    person: Person | None = None  # once the browser came back
    ticket: str = ""  # allows the program; only the page has it
    allowed: bool = False


class Logins:
    """Logins that have begun, in memory: a restart forgets them. Thread-safe."""

    def __init__(self, relying: Relying, clock: Callable[[], float] = time.monotonic) -> None:
        self.relying = relying
        self._clock = clock
        self._guard = threading.Lock()
        self._begun: dict[str, Login] = {}

    def begin(self, holder: str, program: bool) -> tuple[Login, str]:
        """A new login, and the address where the person logs in."""
        letters = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels: they make no words
        shown = "".join(secrets.choice(letters) for _ in range(8)) if program else ""
        made = Login(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            holder,
            f"{shown[:4]}-{shown[4:]}" if shown else "",
            self._clock() + LIVES,
        )
        address = self.relying.begin(made.state, made.nonce, made.verifier)
        with self._guard:
            now = self._clock()
            self._begun = {state: it for state, it in self._begun.items() if it.until > now}
            while len(self._begun) >= MOST_LOGINS:
                self._begun.pop(next(iter(self._begun)))
            self._begun[made.state] = made
        return made, address

    def returned(self, state: str, code: str, secret: str, issuer: str | None) -> Person:
        """The person who came back to the page that began. A state works once: the first request takes it."""
        with self._guard:
            login = self._known(state)
            if login.shown or not _holds(login, secret):
                raise Foreign("another browser began it")
            del self._begun[state]
        return self.relying.person(code, login.verifier, login.nonce, issuer)

    def arrived(self, state: str, code: str, issuer: str | None) -> Login:
        """Finish a program's login in the browser; the page must then allow it."""
        with self._guard:
            login = self._known(state)
            if not login.shown or login.ticket:
                raise Foreign("another browser began it, or has completed it")
            login.ticket = secrets.token_urlsafe(32)
        try:
            login.person = self.relying.person(code, login.verifier, login.nonce, issuer)
        except Refused:
            with self._guard:
                self._begun.pop(state, None)  # so the program learns of it
            raise
        return login

    def allow(self, state: str, ticket: str) -> None:
        with self._guard:
            login = self._known(state)
            if not login.ticket or not hmac.compare_digest(login.ticket, ticket) or login.person is None:
                raise Foreign("this page cannot allow it")
            login.allowed = True

    def collected(self, state: str, secret: str) -> Person:
        """The person of a program's login that the page has allowed; works once. Raises Pending."""
        with self._guard:
            login = self._known(state)
            if not login.shown or not _holds(login, secret):
                raise Foreign("another program began it")
            if not login.allowed or login.person is None:
                raise Pending("The login in the browser is not finished.", "Ask again in 2 s.")
            del self._begun[state]
            return login.person

    def _known(self, state: str) -> Login:
        login = self._begun.get(state)
        if login is None or login.until <= self._clock():
            raise Foreign(f"it was completed before, or began more than {LIVES:g} s ago")
        return login


def _holds(login: Login, secret: str) -> bool:
    return hmac.compare_digest(login.holder, hashlib.sha256(secret.encode()).hexdigest())


def logins(here: Context) -> Logins:
    """Raises NotFound where no provider is set."""
    if here.logins is None:
        raise NotFound("This server has no login provider.", "Log in with a password or a token.")
    return here.logins


def user_id(issuer: str, subject: str) -> str:
    """The id of the user for a provider's subject: always the same, and never that of a user made here."""
    digest = hashlib.sha256(f"pliant openid\0{issuer}\0{subject}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def by_provider(here: Context, request: Request, find: Callable[[], Person]) -> Issued:
    """Raises Unauthorized, Unavailable, Pending."""
    provider = logins(here).relying.provider
    person = noted(here, request, find)
    trail = begin(request, Principal(person.name), "self:write", "sign-in")
    TRAIL.set(trail)
    try:
        return _of_person(here, provider, person, _source(request))
    except Unauthorized:
        keep_login(here.service, trail)
        raise


def noted(here: Context, request: Request, find: Callable[[], T]) -> T:
    """The result of `find`. A refusal is recorded, except Foreign, which a stranger can cause."""
    try:
        return find()
    except Foreign:
        raise
    except Unauthorized:
        by = logins(here).relying.provider.by
        keep_login(here.service, begin(request, Principal(by), "self:write", "sign-in"))
        raise


def _of_person(here: Context, provider: Provider, person: Person, source: str) -> Issued:
    if not admitted(provider, person):
        raise Unauthorized(
            f"{person.name} is in none of the groups that may log in here.",
            f"An administrator of {provider.name} adds you to a group.",
        )
    identity = user_id(provider.issuer, person.subject)
    user = here.service.board.access.users.get(identity)
    if user is not None and not user.enabled:
        raise Unauthorized(f"The user {user.name} is disabled.", "Ask an administrator.")
    host = urlsplit(provider.issuer).hostname or "provider"
    other = f"{person.name}@{host}"
    # With the name of an account of this machine, the user could be taken for that account.
    names = (
        [other]
        if by_name(person.name) is not None or here.authority.owner == person.name
        else [person.name, other]
    )
    told = told_of(here, provider, person)
    user, session = here.service.identities.begin_session_of(identity, names, told, source)
    return _of_session(here.authority, user, session.id, 0)


def admitted(provider: Provider, person: Person) -> bool:
    return not provider.allowed or bool({*provider.allowed} & {*person.groups})


def told_of(here: Context, provider: Provider, person: Person) -> Told:
    """What the provider says of the person. Raises Unauthorized if no job may run as the named account."""
    grants, account = tuple(_grants(here, provider, person)), _account(here, provider, person)
    return Told(
        provider.by,
        person.told_groups,
        grants,
        sealed(here, person.again),
        email=person.email,
        account=account,
    )


def sealed(here: Context, again: str) -> str:
    """A provider's refresh token, sealed to be stored; '' if there is none."""
    return here.authority.vault.sealed({AGAIN: again}) if again else ""


def _account(here: Context, provider: Provider, person: Person) -> Account | None:
    """The account of this machine that the provider names; None: it names none. Raises Unauthorized."""
    if person.uid is None:
        return None
    known = look_up(person.uid)
    if known is None or not here.authority.accounts.serves(person.uid):
        raise Unauthorized(
            f"{provider.name} names user {person.uid} for {person.name}: no job may run as that here.",
            f"Try: getent passwd {person.uid}",
        )
    return known.account


def _grants(here: Context, provider: Provider, person: Person) -> Iterable[Grant]:
    """The grants of the person's groups. A role in a missing project gives nothing and is logged."""
    board = here.service.board
    for group, role, project in provider.roles:
        if group not in person.groups:
            continue
        found = next((it.queue.id for it in board.projects.values() if it.queue.name == project), None)
        if not project:
            yield Grant(role, TENANT)
        elif found is not None:
            yield Grant(role, place_of(board, found))
        else:
            log.warning("openid: the role of group %s has no effect: there is no project %s", group, project)
