"""Routes for the audit: who did what, from where, and what it changed."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import Field

from pliant.api.context import Context, Here
from pliant.api.guard import needs
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers, encode, or_csv
from pliant.api.responses.sheet import sheet
from pliant.api.responses.times import instant, stamp
from pliant.control.errors import BadRequest
from pliant.model.audit import AuditRecord
from pliant.wire.audit import AuditItem, AuditLog

router = Router(prefix="/api/v1/audit", tags=["audit"])

PAGE = 500
ALWAYS = 2**62
COLUMNS = (
    "id", "timestamp", "subject", "subject_type", "source_ip", "action", "http_method", "url", "entity_type",
    "entity_name", "entity_id", "result", "http_status_code", "permission", "request_id",
)  # fmt: skip

_TOLD = "RFC 3339, or ms since the epoch."
MS = re.compile("[0-9]{1,15}")
_LIKE: Any = Field(json_schema_extra={"anyOf": [{"pattern": f"^{MS.pattern}$"}, {"format": "date-time"}]})
Since = Annotated[str, _LIKE, Query(alias="start", max_length=64, description=_TOLD)]
Until = Annotated[str, _LIKE, Query(alias="end", max_length=64, description=f"{_TOLD} 0: now.")]
User = Annotated[str, Query(alias="user", max_length=200)]
Text = Annotated[str, Query(max_length=200, description="Text in an entity's name, kind or id.")]


def _when(text: str, field: str) -> int:
    try:
        return int(text) if MS.fullmatch(text) else instant(text)
    except ValueError:
        raise BadRequest(
            f"{field}={text[:60]!r} is not a time.", "Use RFC 3339: 2026-01-31T12:00:00Z.", field=field
        ) from None


def _found(here: Context, since: str, until: str, user: str, entity: str) -> Iterator[AuditItem]:
    """The matching records, oldest first."""
    after, begin, end = 0, _when(since, "start"), _when(until, "end") or ALWAYS
    while page := here.service.audited(begin, end, after=after, limit=PAGE):
        for after, row in page:
            about = f"{row.entity} {row.entity_name} {row.entity_id}".casefold()
            if (not user or user == row.name) and entity.casefold() in about:
                yield _item(after, row)


@router.get("/log", dependencies=[needs("audit:read")], **answers(200, AuditLog))
def log(
    here: Here,
    since: Since = "0",
    until: Until = "0",
    user: User = "",
    entity: Text = "",
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """Newest first."""
    found = [*_found(here, since, until, user, entity)][::-1]
    end = offset + limit
    told: AuditLog = {"total": len(found), "audit_logs": found[offset:end]}
    if end < len(found):
        told["next"] = end
    return answer(told)


@router.get(
    "/log/file",
    dependencies=[needs("audit:read")],
    **or_csv(answers(200, list[AuditItem])),
)
def export(
    here: Here,
    since: Since = "0",
    until: Until = "0",
    user: User = "",
    entity: Text = "",
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "csv",
) -> Response:
    """All of it, oldest first."""
    found = _found(here, since, until, user, entity)
    if form == "json":
        name = {"Content-Disposition": 'attachment; filename="pliant-audit.json"'}
        return Response(encode([*found]), headers=name, media_type="application/json")
    return sheet("pliant-audit", [*COLUMNS, "changes"], (_line(item) for item in found))


def _line(item: AuditItem) -> list[object]:
    changes = "; ".join(f"{it['field']}: {it['before']} -> {it['after']}" for it in item["changes"])
    return [*(item[name] for name in COLUMNS), changes]  # type: ignore[literal-required]


def _item(sequence: int, row: AuditRecord) -> AuditItem:
    return {
        "id": str(sequence),
        "timestamp": stamp(row.at),
        "subject": row.name,
        "subject_type": row.subject.partition(":")[0],
        "subject_id": row.subject,
        "source_ip": row.source,
        "via": row.via,
        "action": row.action,
        "permission": row.permission,
        "http_method": row.method,
        "url": row.path,
        "entity_type": row.entity,
        "entity_name": row.entity_name,
        "entity_id": row.entity_id,
        "result": "Succeeded" if row.status < 400 else "Failed",
        "http_status_code": row.status or 200,
        "request_id": row.request,
        "changes": [{"field": it.field, "before": it.before, "after": it.after} for it in row.changes],
    }
