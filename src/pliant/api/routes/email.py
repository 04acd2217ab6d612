"""Routes for notices by mail under Run:ai's paths: the rows of /notifications and /mail-server."""

from fastapi import Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.repeats import answered
from pliant.api.requests.parse_submission import told_of
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.routes.notices import mail_server_of, wanted_of
from pliant.api.schemas.models import Received, without_effect
from pliant.control.errors import BadRequest, NotFound
from pliant.model.identity import USER
from pliant.model.notice import ADDRESS, EVENTS, MAIL, MailServer, Subscription
from pliant.wire.notices import (
    EmailConfig,
    EmailItem,
    EmailRequest,
    EmailState,
    MailServerRequest,
    NotificationTypes,
    Security,
    SubscriptionItem,
    SubscriptionList,
    SubscriptionRequest,
)

router = Router(prefix="/api/v1", tags=["notifications"])

IMPLICIT_TLS = 465
"""The port on which mail is sent through TLS from the start."""

_sets = needs("settings:update")


@router.get("/email", dependencies=[needs("settings:update", writes=False)], **answers(200, EmailItem))
def email(here: Here) -> Response:
    row = here.service.notices.mail_server()
    if row is None:
        raise NotFound(
            "No mail server is set.", "Set it with: pliant notify server --smtp HOST --from ADDRESS"
        )
    return answer(_item(row, []))


@router.get("/email/state", dependencies=[needs("self:read")], **answers(200, EmailState))
def email_state(here: Here) -> Response:
    """Whether mail can be sent."""
    return answer({"state": "disabled" if here.service.notices.mail_server() is None else "enabled"})


def set_email(body: Received[EmailRequest], here: Here) -> Response:
    """By which server mail is sent. Its password stands in a file on this server's machine."""
    row = mail_server_of(_request(body["config"]))
    here.service.notices.set_mail_server(row)
    return answer(_item(row, told_of(without_effect(EmailConfig, body["config"], "config"))))


router.post("/email", name="create_email", dependencies=[_sets], **answers(200, EmailItem))(set_email)
router.put("/email", name="put_email", dependencies=[_sets], **answers(200, EmailItem))(set_email)


@router.delete("/email", dependencies=[_sets], status_code=204, response_model=None)
def delete_email(here: Here) -> Response:
    """Mail is switched off."""
    here.service.notices.set_mail_server(None)
    return empty()


@router.get("/notification-types", dependencies=[needs("self:read")], **answers(200, NotificationTypes))
def notification_types() -> Response:
    return answer({"notificationTypes": [{"category": "workloads", "types": [*EVENTS]}]})


@router.get("/subscriptions", dependencies=[needs("self:read")], **answers(200, SubscriptionList))
def subscriptions(here: Here, caller: Caller) -> Response:
    """The caller's own."""
    rows = here.service.notices.subscriptions()
    return answer({"subscriptions": [_told(row) for row in rows if _own(row, caller.person)]})


@router.post("/subscriptions", dependencies=[needs("self:write")], **answers(201, SubscriptionItem))
def subscribe_by_events(body: Received[SubscriptionRequest], here: Here, caller: Caller) -> Response:
    """Mail about the caller's own jobs."""
    channel = body["channels"][0]
    address = _own_address(here, caller) if channel == "email" else channel
    if ADDRESS.fullmatch(address) is None:
        raise BadRequest(
            f"{address[:60]!r} is not a mail address.", "Name the address as the channel.", field="channels"
        )
    wanted = wanted_of({"kind": "mail", "address": address, "on": body["events"][0]["types"]}, caller)
    return answered(lambda: here.service.notices.subscribe(wanted), lambda row: answer(_told(row), 201))


@router.delete(
    "/subscriptions/{identity}", dependencies=[needs("self:write")], status_code=204, response_model=None
)
def unsubscribe_by_id(identity: str, here: Here, caller: Caller) -> Response:
    rows = here.service.notices.subscriptions()
    if not any(row.id == identity and _own(row, caller.person) for row in rows):
        raise NotFound(
            f"There is no subscription {identity[:60]!r}.", "See yours with: GET /api/v1/subscriptions"
        )
    here.service.notices.unsubscribe(identity)
    return empty()


def _own_address(here: Context, caller: Principal) -> str:
    """The address that the login provider gave, else the caller's name, which may be an address."""
    user = here.service.board.access.users.get(caller.subject.removeprefix(f"{USER}:"))
    return (user.email if user is not None else "") or caller.person


def _own(row: Subscription, person: str) -> bool:
    return row.kind == MAIL and row.user == person


def _told(row: Subscription) -> SubscriptionItem:
    return {
        "id": row.id,
        "events": [{"category": "workloads", "types": [*row.on]}],
        "channels": [row.address],
        "createdAt": stamp(row.created),
    }


def _request(config: EmailConfig) -> MailServerRequest:
    port = config.get("smtpPort", 587)
    secure: Security = "tls" if port == IMPLICIT_TLS else "starttls"
    asked: MailServerRequest = {
        "host": config["smtpHost"],
        "port": port,
        "sender": config["from"],
        "security": secure if config.get("smtpTlsEnabled", True) else "none",
    }
    if config.get("authType") != "auth_none":
        asked |= {"login": config.get("username", ""), "passwordFile": config.get("passwordFile", "")}
    elif config.get("username"):
        raise BadRequest(
            "A username is sent, but authType is auth_none.", "Leave one out.", field="config.authType"
        )
    return asked


def _item(row: MailServer, notices: list[str]) -> EmailItem:
    return {
        "config": {
            "smtpHost": row.host,
            "smtpPort": row.port,
            "smtpTlsEnabled": row.security != "none",
            "authType": "auth_login" if row.login else "auth_none",
            "username": row.login,
            "passwordFile": row.password_file,
            "from": row.sender,
            "fromDisplayName": "",
            "recipients": [],
        },
        "notices": notices,
    }
