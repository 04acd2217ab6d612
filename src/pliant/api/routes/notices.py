"""Routes for notifications about jobs, and for the mail server that sends them."""

from collections import Counter

from fastapi import Response

from pliant.api.context import Here
from pliant.api.guard import demand, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received
from pliant.control.errors import BadRequest, Conflict, NotFound
from pliant.model.notice import ADDRESS, END, EVENTS, FAILURE, MAIL, WEBHOOK, MailServer, Subscription
from pliant.model.rights import TENANT
from pliant.wire.notices import (
    MailServerItem,
    MailServerRequest,
    NotificationItem,
    NotificationList,
    NotificationRequest,
    Tested,
)

router = Router(prefix="/api/v1", tags=["notifications"])


@router.get("/notifications", dependencies=[needs("self:read")], **answers(200, NotificationList))
def notifications(here: Here, caller: Caller) -> Response:
    """The caller's own; anyone who sets the tenant's settings sees all, and the server for mail."""
    notices, all_of_them = here.service.notices, _administers(caller)
    waiting = Counter(row.subscription for row in notices.pending())
    rows = [row for row in notices.subscriptions() if all_of_them or row.user == caller.person]
    server = notices.mail_server()
    return answer(
        {
            "notifications": [_item(row, waiting[row.id]) for row in rows],
            "mailServer": _server(server) if server is not None and all_of_them else None,
            "mail": server is not None,
        }
    )


@router.post("/notifications", dependencies=[needs("self:write")], **answers(201, NotificationItem))
def subscribe(body: Received[NotificationRequest], here: Here, caller: Caller) -> Response:
    """Webhooks, and notices about all users' jobs, are for anyone who sets the tenant's settings."""
    wanted = wanted_of(body, caller)
    return answered(lambda: here.service.notices.subscribe(wanted), lambda row: answer(_item(row, 0), 201))


def wanted_of(body: NotificationRequest, caller: Principal) -> Subscription:
    """Raises Forbidden, BadRequest."""
    kind, address = body["kind"], body["address"]
    everybody = bool(body.get("everybody", False))
    if kind == WEBHOOK or everybody:
        demand(caller, "settings:update", TENANT)
    if kind == WEBHOOK and not address.startswith("/"):
        raise BadRequest(
            "The address of a webhook is a secret and is kept in a file.",
            "Send the absolute path of a file on the server's machine that holds it.",
            field="address",
        )
    if kind == MAIL and ADDRESS.fullmatch(address) is None:
        raise BadRequest(f"{address[:60]!r} is not a mail address.", field="address")
    on = tuple(word for word in EVENTS if word in body.get("on", [END, FAILURE]))
    user = "" if everybody else caller.person
    return Subscription("", user, kind, address, on, created_by=caller.user)


@router.delete(
    "/notifications/{identity}",
    dependencies=[needs("self:write")],
    status_code=204,
    response_model=None,
)
def unsubscribe(identity: str, here: Here, caller: Caller) -> Response:
    """One's own; those of others only for anyone who sets the tenant's settings."""
    rows = {row.id: row for row in here.service.notices.subscriptions()}
    row = rows.get(identity)
    if row is None or (row.user != caller.person and not _administers(caller)):
        raise NotFound(f"There is no notification {identity[:60]!r}.", "See yours with: pliant notify list")
    here.service.notices.unsubscribe(identity)
    return empty()


@router.post("/notifications/test", dependencies=[needs("self:write")], **answers(202, Tested))
def test(here: Here, caller: Caller) -> Response:
    """Send a message to each of the caller's addresses."""
    rows = [row.id for row in here.service.notices.subscriptions() if row.user == caller.person]
    if not rows:
        raise Conflict("You have no notifications.", "Add one: pliant notify add ADDRESS")
    return answered(
        lambda: here.service.notices.test(rows, caller.user), lambda sent: answer({"sent": sent}, 202)
    )


@router.put("/mail-server", dependencies=[needs("settings:update")], **answers(200, MailServerItem))
def set_mail_server(body: Received[MailServerRequest], here: Here) -> Response:
    row = mail_server_of(body)
    here.service.notices.set_mail_server(row)
    return answer(_server(row))


def mail_server_of(body: MailServerRequest) -> MailServer:
    """Raises BadRequest."""
    security = body.get("security", "starttls")
    login, place = body.get("login", ""), body.get("passwordFile", "")
    if ADDRESS.fullmatch(body["sender"]) is None:
        raise BadRequest(f"{body['sender'][:60]!r} is not a mail address.", field="sender")
    if bool(login) != bool(place) or (place and not place.startswith("/")):
        raise BadRequest(
            "A login needs a file with its password, and the file a login.",
            "Send login and passwordFile, an absolute path on the server's machine.",
            field="passwordFile",
        )
    if login and security == "none":
        raise BadRequest(
            "A password is not sent without TLS.", "Use security starttls or tls.", field="security"
        )
    ports = {"starttls": 587, "tls": 465, "none": 25}
    return MailServer(
        host=body["host"],
        port=body.get("port", ports[security]),
        sender=body["sender"],
        security=security,
        login=login,
        password_file=place,
    )


@router.delete("/mail-server", dependencies=[needs("settings:update")], status_code=204, response_model=None)
def delete_mail_server(here: Here) -> Response:
    """Mail is switched off."""
    here.service.notices.set_mail_server(None)
    return empty()


def _administers(caller: Principal) -> bool:
    return caller.may("settings:update", TENANT)


def _item(row: Subscription, pending: int) -> NotificationItem:
    return {
        "id": row.id,
        "kind": row.kind,
        "address": row.address,
        "user": row.user or None,
        "on": [*row.on],
        "pending": pending,
        "createdAt": stamp(row.created),
        "createdBy": row.created_by,
    }


def _server(row: MailServer) -> MailServerItem:
    return {
        "host": row.host,
        "port": row.port,
        "sender": row.sender,
        "security": row.security,
        "login": row.login,
        "passwordFile": row.password_file,
    }
