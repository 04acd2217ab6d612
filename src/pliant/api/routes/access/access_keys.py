"""Routes for access keys, with which programs act for people. Secrets are shown once and kept as hashes."""

import uuid
from collections.abc import Iterable
from typing import Any

from fastapi import Response

from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden
from pliant.api.guard import needs
from pliant.api.identity.auth import NO_KEYS, Caller, token_of
from pliant.api.identity.passwords import client_and_secret, digest
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.api.schemas.models import Received
from pliant.control.errors import BadRequest, NotFound
from pliant.model.identity import APPLICATION, AccessKey
from pliant.wire.access import KeyItem, KeyList, KeyRequest, Secret

router = Router(prefix="/api/v1", tags=["people and programs"])

DAY = 24 * 3600 * 1000


@router.get("/access-keys", dependencies=[needs("self:read")], **answers(200, KeyList))
def own_keys(here: Here, caller: Caller) -> Response:
    return answer(
        _keys(row for row in here.service.board.access.keys.values() if row.owner == caller.subject)
    )


@router.post("/access-keys", dependencies=[needs("self:write")], **answers(201, KeyItem))
def create_key(body: Received[KeyRequest], here: Here, caller: Caller) -> Response:
    """It acts with your rights as they are at the time, or with less. The secret is shown this once.

    An application has no keys: it logs in with its client id and secret.
    """
    if caller.only or caller.vouched or not caller.subject:
        raise Forbidden("This caller cannot create access keys.", "Log in by yourself: pliant login")
    _no_application(caller)
    days = body.get("days")
    if days is not None and not 1 <= days <= 3650:
        raise BadRequest(f"Invalid lifetime of {days} days.", "Give 1 to 3650.", field="days")
    client, secret = client_and_secret()
    expires = here.service.now() + days * DAY if days is not None else None
    key = AccessKey(
        str(uuid.uuid4()),
        body["name"],
        client,
        digest(token_of(client, secret)),
        caller.subject,
        caller.user,
        body.get("only", ""),
        expires=expires,
    )
    return answered(
        lambda: here.service.identities.create_key(key),
        lambda row: answer({**_key(row), "clientSecret": secret, "token": token_of(client, secret)}, 201),
    )


@router.get("/access-keys/{key}", dependencies=[needs("self:read")], **answers(200, KeyItem))
def own_key(key: str, here: Here, caller: Caller) -> Response:
    """By id or name."""
    return answer(_key(_own_key(here, caller, key)))


@router.post("/access-keys/{key}/secret", dependencies=[needs("self:write")], **answers(200, Secret))
def renew_key(key: str, here: Here, caller: Caller) -> Response:
    """The old secret is worth nothing from now on. The new one is shown this once."""
    if caller.only:
        raise Forbidden("This caller cannot renew access keys.", "Log in by yourself: pliant login")
    _no_application(caller)
    row, secret = _own_key(here, caller, key), client_and_secret()[1]
    kept = digest(token_of(row.client, secret))
    return answered(
        lambda: here.service.identities.renew_key(row.id, kept), lambda _: answer({"clientSecret": secret})
    )


@router.delete("/access-keys/{key}", dependencies=[needs("self:write")], status_code=204, response_model=None)
def revoke_key(key: str, here: Here, caller: Caller) -> Response:
    """By id or name. It is worth nothing from now on."""
    here.service.identities.delete_key(_own_key(here, caller, key).id)
    return empty()


def _no_application(caller: Principal) -> None:
    """Raise Forbidden for an application: a key of it would be refused at each use."""
    if caller.subject.startswith(f"{APPLICATION}:"):
        raise Forbidden(NO_KEYS, f"For a new secret: pliant app secret {caller.user}")


def _own_key(here: Context, caller: Principal, key: str) -> AccessKey:
    rows = [row for row in here.service.board.access.keys.values() if row.owner == caller.subject]
    found = next((row for row in rows if key in (row.id, row.name)), None)
    if found is None:
        raise NotFound(f"You have no access key {key[:60]!r}.", "See yours with: pliant key list")
    return found


@router.get(
    "/administration/access-keys",
    dependencies=[needs("access-keys:administer", writes=False)],
    **answers(200, KeyList),
)
def all_keys(here: Here) -> Response:
    return answer(_keys(here.service.board.access.keys.values()))


@router.delete(
    "/administration/access-keys/{identity}",
    dependencies=[needs("access-keys:administer")],
    status_code=204,
    response_model=None,
)
def revoke_any_key(identity: str, here: Here) -> Response:
    here.service.identities.delete_key(identity)
    return empty()


def _keys(rows: Iterable[AccessKey]) -> dict[str, Any]:
    return {"next": None, "accessKeys": [_key(row) for row in sorted(rows, key=lambda row: row.name)]}


def _key(row: AccessKey) -> KeyItem:
    return {
        "id": row.id,
        "name": row.name,
        "clientId": row.client,
        "createdAt": stamp(row.created),
        "lastLogin": stamp_or_none(row.last_login),
        "expiresAt": stamp_or_none(row.expires),
        "only": row.only,
        "createdBy": row.owner_name,
    }
