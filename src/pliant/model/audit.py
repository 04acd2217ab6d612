"""Records of writes: who, from where, what changed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One field of one row, as it was and as it is; JSON, empty where there was none."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One request that changes something, or tries to."""

    at: int  # ms since the epoch
    request: str  # id
    subject: str  # as pliant.model.identity.subject_of; empty: unknown
    name: str  # of the subject
    source: str  # address, or `unix`
    via: str  # session, id of a key; empty: the socket, or the server's own token
    method: str
    path: str
    action: str  # create | update | delete | sign-in | sign-out | reset-password | execute
    entity: str  # kind of the thing that it is about
    entity_id: str
    entity_name: str
    status: int  # HTTP; 0: recorded with what it changed
    permission: str
    changes: tuple[Change, ...] = ()
