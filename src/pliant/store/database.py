"""The control loop's store, on a database."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Dialect, Select, select

from pliant.control.lease import Seen
from pliant.control.ports import Batch, Remembered, Row, Saved
from pliant.model.audit import AuditRecord
from pliant.model.event import Event
from pliant.model.progress import Progress
from pliant.model.sample import Sample
from pliant.model.workload import Attempt, Task, Workload
from pliant.store import archive, kinds, migrate, retention, schema
from pliant.store.codec import CodecError
from pliant.store.connect import Link, connect, locate
from pliant.store.errors import StoreError
from pliant.store.kinds import Kind, change
from pliant.store.writer import Writer, seen_by

T = TypeVar("T")

MOST_NAMED = 10_000
"""Most values in one query: both databases allow about 32,000."""


def open_store(where: str | Path) -> "Database":
    """The store at a path or sqlite:///PATH, or at postgresql://USER@HOST/DATABASE; made if it is new.

    Migrates a store of an older release, after a copy to `<path>.schema-<its version>` (PostgreSQL: in one
    transaction, without a copy). Raises StoreError.
    """
    link = connect(locate(where))
    try:
        migrate.upgrade(link, lambda found: archive.keep(link, found))
        link.prepare()
        return Database(link)
    except BaseException:
        link.close()
        raise


def peek(source: Path) -> Saved:
    """The rows of a backup, which stays unchanged. Raises StoreError."""
    with archive.copied(source) as link:
        return Database(link).load()


class Database:
    """pliant.control.ports.Store on SQLite or PostgreSQL."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._writer = Writer(link)

    def lead(self) -> int:
        return self._writer.lead()

    def outrank(self, epoch: int) -> None:
        self._writer.outrank(epoch)

    def commit(self, epoch: int, batch: Batch) -> None:
        """Applies drops before puts; of two puts with one identity the last counts.

        Raises StaleEpoch, StoreError, or CodecError for a value that its class does not allow; then nothing
        was written.
        """
        self._writer.commit(epoch, change(batch))

    def seen(self) -> Seen:
        """What another server sees of the leader."""
        with self._link.reading() as connection:
            epoch = connection.execute(select(schema.state.c.epoch)).scalar_one()
            return seen_by(connection, epoch)

    def renew(self, epoch: int) -> None:
        """Shows that the leader lives. Raises StaleEpoch."""
        self._writer.renew(epoch)

    def claim(self, seen: Seen) -> int | None:
        """Takes the lead and returns its epoch if the leader has shown no life since `seen`; else None."""
        return self._writer.claim(seen)

    def load(self) -> Saved:
        """The stored rows; settings include `serial`: the highest of all workloads, forgotten ones too."""
        with self._link.reading() as connection:
            settings = {row.key: row.value for row in connection.execute(select(schema.settings))}
            settings["serial"] = str(connection.execute(select(schema.state.c.serial)).scalar_one())
            rows: list[Row] = []
            for kind, query in _loading(connection.dialect).items():
                rows += self._decoded(kinds.KINDS[kind], connection.exec_driver_sql(query).all())
            return Saved(rows, settings)

    def events(self, subject: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Event]]:
        table = schema.events
        query = (
            select(table.c.format, table.c.body, table.c.seq)
            .where(table.c.subject == subject, table.c.seq > after)
            .order_by(table.c.seq)
            .limit(limit)
        )
        return self._numbered(kinds.EVENT, query)

    def happened(
        self, since: int, *, before: int | None = None, limit: int = 500
    ) -> Sequence[tuple[int, Event]]:
        table = schema.events
        query = select(table.c.format, table.c.body, table.c.seq).where(table.c.at >= since)
        if before is not None:
            query = query.where(table.c.seq < before)
        query = query.order_by(table.c.seq.desc()).limit(limit)
        return self._numbered(kinds.EVENT, query)

    def audited(
        self, since: int, until: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, AuditRecord]]:
        table = schema.audit
        query = (
            select(table.c.format, table.c.body, table.c.seq)
            .where(table.c.at >= since, table.c.at < until, table.c.seq > after)
            .order_by(table.c.seq)
            .limit(limit)
        )
        return self._numbered(kinds.AUDIT, query)

    def samples(self, step: int, since: int, until: int, subject: str | None = None) -> Sequence[Sample]:
        table = schema.samples
        query = select(table.c.format, table.c.body, table.c.subject, table.c.at).where(
            table.c.step == step, table.c.at > since, table.c.at <= until
        )
        if subject is not None:
            query = query.where(table.c.subject == subject)
        with self._link.reading() as connection:
            found = connection.execute(query.order_by(table.c.at, table.c.subject)).all()
        return self._decoded(kinds.SAMPLE, found)

    def attempts(self, *workloads: str) -> Sequence[Attempt]:
        named, of = sorted(workloads), schema.attempts.c.workload
        with self._link.reading() as connection:
            return [
                row
                for at in range(0, len(named), MOST_NAMED)
                for row in self._rows(connection, Attempt, of.in_(named[at : at + MOST_NAMED]))
            ]

    def ended(self, project: str | None = None, limit: int = 500) -> Sequence[Workload]:
        table = schema.workloads
        query = select(table.c.format, table.c.body, table.c.id).where(table.c.deleted.is_not(None))
        if project is not None:
            query = query.where(table.c.project == project)
        query = query.order_by(table.c.deleted.desc(), table.c.serial.desc()).limit(limit)
        with self._link.reading() as connection:
            return self._decoded(kinds.KINDS[Workload], connection.execute(query).all())

    def remembered(self, key: str) -> Remembered | None:
        with self._link.reading() as connection:
            found = self._rows(connection, Remembered, schema.remembered.c.key == key)
        return found[0] if found else None

    def prune(self, before: int) -> int:
        """Keeps the last 200 events of a stored workload, and each task's last attempt, however old."""
        return retention.prune(self._writer, before)

    def prune_audit(self, before: int) -> int:
        return retention.prune_audit(self._writer, before)

    def prune_samples(self, step: int, before: int) -> int:
        return retention.prune_samples(self._writer, step, before)

    def backup(self, target: Path) -> None:
        """Writes one file, for `restore`. Raises StoreError, also if `target` exists."""
        archive.backup(self._link, target)

    def close(self) -> None:
        """Makes every later call raise StoreError."""
        self._link.close()

    def _rows(self, connection: Connection, row: type[T], *which: ColumnElement[bool]) -> tuple[T, ...]:
        """Rows of one kind in the order of their keys."""
        return self._decoded(kinds.KINDS[row], connection.execute(_query(row, *which)).all())

    def _numbered(self, kind: Kind[T], query: Select[Any]) -> list[tuple[int, T]]:
        with self._link.reading() as connection:
            found = connection.execute(query).all()
        return [*zip([row.seq for row in found], self._decoded(kind, found), strict=True)]

    def _decoded(self, kind: Kind[T], rows: Iterable[Sequence[Any]]) -> tuple[T, ...]:
        """The values of rows, each of which is (format, body, identity ...). Raises StoreError."""
        found: list[T] = []
        row: Sequence[Any] = ()
        try:
            for row in rows:
                found.append(kind.read(row[0], row[1]))
        except CodecError as error:
            raise StoreError(
                f"store {self._link.name}: row {'/'.join(map(str, row[2:]))} of {kind.table.name} cannot be"
                f" read: {error}. Restore a backup, or start the release of Pliant that wrote it"
            ) from None
        return tuple(found)


def _query(row: type[T], *which: ColumnElement[bool]) -> Select[Any]:
    table = kinds.KINDS[row].table
    return select(table.c.format, table.c.body, *table.primary_key).where(*which).order_by(*table.primary_key)


_LOADING: dict[str, dict[type[Row], str]] = {}
"""The queries of `load`, by database dialect and row kind. Compiling them takes five times as long as running
them on a small store, and SQLAlchemy caches compiled queries per store only."""


def _loading(dialect: Dialect) -> dict[type[Row], str]:
    if dialect.name not in _LOADING:
        alive = schema.workloads.c.deleted.is_(None)
        attempts = schema.attempts.c
        needed: dict[type, tuple[ColumnElement[bool], ...]] = {
            Workload: (alive,),
            Task: (schema.tasks.c.workload == schema.workloads.c.id, alive),
            Attempt: (attempts.ended.is_(None), attempts.workload == schema.workloads.c.id, alive),
            Progress: (schema.progresses.c.workload == schema.workloads.c.id, alive),
        }
        _LOADING[dialect.name] = {
            kind: str(_query(kind, *needed.get(kind, ())).compile(dialect=dialect))
            for kind in kinds.KINDS
            if kind is not Remembered  # answers are looked up one by one
        }
    return _LOADING[dialect.name]
