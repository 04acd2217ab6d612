"""Routes for login by an OpenID Connect provider: for the console, and for programs without a browser.

A page that shows the same code as the program allows the program's login.
"""

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from pliant.api.context import Context, Here
from pliant.api.guard import OPEN, needs
from pliant.api.identity.auth import OPENID
from pliant.api.identity.signin import LIVES, by_provider, logins, noted
from pliant.api.late import Router
from pliant.api.paths_elsewhere import IDPS
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.schemas.models import Received
from pliant.control.errors import NotFound
from pliant.wire.access import (
    Idp,
    IdpClient,
    IdpMappers,
    LoginAllowed,
    LoginArrived,
    LoginAsked,
    LoginBegun,
    LoginProviders,
    LoginRequest,
    LoginToken,
)
from pliant.wire.server import Tokens

public = Router(prefix=OPENID, tags=["people and programs"])
router = Router(prefix=IDPS, tags=["people and programs"])

ALIAS = "oidc"
"""Key of the only provider."""


@public.get("", dependencies=[needs(OPEN)], **answers(200, LoginProviders))
async def providers(here: Here) -> Response:
    """Who may say here who somebody is, beside this server: none or one."""
    if here.logins is None:
        return answer({"providers": []})
    relying = here.logins.relying
    it = relying.provider
    return answer({"providers": [{"name": it.name, "issuer": it.issuer, "logoutUrl": relying.out}]})


@public.post("/login", dependencies=[needs(OPEN)], **answers(200, LoginBegun))
def begin(body: Received[LoginRequest], here: Here) -> Response:
    """Begin. `holder` is the SHA-256 of a secret with which the tokens are collected."""
    login, url = logins(here).begin(body["holder"].lower(), body.get("program", False))
    return answer({"url": url, "state": login.state, "code": login.shown, "expiresIn": int(LIVES)})


@public.post("/arrived", dependencies=[needs(OPEN)], **answers(200, LoginAsked))
def arrived(body: Received[LoginArrived], request: Request, here: Here) -> Response:
    """A browser came back from the provider for a program: whom the page is to ask."""
    begun = logins(here)
    login = noted(here, request, lambda: begun.arrived(body["state"], body["code"], body.get("issuer")))
    name = login.person.name if login.person is not None else ""
    return answer({"user": name, "code": login.shown, "ticket": login.ticket})


@public.post("/allow", dependencies=[needs(OPEN)], status_code=204, response_model=None)
def allow(body: Received[LoginAllowed], here: Here) -> Response:
    """The person at that page has compared the codes: the program may log in."""
    logins(here).allow(body["state"], body["ticket"])
    return empty()


@public.post("/token", dependencies=[needs(OPEN)], **answers(200, Tokens))
async def token(body: Received[LoginToken], request: Request, here: Here) -> Response:
    """The tokens of the person who logged in. A program gets 409 `login-pending` until the page allows it."""
    begun, state, secret = logins(here), body["state"], body["secret"]
    code = body.get("code")
    issued = await run_in_threadpool(
        by_provider,
        here,
        request,
        lambda: (
            begun.collected(state, secret)
            if code is None
            else begun.returned(state, code, secret, body.get("issuer"))
        ),
    )
    return answer({"accessToken": issued.access, "refreshToken": issued.refresh, "expiresIn": issued.life})


# -- by Run:ai's names, read-only: it is set in openid.yaml -------------------------------------------


@router.get("", dependencies=[needs("security-settings:read")], **answers(200, list[Idp]))
async def idps(here: Here) -> Response:
    """None or one."""
    return answer([_idp(here)] if here.logins is not None else [])


@router.get("/{key}", dependencies=[needs("security-settings:read")], **answers(200, Idp))
async def idp(key: str, here: Here) -> Response:
    return answer(_known(here, key))


@router.get("/{key}/mappers", dependencies=[needs("security-settings:read")], **answers(200, IdpMappers))
async def idp_mappers(key: str, here: Here) -> Response:
    return answer(_known(here, key)["mappers"])


def _known(here: Context, key: str) -> Idp:
    found = _idp(here)
    if key != ALIAS:
        raise NotFound(f"There is no login provider {key[:60]!r}.", f"There is: {ALIAS}.")
    return found


def _idp(here: Context) -> Idp:
    """Raises NotFound where no provider is set."""
    it = logins(here).relying.provider
    client: IdpClient = {"clientId": it.client, "clientSecret": "*******", "scopes": [*it.scopes]}
    mappers: IdpMappers = {"groups": it.groups, "email": it.email}
    if it.uid:
        mappers["uid"] = it.uid
    if it.allowed:
        client["mandatoryClaim"] = {"claim": it.groups, "values": [*it.allowed]}
    return {
        "alias": ALIAS,
        "type": ALIAS,
        "name": it.name,
        "issuer": it.issuer,
        "redirectUri": it.back,
        "oidcData": client,
        "mappers": mappers,
    }
