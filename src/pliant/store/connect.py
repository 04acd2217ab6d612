"""Connects to an SQLite file in WAL mode, or to PostgreSQL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from pliant.store.errors import Closed, StoreError, explained

WAIT = 10_000
"""Milliseconds that another process may hold the write lock before StoreBusy is raised."""

HANGS = 1_000
"""Milliseconds between two statements after which PostgreSQL ends a writer's transaction."""

CONNECT_TIMEOUT = 5
"""Seconds to wait for a new connection to PostgreSQL."""

READERS = 10
"""Most connections that a server opens to PostgreSQL for reading."""

READER_WAIT = 30.0
"""Seconds that a reader waits for a free connection."""

ALIVE = {"keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3, "tcp_user_timeout": 3_000}
"""A broken network connection is given up after 5 s if nothing was sent, and 3 s after something was sent.
All in seconds, except tcp_user_timeout, in milliseconds."""

_END_HOLDERS = """
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted AND mode = 'RowShareLock'
AND relation = to_regclass(:table) AND pid <> pg_backend_pid()
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

_WAL_KEPT = 64 * 2**20  # bytes that the write-ahead log may keep on disk after a checkpoint


@dataclass(frozen=True, slots=True)
class Link:
    """The connections to one database. Writers' transactions hold the write lock from their beginning."""

    name: str  # for people, without a password
    path: Path | None  # of the file; None: PostgreSQL
    readers: Engine
    writers: Engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one snapshot. Raises StoreError."""
        with explained(self.name), self.readers.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, durable: bool, *, patient: bool = False, wait: int = WAIT) -> Iterator[Connection]:
        """One transaction, synced to disk at its end if `durable`. Raises StoreError, and writes nothing.

        `patient`: PostgreSQL does not end it, however long it is idle. `wait`: ms that another process may
        hold the write lock of PostgreSQL.
        """
        with explained(self.name), self.writers.connect() as connection:
            connection = connection.execution_options(durable=durable, patient=patient, wait=wait)
            try:
                with connection.begin():
                    yield connection
            except SQLAlchemyError:
                connection.invalidate()  # after a disk error its state is unknown
                raise

    def end_holders(self, lock: Table) -> bool:
        """Ends connections that hold the write lock, on a row of that table; True if the database can.

        PostgreSQL itself ends a connection that is idle between two statements, but not in the middle of
        several that are sent together. Raises StoreError.
        """
        if self.path is not None:
            return False
        with self.reading() as connection:
            connection.execute(text(_END_HOLDERS), {"table": lock.name})
        return True

    def prepare(self) -> None:
        """Switches a file to WAL, so that readers and the writer work side by side. Raises StoreError."""
        with explained(self.name), self.writers.connect():
            pass  # connecting does it

    def close(self) -> None:
        """Makes every later use raise Closed."""
        for engine in (self.readers, self.writers):
            event.listen(engine, "do_connect", self._refuse)
            engine.dispose()

    def _refuse(self, *_: object) -> None:
        raise Closed(f"store {self.name}: it is closed")


def locate(where: str | Path) -> Path | URL:
    """A path for SQLite, a URL for PostgreSQL. Raises StoreError for anything else."""
    if isinstance(where, Path) or "://" not in where:
        return Path(where).absolute()
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # its text may show a password
        raise StoreError("not a database address; an example: postgresql://me@host/pliant") from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:" and not url.query:
        return Path(url.database).absolute()
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    shown = url.render_as_string(hide_password=True)
    raise StoreError(f"{shown}: Pliant keeps its state in sqlite:///PATH or postgresql://USER@HOST/DATABASE")


def connect(where: Path | URL) -> Link:
    """The link to a database. A file that does not exist is made, empty. Raises StoreError."""
    return _sqlite(where) if isinstance(where, Path) else _postgres(where)


def _sqlite(path: Path) -> Link:
    if path.is_dir():
        raise StoreError(f"store {path}: it is a folder: name a file in it")
    try:
        if not path.exists():  # opening it by hand while SQLite has it open would drop SQLite's locks
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"store {path}: it cannot be made: {error.strerror}") from None
    url = URL.create("sqlite", database=str(path))
    readers = create_engine(url, pool_size=4, max_overflow=-1)
    writers = create_engine(url, pool_size=1, max_overflow=0)
    event.listen(readers, "connect", _prepare)
    event.listen(writers, "connect", _prepare)
    event.listen(writers, "connect", _use_wal)
    event.listen(readers, "begin", _begin_reading)
    event.listen(writers, "begin", _begin_writing)
    return Link(str(path), path, readers, writers)


def _prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver leaves transactions to this module
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {WAIT}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _use_wal(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    if cursor.fetchone() != ("wal",):
        raise StoreError("SQLite cannot use its write-ahead log there: put the store on a local disk")
    cursor.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}")
    cursor.close()


def _begin_reading(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: Connection) -> None:
    how = "FULL" if connection.get_execution_options().get("durable", True) else "NORMAL"
    if connection.info.get("synchronous") != how:  # of the driver's connection, which keeps it
        connection.exec_driver_sql(f"PRAGMA synchronous = {how}")
        connection.info["synchronous"] = how
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _postgres(url: URL) -> Link:
    try:
        told = {"connect_timeout": CONNECT_TIMEOUT, **ALIVE}
        way: dict[str, Any] = {"pool_pre_ping": True, "connect_args": told}
        readers = create_engine(
            url,
            pool_size=4,
            max_overflow=READERS - 4,
            pool_timeout=READER_WAIT,
            isolation_level="REPEATABLE READ",
            **way,
        )
        writers = create_engine(url, pool_size=1, max_overflow=0, **way)
    except ImportError:
        raise StoreError("PostgreSQL needs one more package: pip install 'pliant[postgres]'") from None
    event.listen(writers, "begin", _begin_writing_postgres)
    return Link(url.render_as_string(hide_password=True), None, readers, writers)


def _begin_writing_postgres(connection: Connection) -> None:
    # A leader that hangs in the middle of a transaction loses its locks, else no other server could lead.
    options = connection.get_execution_options()
    hangs = 0 if options.get("patient") else HANGS
    wait = options.get("wait", WAIT)
    connection.exec_driver_sql(
        f"SET LOCAL lock_timeout = {wait}; SET LOCAL idle_in_transaction_session_timeout = {hangs}"
    )
    if not options.get("durable", True):
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
