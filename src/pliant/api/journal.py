"""The audit's part at the edge: who asks from where, and what was refused or leaves no rows."""

import asyncio
import logging
import secrets

from fastapi import Request
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
"""Key in the state of a request that may change something."""

REFUSED = frozenset({401, 403, 409})
"""Of what failed these are recorded; what cannot be read, or is about nothing, touches nothing."""

LONGEST = 10.0
"""Seconds for which an answer waits until its record is on disk."""

UNRECORDED = "audit: %s is not recorded: %r"

ACTIONS = {"PUT": "update", "PATCH": "update", "DELETE": "delete", "GET": "read"}
RIGHTS = {"create": "create", "write": "create", "delete": "delete", "exec": "execute", "operate": "execute"}


def begin(request: Request, caller: Principal, right: str, action: str = "") -> Trail:
    """What a record of this request says of who asks; kept for the end of it."""
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
    """Before the answer leaves there is a record of what was done or refused, if the change made none."""

    async def sent(message: Message) -> None:
        trail = scope["state"].get(TRAIL) if message["type"] == "http.response.start" else None
        if trail is not None and not trail.recorded:
            status = message["status"]
            dry = b"dryRun=true" in scope.get("query_string", b"")
            if status in REFUSED or (status < 400 and not dry):
                await keep(service, trail, status)
        await send(message)

    return sent


async def keep(service: Service, trail: Trail, status: int) -> None:
    """Record what changed no rows."""
    record = _closed(service, trail, status)
    try:
        written = asyncio.wrap_future(service.note_audit(record))
        await asyncio.wait_for(written, LONGEST)
    except (TimeoutError, Refused, StoreError) as error:
        log.error(UNRECORDED, record, error)


def keep_login(service: Service, trail: Trail) -> None:
    """Record a login that is refused: what is open to everybody has no trail when its answer leaves. In a
    thread, which waits."""
    record = _closed(service, trail, 401)
    try:
        service.note_audit(record).result(LONGEST)
    except (TimeoutError, Refused, StoreError) as error:
        log.error(UNRECORDED, record, error)


def _closed(service: Service, trail: Trail, status: int) -> AuditRecord:
    trail.recorded = True
    CURRENT.set(None)  # or what follows would be recorded as a change of its own
    return trail.record(service.now(), status)
