"""Routes for people and programs that may log in. Secrets are shown once and kept as hashes."""

import re
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Response

from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden, Unauthorized
from pliant.api.guard import demand, needs
from pliant.api.identity.accounts import by_name
from pliant.api.identity.auth import Caller, token_of
from pliant.api.identity.passwords import client_and_secret, digest, fits, hashed, temporary
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.api.schemas.models import Received
from pliant.control.errors import BadRequest, Conflict, NotFound
from pliant.model.identity import USER, Account, Application, User, subject_of
from pliant.model.rights import TENANT, may_grant
from pliant.wire.access import (
    ApplicationChange,
    ApplicationItem,
    ApplicationList,
    ApplicationRequest,
    NewPassword,
    OwnPassword,
    Secret,
    UserChange,
    UserItem,
    UserList,
    UserMade,
    UserRequest,
)
from pliant.wire.workload import Counted

router = Router(prefix="/api/v1", tags=["people and programs"])

LOGGED_IN = "logged in"
"""Instead of an address, for tries of a current password: the holder of a token may have many addresses."""

_NAME = re.compile(r"[a-z][-_a-z0-9]*[a-z0-9]")


def _account(caller: Principal, name: str) -> Account | None:
    """The account; None for ''. Needs a right, as jobs run as that account. Raises Forbidden, BadRequest."""
    if not name:
        return None
    demand(caller, "users:bind", TENANT)
    found = by_name(name)
    if found is None or found.uid == 0:
        missing = f"There is no account {name[:64]!r} on this machine for jobs."
        raise BadRequest(missing, f"Try: getent passwd {name}")
    return found


def _check_name(here: Context, name: str, account: Account | None, field: str) -> None:
    """Raise Conflict for the name of an account that shares this server, unless it is bound to an account."""
    if here.authority.box and account is None and by_name(name) is not None:
        raise Conflict(
            f"{name[:40]!r} is an account of this machine, which it could be taken for.",
            "Choose another name, or bind it to that account.",
            field=field,
        )


def _may_become(caller: Principal, account: Account | None) -> None:
    """Raise Forbidden if a new secret would let the caller run jobs as an account that it may not bind."""
    if account is not None:
        demand(caller, "users:bind", TENANT)


def _outranks(here: Context, caller: Principal, subject: str) -> None:
    """Raise Forbidden if that subject may do more than the caller."""
    access = here.service.board.access
    for rule in access.by_subject.get(subject, ()):  # of a disabled role too: it may be enabled again
        if not may_grant(caller.grants, access.grant(rule), caller.box):
            raise Forbidden(
                f"{access.subject_name(subject)} has permissions that you lack.",
                "Ask somebody who has these permissions.",
            )


USERS: Listing[UserItem] = Listing(
    {
        "id": lambda item: item["id"],
        "username": lambda item: item["username"],
        "isLocal": lambda item: item["isLocal"],
        "enabled": lambda item: item["enabled"],
        "createdBy": lambda item: item["createdBy"],
        "createdAt": lambda item: item["createdAt"],
        "updatedAt": lambda item: item["updatedAt"],
        "lastLogin": lambda item: item["lastLogin"],
    },
    searched=("username",),
    most=10_000,
    usual=10_000,
)
AskedUsers = Annotated[Window, Depends(USERS.asked)]


def _users(here: Context) -> list[UserItem]:
    rows = here.service.board.access.users.values()
    return [_user(row) for row in sorted(rows, key=lambda row: row.name)]


# -- people -----------------------------------------------------------------------------------------


@router.get("/users", dependencies=[needs("users:read")], **answers(200, UserList))
def users(here: Here, asked: AskedUsers) -> Response:
    return answer(USERS.page("users", _users(here), asked, lambda item: item))


@router.post("/users", dependencies=[needs("users:write")], **answers(201, UserMade))
def create_user(body: Received[UserRequest], here: Here, caller: Caller) -> Response:
    """The answer's password is good for one thing: to set another."""
    password = temporary()
    account = _account(caller, body.get("account", ""))
    _check_name(here, body["email"], account, "email")
    kept = hashed(password)
    return answered(
        lambda: here.service.identities.create_user(body["email"], kept, caller.user, account),
        lambda row: answer({"id": row.id, "username": row.name, "tempPassword": password}, 201),
    )


@router.get("/users/count", dependencies=[needs("users:read")], **answers(200, Counted))
def count_users(here: Here, asked: AskedUsers) -> Response:
    return answer(USERS.count(_users(here), asked))


@router.get("/users/{key}", dependencies=[needs("users:read")], **answers(200, UserItem))
def user(key: str, here: Here) -> Response:
    """By id or name."""
    return answer(_user(here.service.identities.user(key)))


@router.patch("/users/{key}", dependencies=[needs("users:write")], **answers(200, UserItem))
def update_user(key: str, body: Received[UserChange], here: Here, caller: Caller) -> Response:
    """Bind it to an account of this machine; let it in or keep it out."""
    row = here.service.identities.user(key)
    _outranks(here, caller, subject_of(USER, row.id))
    if "account" in body:
        row = here.service.identities.bind_user(row.id, _account(caller, body["account"]))
    if "enabled" in body:
        row = here.service.identities.enable_user(row.id, body["enabled"])
    return answer(_user(row))


@router.delete("/users/{key}", dependencies=[needs("users:write")], status_code=204, response_model=None)
def delete_user(key: str, here: Here, caller: Caller) -> Response:
    """With its rules and keys; its jobs run on."""
    row = here.service.identities.user(key)
    _outranks(here, caller, subject_of(USER, row.id))
    here.service.identities.delete_user(row.id)
    return empty()


@router.post("/users/{key}/password", dependencies=[needs("users:write")], **answers(200, NewPassword))
def reset_password(key: str, here: Here, caller: Caller) -> Response:
    """A new password that must be changed; all that was logged in ends."""
    row = here.service.identities.user(key)
    _outranks(here, caller, subject_of(USER, row.id))
    _may_become(caller, row.account)
    if not row.password:
        raise Conflict(
            f"The user {row.name} has no password: a login provider says who it is.",
            "Passwords are reset there.",
        )
    password = temporary()
    kept = hashed(password)
    return answered(
        lambda: here.service.identities.set_password(row.id, kept, must_change=True),
        lambda _: answer({"password": password}),
    )


@router.post("/users/{key}/logout", dependencies=[needs("users:write")], status_code=204, response_model=None)
def log_out(key: str, here: Here, caller: Caller) -> Response:
    row = here.service.identities.user(key)
    _outranks(here, caller, subject_of(USER, row.id))
    here.service.identities.log_out(row.id)
    return empty()


@router.post("/me/password", dependencies=[needs("self:write")], status_code=204, response_model=None)
def own_password(body: Received[OwnPassword], here: Here, caller: Caller) -> Response:
    """All that was logged in with the old one ends."""
    row = here.service.board.access.users.get(caller.subject.removeprefix(f"{USER}:"))
    if row is None or not caller.subject.startswith(f"{USER}:"):
        raise BadRequest("You have no password here.", "You are known by your account on this machine.")
    tries = here.authority.tries
    tries.check(row.name, LOGGED_IN)
    if not fits(body["currentPassword"], row.password):
        tries.wrong(row.name, LOGGED_IN)
        raise Unauthorized(
            "The current password is not valid.",
            "Ask an administrator to reset it.",
            field="currentPassword",
        )
    tries.right(row.name, LOGGED_IN)
    new = hashed(body["newPassword"], here.service.board.settings.password_least)
    change = here.service.identities.set_password
    return answered(lambda: change(row.id, new, must_change=False), lambda _: empty())


@router.post("/me/logout", dependencies=[needs("self:write")], status_code=204, response_model=None)
def end_session(here: Here, caller: Caller) -> Response:
    """Ends the session by whose token this is asked."""
    here.service.identities.end_session(caller.via)
    return empty()


def _user(row: User) -> UserItem:
    return {
        "id": row.id,
        "username": row.name,
        "isLocal": bool(row.password),
        "createdAt": stamp(row.created),
        "createdBy": row.created_by,
        "updatedAt": stamp(row.updated or row.created),
        "lastLogin": stamp_or_none(row.last_login),
        "enabled": row.enabled,
        "account": row.account.name if row.account is not None else None,
        "groups": list(row.groups),
        "email": row.email or None,
    }


# -- programs ---------------------------------------------------------------------------------------


@router.get("/service-accounts", dependencies=[needs("applications:read")], **answers(200, ApplicationList))
def applications(here: Here) -> Response:
    rows = sorted(here.service.board.access.applications.values(), key=lambda row: row.name)
    return answer({"next": None, "serviceAccounts": [_application(row) for row in rows]})


@router.post("/service-accounts", dependencies=[needs("applications:write")], **answers(201, ApplicationItem))
def create_application(body: Received[ApplicationRequest], here: Here, caller: Caller) -> Response:
    """It may do nothing until an access rule names it. The secret is shown this once."""
    if not _NAME.fullmatch(body["name"]):
        raise BadRequest(
            f"{body['name'][:40]!r} cannot be the name of an application.",
            "Use lower-case letters, digits, '-' and '_'; first a letter, last a letter or digit.",
            field="name",
        )
    client, secret = client_and_secret()
    kept, account = digest(token_of(client, secret)), _account(caller, body.get("account", ""))
    _check_name(here, body["name"], account, "name")
    return answered(
        lambda: here.service.identities.create_application(body["name"], client, kept, caller.user, account),
        lambda row: answer({**_application(row), "clientSecret": secret}, 201),
    )


@router.get(
    "/service-accounts/{key}", dependencies=[needs("applications:read")], **answers(200, ApplicationItem)
)
def application(key: str, here: Here) -> Response:
    """By id or name."""
    return answer(_application(_find(here, key)))


@router.patch(
    "/service-accounts/{key}", dependencies=[needs("applications:write")], **answers(200, ApplicationItem)
)
def update_application(key: str, body: Received[ApplicationChange], here: Here, caller: Caller) -> Response:
    row = _ranked(here, caller, key)
    enabled = body.get("enabled", row.enabled)
    account = _account(caller, body["account"]) if "account" in body else row.account
    made = here.service.identities.change_application(
        row.id, lambda it: replace(it, enabled=enabled, account=account)
    )
    return answer(_application(made))


@router.post(
    "/service-accounts/{key}/secret", dependencies=[needs("applications:write")], **answers(200, Secret)
)
def renew_secret(key: str, here: Here, caller: Caller) -> Response:
    """The old one is worth nothing from now on."""
    row = _ranked(here, caller, key)
    _may_become(caller, row.account)
    secret = client_and_secret()[1]
    kept = digest(token_of(row.client, secret))
    return answered(
        lambda: here.service.identities.change_application(row.id, lambda it: replace(it, secret=kept)),
        lambda _: answer({"clientSecret": secret}),
    )


@router.delete(
    "/service-accounts/{key}",
    dependencies=[needs("applications:write")],
    status_code=204,
    response_model=None,
)
def delete_application(key: str, here: Here, caller: Caller) -> Response:
    here.service.identities.delete_application(_ranked(here, caller, key).id)
    return empty()


def _ranked(here: Context, caller: Principal, key: str) -> Application:
    row = _find(here, key)
    _outranks(here, caller, subject_of("service-account", row.id))
    return row


def _find(here: Context, key: str) -> Application:
    rows = here.service.board.access.applications
    found = rows.get(key) or next((row for row in rows.values() if row.name == key), None)
    if found is None:
        raise NotFound(f"There is no application {key[:60]!r}.", "See them with: pliant app list")
    return found


def _application(row: Application) -> ApplicationItem:
    return {
        "id": row.id,
        "name": row.name,
        "clientId": row.client,
        "createdAt": stamp(row.created),
        "createdBy": row.created_by,
        "updatedAt": stamp(row.updated or row.created),
        "lastLogin": stamp_or_none(row.last_login),
        "enabled": row.enabled,
        "account": row.account.name if row.account is not None else None,
    }
