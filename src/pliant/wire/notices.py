"""Notifications about jobs, and the mail server that sends them."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Length, Looks, Name, PortNumber, Unused
from pliant.wire.shapes import ABSOLUTE, CHANNEL, MAIL, MAIL_OR_ABSOLUTE, Stamp

EventWord = Literal["start", "end", "failure", "preemption", "idle"]


Security = Literal["starttls", "tls", "none"]


class NotificationRequest(TypedDict, total=False):
    """Body of POST /api/v1/notifications."""

    kind: Required[Literal["mail", "webhook"]]
    address: Required[
        Annotated[str, Length(254, least=1, plain=True), Looks(MAIL_OR_ABSOLUTE)]
    ]  # of a webhook: a file with its URL
    on: Annotated[list[EventWord], Length(5, least=1)]
    everybody: bool  # of all users' jobs: for administrators


class NotificationItem(TypedDict):
    id: str
    kind: str
    address: str
    user: str | None  # null: all users' jobs
    on: list[str]
    pending: int  # messages that are not sent yet
    createdAt: Stamp
    createdBy: str


class MailServerRequest(TypedDict, total=False):
    """Body of PUT /api/v1/mail-server. The password is in a file on the server's machine."""

    host: Required[Annotated[str, Length(253, least=1, plain=True)]]
    port: PortNumber
    sender: Required[Annotated[str, Length(254, least=3, plain=True), Looks(MAIL)]]
    security: Security
    login: Annotated[str, Length(254, plain=True)]
    passwordFile: Annotated[str, Length(1000, plain=True), Looks(ABSOLUTE)]


class MailServerItem(TypedDict):
    host: str
    port: int
    sender: str
    security: str
    login: str
    passwordFile: str


class NotificationList(TypedDict):
    notifications: list[NotificationItem]
    mailServer: MailServerItem | None  # null: none is set, or the caller may not see it
    mail: bool  # mail can be sent


class Tested(TypedDict):
    sent: int


EmailConfig = TypedDict(
    "EmailConfig",
    {
        "smtpHost": Required[Annotated[str, Length(253, least=1, plain=True)]],
        "smtpPort": PortNumber,  # default: 587; 465 is TLS from the start
        "smtpTlsEnabled": bool,  # default: true
        "authType": Literal["auth_login", "auth_plain", "auth_none"],  # the server chooses from the first two
        "username": Annotated[str, Length(254, plain=True)],
        "passwordFile": Annotated[
            str, Length(1000, plain=True), Looks(ABSOLUTE)
        ],  # ours: a path on the server's machine
        "from": Required[Annotated[str, Length(254, least=3, plain=True), Looks(MAIL)]],
        "fromDisplayName": Unused,
        "recipients": Unused,
        "directNotifications": Unused,
        "subject": Unused,
    },
    total=False,
)
"""The mail server, in Run:ai's field names. No request contains a password."""


class EmailRequest(TypedDict):
    config: EmailConfig


EmailTold = TypedDict(
    "EmailTold",
    {
        "smtpHost": str,
        "smtpPort": int,
        "smtpTlsEnabled": bool,
        "authType": str,
        "username": str,
        "passwordFile": str,
        "from": str,
        "fromDisplayName": str,
        "recipients": list[str],
    },
)


class EmailItem(TypedDict):
    config: EmailTold
    notices: list[str]


class EmailState(TypedDict):
    state: Literal["enabled", "disabled"]


class EventsOf(TypedDict):
    category: Literal["workloads"]
    types: Annotated[list[EventWord], Length(5, least=1)]


class EventTypes(TypedDict):
    category: str
    types: list[str]


class SubscriptionRequest(TypedDict):
    """Body of POST /api/v1/subscriptions."""

    events: Annotated[list[EventsOf], Length(1, least=1)]
    # `email` means the caller's own address; any other channel is a mail address
    channels: Annotated[list[Annotated[Name, Looks(CHANNEL)]], Length(1, least=1)]


class SubscriptionItem(TypedDict):
    id: str
    events: list[EventTypes]
    channels: list[str]
    createdAt: Stamp


class SubscriptionList(TypedDict):
    subscriptions: list[SubscriptionItem]


class NotificationTypes(TypedDict):
    notificationTypes: list[EventTypes]
