"""Who is told what about jobs, by mail or by a web address, and what is still to be told."""

import re
from dataclasses import dataclass

ADDRESS = re.compile(r"[^@\s,;<>\"()\[\]\\]+@[A-Za-z0-9.-]+")
"""Of mail: not whether it exists, only that no header is broken by it."""

MAIL, WEBHOOK = "mail", "webhook"

START, END, FAILURE, PREEMPTION, IDLE = "start", "end", "failure", "preemption", "idle"
EVENTS = (START, END, FAILURE, PREEMPTION, IDLE)
"""What somebody may be told of."""

TEST = "test"
"""Told to anyone who asks for a test."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One address to which is told what becomes of jobs."""

    id: str
    user: str  # whose jobs; empty: everybody's, which an administrator sets
    kind: str  # mail | webhook
    address: str  # of mail; of a webhook the path of a file on the server's machine that holds its URL
    on: tuple[str, ...]  # of EVENTS
    created: int = 0  # ms
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that is still to be told to one address."""

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
    """By which mail is sent. There is one at most."""

    name: str = "default"
    host: str = ""
    port: int = 25
    sender: str = ""
    security: str = "starttls"  # or tls, none
    login: str = ""  # empty: none
    password_file: str = ""  # path on the server's machine; its content is nowhere else
