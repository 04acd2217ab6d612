"""The audit log: who asked for what from where, and what changed."""

from typing import Literal, NotRequired, TypedDict

from pliant.wire.shapes import Stamp


class ChangeItem(TypedDict):
    field: str
    before: str
    after: str


class AuditItem(TypedDict):
    id: str
    timestamp: Stamp
    subject: str
    subject_type: str
    subject_id: str
    source_ip: str
    via: str
    action: str
    permission: str
    http_method: str
    url: str
    entity_type: str
    entity_name: str
    entity_id: str
    result: Literal["Succeeded", "Failed"]
    http_status_code: int
    request_id: str
    changes: list[ChangeItem]


class AuditLog(TypedDict):
    total: int
    next: NotRequired[int]  # offset of the next page; absent on the last one
    audit_logs: list[AuditItem]
