"""Subscriptions to events of jobs, by mail or webhook, and the notices still to be sent."""

import re
from dataclasses import dataclass

ADDRESS = re.compile(r"[^@\s,;<>\"()\[\]\\]+@[A-Za-z0-9.-]+")
"""A mail address: it ensures that no header is broken, not that the address exists."""

MAIL, WEBHOOK = "mail", "webhook"

START, END, FAILURE, PREEMPTION, IDLE = "start", "end", "failure", "preemption", "idle"
EVENTS = (START, END, FAILURE, PREEMPTION, IDLE)
"""The events of a subscription."""

TEST = "test"
"""The event of a notice that was requested as a test."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One address that is notified of events of jobs."""

    id: str
    user: str  # whose jobs; empty: all users', set by an administrator
    kind: str  # mail | webhook
    address: str  # of mail; of a webhook the path of a file on the server's machine that holds its URL
    on: tuple[str, ...]  # of EVENTS
    created: int = 0  # ms
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that is still to be sent to one address."""

    id: str
    subscription: str  # id
    event: str
    at: int  # ms
    workload: str  # id; empty: a test
    name: str  # of the workload
    project: str  # name
    user: str  # whose workload it is
    message: str


@dataclass(frozen=True, slots=True)
class MailServer:
    """The server that sends mail. There is at most one."""

    name: str = "default"
    host: str = ""
    port: int = 25
    sender: str = ""
    security: str = "starttls"  # or tls, none
    login: str = ""  # empty: none
    password_file: str = ""  # path on the server's machine; its content is not stored elsewhere
