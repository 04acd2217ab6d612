"""The only writer of a store: callers that wait together share one transaction and one sync to disk."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, Delete, Table, and_, bindparam, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.sql.dml import Insert

import pliant
from pliant.control.lease import Seen
from pliant.control.ports import StaleEpoch
from pliant.store import schema
from pliant.store.connect import WAIT, Link
from pliant.store.errors import DiskFull, StoreBusy, StoreError
from pliant.store.kinds import Change
from pliant.store.reserve import Reserve

T = TypeVar("T")

HUNG = 300
"""Milliseconds that `claim` waits for the transaction of a leader that has lost its lease."""

_COUNTS = schema.leadership.c
_EPOCH = select(schema.state.c.epoch).with_for_update()
_REVISED = update(schema.leadership).values(revision=_COUNTS.revision + 1)
_RENEWED = update(schema.leadership).values(renewed=_COUNTS.renewed + 1)
_GROWN = update(schema.state).where(schema.state.c.serial < bindparam("now")).values(serial=bindparam("now"))
_EVENTS, _AUDIT = schema.events.insert(), schema.audit.insert()


@dataclass(slots=True)
class _Waiting:
    """The transaction that one caller waits for."""

    epoch: int
    change: Change
    error: Exception | None  # None: committed. Set first, and kept if the transaction is interrupted
    done: bool = False  # set under the write lock: error is the outcome


class Writer:
    """Serialises this process's writes; between processes the database does so."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._file = self._identity()
        self._reserve = Reserve((link.path or Path()).parent)  # PostgreSQL has none on this disk
        self._lock = Lock()  # held while a transaction is written
        self._queue: list[_Waiting] = []
        self._queue_lock = Lock()
        self.transactions = 0  # number of commits; a shared one counts once

    def lead(self) -> int:
        return self.write(_lead, durable=True)

    def claim(self, seen: Seen) -> int | None:
        """`lead`, unless the leader has shown life since; None then."""

        def work(connection: Connection) -> int | None:
            now = seen_by(connection, epoch=_epoch(connection))
            return _lead(connection) if (now.epoch, now.renewed) == (seen.epoch, seen.renewed) else None

        try:
            return self.write(work, durable=True, wait=HUNG)
        except StoreBusy:  # the silent leader stopped in the middle of a transaction
            if not self._link.end_holders(schema.state):
                raise
            return self.write(work, durable=True)

    def renew(self, epoch: int) -> None:
        """Raises StaleEpoch."""

        def work(connection: Connection) -> int:
            if (leader := _epoch(connection)) == epoch:
                connection.execute(_RENEWED)
            return leader

        if refusal := self._refusal(epoch, self.write(work)):
            raise refusal

    def outrank(self, epoch: int) -> None:
        def raise_epoch(connection: Connection) -> None:
            if _epoch(connection) < epoch:
                connection.execute(update(schema.state).values(epoch=epoch))

        self.write(raise_epoch, durable=True)

    def write(self, work: Callable[[Connection], T], *, durable: bool = False, wait: int = WAIT) -> T:
        """The result of `work` in a transaction of its own; `wait`: see Link.writing."""
        with self._lock:
            while True:
                try:
                    with self._writing(durable, wait) as connection:
                        return work(connection)
                except DiskFull:
                    if not self._reserve.give_up():
                        raise

    def commit(self, epoch: int, change: Change) -> None:
        mine = _Waiting(epoch, change, StoreError(f"store {self._link.name}: interrupted while writing"))
        with self._queue_lock:
            self._queue.append(mine)
        with self._lock:
            if not mine.done:  # otherwise the previous holder of the lock wrote it
                with self._queue_lock:
                    together, self._queue = self._queue, []
                self._write(together)
        if mine.error is not None:
            raise mine.error

    def _write(self, together: Sequence[_Waiting]) -> None:
        """Writes all in one transaction; if one of them is at fault, one by one, so that no other fails."""
        try:
            self._transact(together)
        except StoreError as failure:
            # There is no retry after a lost connection: it could write a thing twice. What SQLite could not
            # write for lack of space was rolled back as a whole.
            if isinstance(failure, DiskFull) and self._reserve.give_up():
                self._write(together)
            elif len(together) > 1 and isinstance(failure.__cause__, (IntegrityError, DataError)):
                for waiting in together:
                    self._write([waiting])
            else:
                for waiting in together:
                    waiting.error = type(failure)(*failure.args)
        finally:
            for waiting in together:
                waiting.done = True

    def _transact(self, together: Sequence[_Waiting]) -> None:
        with self._writing(durable=any(waiting.change.durable for waiting in together)) as connection:
            leader = _epoch(connection)
            refusals = [self._refusal(waiting.epoch, leader) for waiting in together]
            for waiting, refusal in zip(together, refusals, strict=True):
                if refusal is None:
                    apply(connection, waiting.change)
            connection.execute(_REVISED)
        self.transactions += 1
        for waiting, refusal in zip(together, refusals, strict=True):
            waiting.error = refusal

    def _refusal(self, epoch: int, leader: int) -> Exception | None:
        if epoch < leader:
            return StaleEpoch(f"epoch {epoch} is over: epoch {leader} leads now")
        if epoch > leader:
            return StoreError(
                f"store {self._link.name}: it never gave out epoch {epoch}, its own is {leader}:"
                f" an older copy was put in its place; restart the server"
            )
        return None

    def _writing(self, durable: bool, wait: int = WAIT) -> AbstractContextManager[Connection]:
        if self._file != self._identity():
            raise StoreError(f"store {self._link.name}: its file was removed or replaced: restart the server")
        return self._link.writing(durable, wait=wait)

    def _identity(self) -> tuple[int, int] | None:
        """Identifies the file, so that writing to a removed or replaced file is noticed."""
        if self._link.path is None:
            return None
        try:
            found = os.stat(self._link.path)
        except OSError:
            return (0, 0)
        return (found.st_dev, found.st_ino)


def seen_by(connection: Connection, epoch: int) -> Seen:
    """What is counted of the leader, with that epoch."""
    found = connection.execute(select(schema.leadership)).one()
    return Seen(epoch, found.renewed, found.revision)


def _lead(connection: Connection) -> int:
    epoch = _epoch(connection) + 1
    connection.execute(update(schema.state).values(epoch=epoch, program=pliant.__version__))
    return epoch


def _epoch(connection: Connection) -> int:
    """The leader's epoch, locked: it cannot be raised before this transaction ends."""
    epoch: int = connection.execute(_EPOCH).scalar_one()
    return epoch


def apply(connection: Connection, change: Change) -> None:
    """Writes a change: drops first, then puts."""
    name = connection.dialect.name
    for kind, rows in change.drops:
        connection.execute(delete(kind.table), rows)
    for kind, rows in change.puts:
        connection.execute(upsert(name, kind.table), rows)
    if change.settings:
        connection.execute(upsert(name, schema.settings), change.settings)
    if change.events:
        connection.execute(_EVENTS, change.events)
    if change.audit:
        connection.execute(_AUDIT, change.audit)
    if change.samples:
        connection.execute(upsert(name, schema.samples), change.samples)
    if change.serial:
        connection.execute(_GROWN, {"now": change.serial})


@cache
def delete(table: Table) -> Delete:
    """Deletes by primary key."""
    return table.delete().where(and_(*(column == bindparam(column.name) for column in table.primary_key)))


def _postgresql_insert(table: Table) -> Any:
    from sqlalchemy.dialects import postgresql  # this import costs a start 30 ms, and few need it

    return postgresql.insert(table)


@cache
def upsert(dialect: str, table: Table) -> Insert:
    """Inserts, or replaces the row with the same primary key without touching rows that refer to it."""
    statement = sqlite.insert(table) if dialect == "sqlite" else _postgresql_insert(table)
    rest = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    made: Insert = statement.on_conflict_do_update(index_elements=[*table.primary_key], set_=rest)
    return made
