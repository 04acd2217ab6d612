"""Errors of a store, as sentences for people."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from pliant.control.ports import StoreClosed, StoreLost


class StoreError(Exception):
    """A store cannot be opened, read or written; the text says why and what to do."""


class StoreBusy(StoreError):
    """Another process has held the store's write lock too long, or readers use all connections."""


class DiskFull(StoreError):
    """Nothing was written: the disk of a store's file has no room."""


class DatabaseLost(StoreError, StoreLost):
    """PostgreSQL does not answer, or has ended the connection."""


class Closed(StoreError, StoreClosed):
    """The store was used after close()."""


_FULL = "SQLITE_FULL"
_SQLITE = (  # beginning of SQLite's error name, what to say
    (_FULL, "the disk is full: free some space and try again"),
    ("SQLITE_READONLY", "it is read-only: make the file and its folder writable for this user"),
    ("SQLITE_CANTOPEN", "it cannot be opened: check that its folder exists and is writable for this user"),
    ("SQLITE_PERM", "access is denied: make the file and its folder writable for this user"),
    ("SQLITE_NOTADB", "it is not a database of Pliant, or it is damaged: use one that `pliant backup` wrote"),
    ("SQLITE_CORRUPT", "it is damaged: restore a backup (pliant restore)"),
    ("SQLITE_IOERR", "the disk reports an error: check the disk, its free space and its size limits"),
    ("SQLITE_CONSTRAINT", "what is to be stored contradicts what is there; nothing of it was written"),
)
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_POSTGRES = (  # beginning of PostgreSQL's SQLSTATE, what to say
    ("53100", "its disk is full: free some space and try again"),
    ("25006", "it is read-only: use the address of the primary server"),
    ("28", "it refuses the login: check user and password in the address"),
    ("3D000", "there is no such database: create it (createdb) or correct the address"),
    ("42501", "this user may not do that: grant it all rights on the database"),
    ("23", "what is to be stored contradicts what is there; nothing of it was written"),
    ("57P", "it is shutting down or starting: try again"),
    ("25P03", "it has ended a transaction that hung: try again"),
    ("08", "the connection was lost: try again"),
)
_LOST = ("57P", "25P03", "08")


def explain(where: str, error: Exception) -> StoreError:
    """A StoreError from an error of the driver or SQLAlchemy; `where` names the store without a password."""
    if isinstance(error, PoolTimeout):
        return StoreBusy(f"store {where}: all connections for reading are in use: try again")
    origin = (error.orig or error) if isinstance(error, DBAPIError) else error
    detail = str(origin).strip().split("\n")[0]
    name = getattr(origin, "sqlite_errorname", None) or ""
    state = getattr(origin, "sqlstate", None) or ""
    if name.startswith(_BUSY) or state == "55P03":
        return StoreBusy(
            f"store {where}: another process has kept it locked for too long: end it if it hangs ({detail})"
        )
    for start, text in _SQLITE:
        if name.startswith(start):
            refused = DiskFull if start == _FULL else StoreError
            return refused(f"store {where}: {text} ({detail})")
    for start, text in _POSTGRES:
        if state.startswith(start):
            kind = DatabaseLost if start in _LOST else StoreError
            return kind(f"store {where}: {text} ({detail})")
    if isinstance(error, OperationalError) and not (name or state):
        return DatabaseLost(
            f"store {where}: no answer: check that the database runs and its address ({detail})"
        )
    return StoreError(f"store {where}: {detail}")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turns the database's errors into StoreError."""
    try:
        yield
    except SQLAlchemyError as error:
        raise explain(where, error) from error
