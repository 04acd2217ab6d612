"""The API's part of the audit: who asks from where; refused requests and those that change no rows."""

import asyncio
import logging
import secrets

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.types import Message, Scope, Send

from pliant.api.connections.peer import PEER
from pliant.api.identity.principal import Principal
from pliant.control.audit import TRAIL as CURRENT
from pliant.control.audit import Trail
from pliant.control.errors import Refused
from pliant.control.service import Service
from pliant.model.audit import AuditRecord
from pliant.store.errors import StoreError

log = logging.getLogger(__name__)

TRAIL = "trail"
"""Key of the Trail in the state of a request that may change something."""

REFUSED = frozenset({401, 403, 409})
"""Failed requests with these statuses are recorded; the others are invalid or about nothing that exists."""

LONGEST = 10.0
"""Seconds that an answer waits at most for its record to be on disk."""

UNRECORDED = "audit: %s is not recorded: %r"

ACTIONS = {"PUT": "update", "PATCH": "update", "DELETE": "delete", "GET": "read"}
RIGHTS = {"create": "create", "write": "create", "delete": "delete", "exec": "execute", "operate": "execute"}


def is_dry(scope: Scope) -> bool:
    """True if the request changes nothing by its dryRun, of which the last one counts, as for its route."""
    asked = QueryParams(scope.get("query_string", b"")).get("dryRun", "")
    return asked.lower() in ("true", "1", "yes", "y", "on", "t")


def begin(request: Request, caller: Principal, right: str, action: str = "") -> Trail:
    """The Trail of this request: who asks for what. The request's state keeps it until the answer leaves."""
    trail = Trail(
        request=secrets.token_hex(8),
        subject=caller.subject,
        name=caller.user,
        source="unix"
        if PEER in request.scope.get("state", {})
        else request.client.host
        if request.client
        else "",
        via=caller.via,
        method=request.method,
        path=request.url.path,
        permission=right,
        action=action or ACTIONS.get(request.method) or RIGHTS.get(right.partition(":")[2], "update"),
    )
    request.scope.setdefault("state", {})[TRAIL] = trail
    return trail


def journalled(scope: Scope, service: Service, send: Send) -> Send:
    """Before the answer leaves, record what was done or refused, unless the change has recorded it."""

    async def sent(message: Message) -> None:
        trail = scope["state"].get(TRAIL) if message["type"] == "http.response.start" else None
        if trail is not None and not trail.recorded:
            status = message["status"]
            if status in REFUSED or (status < 400 and not is_dry(scope)):
                await keep(service, trail, status)
        await send(message)

    return sent


async def keep(service: Service, trail: Trail, status: int) -> None:
    """Record a request that changed no rows; if that fails, log it."""
    record = _closed(service, trail, status)
    try:
        written = asyncio.wrap_future(service.note_audit(record))
        await asyncio.wait_for(written, LONGEST)
    except (TimeoutError, Refused, StoreError) as error:
        log.error(UNRECORDED, record, error)


def keep_login(service: Service, trail: Trail) -> None:
    """Record a refused login: a route that is open to everyone has no trail when its answer leaves.

    Runs in a thread and waits for the record.
    """
    record = _closed(service, trail, 401)
    try:
        service.note_audit(record).result(LONGEST)
    except (TimeoutError, Refused, StoreError) as error:
        log.error(UNRECORDED, record, error)


def _closed(service: Service, trail: Trail, status: int) -> AuditRecord:
    trail.recorded = True
    CURRENT.set(None)  # else the writing of the record would be recorded as a change of its own
    return trail.record(service.now(), status)
