"""From what somebody sends to log in to tokens; each success and each failure is recorded."""

from collections.abc import Iterable

from starlette.requests import Request

from pliant.api.auth import Authority
from pliant.api.context import Context
from pliant.api.errors import Unauthorized
from pliant.api.journal import begin
from pliant.api.passwords import fits
from pliant.api.principal import Principal
from pliant.api.tokens import ACCESS, LIFE, REFRESH, REFRESH_LIFE, Issued
from pliant.control.audit import TRAIL
from pliant.control.errors import BadRequest
from pliant.model.identity import APPLICATION, USER, Application, User, subject_of

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
    address = request.client.host if request.client is not None else "unix"
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
        trail.recorded = True
        TRAIL.set(None)
        here.service.note_audit(trail.record(here.service.now(), 401))
        refused = here.authority.tries.wrong(name, address)
        raise refused if grant == "password" else error from error
    here.authority.tries.right(name, address)
    return issued


def _by_password(here: Context, name: str, password: str, address: str) -> Issued:
    user = here.service.board.access.user_names.get(name)
    if not fits(password, user.password if user is not None else None) or user is None or not user.enabled:
        raise Unauthorized("The name or the password is not valid.", "Ask an administrator to reset it.")
    session = here.service.identities.begin_session(user, address)
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
