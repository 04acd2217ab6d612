"""The store of a simulated server: rows in memory, because a simulation leaves only its report."""

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from pliant.control.ports import Batch, Remembered, Row, Saved, StaleEpoch
from pliant.control.state.kinds import STORED_ROWS
from pliant.model.audit import AuditRecord
from pliant.model.event import Event
from pliant.model.sample import Sample
from pliant.model.workload import Attempt, Workload


class Rows:
    """A control.ports.Store that forgets ended attempts and deleted workloads and keeps no history."""

    def __init__(self, rows: Iterable[Row] = (), settings: dict[str, str] | None = None) -> None:
        self._rows: dict[tuple[str, Hashable], Row] = {STORED_ROWS.identity(row): row for row in rows}
        self._settings = dict(settings or {})
        self._epoch = 0

    def lead(self) -> int:
        self._epoch += 1
        return self._epoch

    def outrank(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)

    def commit(self, epoch: int, batch: Batch) -> None:
        if epoch != self._epoch:
            raise StaleEpoch(f"epoch {epoch} is over: {self._epoch} leads")
        for row in batch.put:
            if isinstance(row, Remembered):
                continue
            over = (isinstance(row, Attempt) and row.exit is not None) or (
                isinstance(row, Workload) and row.deleted is not None
            )
            if over:
                self._rows.pop(STORED_ROWS.identity(row), None)
            else:
                self._rows[STORED_ROWS.identity(row)] = row
        for row in batch.drop:
            self._rows.pop(STORED_ROWS.identity(row), None)
        self._settings.update(batch.settings)

    def load(self) -> Saved:
        order = {kind.row: at for at, kind in enumerate(STORED_ROWS.kinds)}
        rows = sorted(self._rows.values(), key=lambda row: order[type(row)])
        return Saved(tuple(rows), dict(self._settings))

    def events(self, subject: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Event]]:
        return ()

    def happened(
        self, since: int, *, before: int | None = None, limit: int = 500
    ) -> Sequence[tuple[int, Event]]:
        return ()

    def audited(
        self, since: int, until: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, AuditRecord]]:
        return ()

    def samples(self, step: int, since: int, until: int, subject: str | None = None) -> Sequence[Sample]:
        return ()

    def attempts(self, *workloads: str) -> Sequence[Attempt]:
        return ()

    def ended(self, project: str | None = None, limit: int = 500) -> Sequence[Workload]:
        return ()

    def remembered(self, key: str) -> Remembered | None:
        return None

    def prune(self, before: int) -> int:
        return 0

    def prune_audit(self, before: int) -> int:
        return 0

    def prune_samples(self, step: int, before: int) -> int:
        return 0

    def backup(self, target: Path) -> None:
        """Always raises OSError: there is no file."""
        raise OSError("a simulation keeps no store")

    def close(self) -> None:
        """There is nothing to close."""
