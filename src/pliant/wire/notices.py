"""Who is told what becomes of jobs."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Length, PortNumber

EventWord = Literal["start", "end", "failure", "preemption"]


class NotificationRequest(TypedDict, total=False):
    """Body of POST /api/v1/notifications."""

    kind: Required[Literal["mail", "webhook"]]
    address: Required[Annotated[str, Length(254, least=1, plain=True)]]  # of a webhook: a file with its URL
    on: Annotated[list[EventWord], Length(4, least=1)]
    everybody: bool  # of all users' jobs: for administrators


class NotificationItem(TypedDict):
    id: str
    kind: str
    address: str
    user: str | None  # null: all users' jobs
    on: list[str]
    pending: int  # what is still to be told
    createdAt: str
    createdBy: str


class MailServerRequest(TypedDict, total=False):
    """Body of PUT /api/v1/mail-server. The password is in a file on the server's machine."""

    host: Required[Annotated[str, Length(253, least=1, plain=True)]]
    port: PortNumber
    sender: Required[Annotated[str, Length(254, least=3, plain=True)]]
    security: Literal["starttls", "tls", "none"]
    login: Annotated[str, Length(254, plain=True)]
    passwordFile: Annotated[str, Length(1000, plain=True)]


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
