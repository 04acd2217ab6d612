"""The loop's rows about users, applications and access rules."""

from typing import Any

from pliant.control.board.access import Access, access_of
from pliant.control.ports import AccessRow, Saved
from pliant.model.identity import (
    AccessKey,
    AccessRule,
    Allowance,
    Application,
    CustomRole,
    EndedSession,
    LoginSession,
    User,
)

KINDS = (User, Application, AccessKey, AccessRule, LoginSession, Allowance, CustomRole, EndedSession)


class AccessBook:
    """Belongs to the loop's thread; `seen` may be read by any."""

    def __init__(self) -> None:
        self._rows: dict[type, dict[Any, Any]] = {kind: {} for kind in KINDS}
        self._stale = False
        self._seen = Access()

    def restore(self, saved: Saved) -> None:
        self._rows = {kind: {_key(row): row for row in saved.of(kind)} for kind in KINDS}
        self._stale = True

    def note(self, row: AccessRow, *, gone: bool = False) -> None:
        rows = self._rows[type(row)]
        rows.pop(_key(row), None)
        if not gone:
            rows[_key(row)] = row
        self._stale = True

    @property
    def seen(self) -> Access:
        """All rows as they are now."""
        if self._stale:
            self._seen = access_of(*(self._rows[kind] for kind in KINDS))
            self._stale = False
        return self._seen


def _key(row: Any) -> Any:
    return (row.subject, row.project) if isinstance(row, Allowance) else row.id
