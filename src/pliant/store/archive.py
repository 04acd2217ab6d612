"""Backup and restore. A backup is one SQLite file, whatever the store uses, and restores into either."""

import errno
import fcntl
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, func, select, update

from pliant.store import migrate, schema
from pliant.store.codec import FORMAT
from pliant.store.connect import Link, connect, locate
from pliant.store.errors import StoreError, explain

log = logging.getLogger(__name__)

DRAFT = ".pliant-draft-"
"""Begin of the name of a folder in which a copy is written, beside its target."""

_LOCK = "lock"
"""A file in that folder. Its writer holds the lock, which ends with the process."""

_PARTS = frozenset({_LOCK, "draft", "draft-journal", "draft-wal", "draft-shm"})
"""All that such a folder contains. A folder with anything else is not removed."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # a file system without locks
_CHUNK = 1000  # rows copied at once between databases
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)  # a file system without hard links


def backup(link: Link, target: Path) -> None:
    """Makes a consistent, checked copy of a store in use, whole or not at all. Raises StoreError."""
    target = Path(target).absolute()
    if target.exists():
        raise StoreError(f"{target} exists: choose another name")
    with _draft(target) as draft:
        if link.path is not None:
            _copy(link.path, draft)
        else:
            with _opened(draft) as copy:
                migrate.upgrade(copy, lambda _: None)
                with link.reading() as source, copy.writing(durable=True) as drain:
                    _pour(source, drain)
        _as_one_file(draft)
        check(draft)
        _publish(draft, target)


def keep(link: Link, found: str) -> None:
    """Copies the file of a store with schema `found` before its migration; the copy is beside it."""
    if link.path is None:
        return  # PostgreSQL migrates in one transaction; a copy would need the older schema
    target = Path(f"{link.path}.schema-{found}")
    number = 1
    while target.exists():
        number += 1
        target = Path(f"{link.path}.schema-{found}.{number}")
    backup(link, target)


def restore(source: Path, target: str | Path, *, overwrite: bool = False) -> None:
    """Makes `target` (a path or a URL, as for open_store) hold the content of the backup `source`.

    Replaces an existing store only with `overwrite`, and only while no server uses it. Its file is kept as
    `<target>.replaced`, and its epoch is not used again. Raises StoreError; then nothing was changed.
    """
    place = locate(target)
    source = Path(source).absolute()
    if place == source:
        raise StoreError(f"{source} cannot be restored onto itself")
    if not source.is_file():
        raise StoreError(f"backup {source}: there is no such file")
    check(source)
    if isinstance(place, Path):
        _restore_file(source, place, overwrite)
    else:
        _restore_postgres(source, place, overwrite)


@contextmanager
def copied(source: Path) -> Iterator[Link]:
    """A private copy of a backup, migrated, for the duration of the context. Raises StoreError."""
    source = Path(source).absolute()
    if not source.is_file():
        raise StoreError(f"backup {source}: there is no such file")
    check(source)
    with tempfile.TemporaryDirectory(prefix="pliant-look-") as folder:
        draft = Path(folder) / "draft"
        draft.touch(0o600)
        _ready(source, draft)
        with _opened(draft) as link:
            yield link


def check(path: Path) -> None:
    """Raises StoreError unless the file is an undamaged store, and not of a newer release."""
    with _raw(path) as connection:
        damage = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        stray = connection.execute("PRAGMA foreign_key_check").fetchone()
    if damage != ["ok"] or stray is not None:
        raise StoreError(
            f"{path} is damaged: {damage[0] if damage != ['ok'] else f'stray row in {stray[0]}'}"
        )
    with _opened(path) as link, link.reading() as rows:
        found = migrate.version(rows, str(path))
        if found is None:
            raise StoreError(f"{path} is empty: it is not a backup of Pliant")
        for table in schema.metadata.sorted_tables if found == schema.HEAD else ():
            newest = rows.execute(select(func.max(table.c.format))).scalar() if "format" in table.c else None
            if newest is not None and newest > FORMAT:
                raise StoreError(
                    f"{path}: rows of {table.name} have format {newest} of a newer Pliant;"
                    f" this one reads up to {FORMAT}: install the newer release"
                )


def _restore_file(source: Path, place: Path, overwrite: bool) -> None:
    if place.exists() and not overwrite:
        raise StoreError(f"{place} exists: restore elsewhere, or say that it may be replaced")
    with _draft(place) as draft:
        _ready(source, draft)
        if place.exists():
            _raise_epoch(draft, _shut(place))
            _as_one_file(draft)
            _sync(draft)
            _set_aside(place)
            draft.replace(place)
        else:
            _as_one_file(draft)
            _publish(draft, place)
        _sync(place.parent)


def _restore_postgres(source: Path, place: URL, overwrite: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="pliant-restore-") as folder:
        draft = Path(folder) / "draft"
        draft.touch(0o600)
        _ready(source, draft)
        with _opened(draft) as copy, closing(connect(place)) as link:
            with link.reading() as connection:
                there = migrate.version(connection, link.name)
            if there is not None and not overwrite:
                raise StoreError(
                    f"{link.name} holds a store: restore elsewhere, or say that it may be replaced"
                )
            migrate.upgrade(link, lambda _: None)
            with copy.reading() as old, link.writing(durable=True, patient=True) as new:
                epoch = new.execute(select(schema.state.c.epoch).with_for_update()).scalar_one()
                _pour(old, new)
                new.execute(update(schema.state).where(schema.state.c.epoch < epoch).values(epoch=epoch))
                for table in (schema.events, schema.audit):
                    next_seq = select(func.coalesce(func.max(table.c.seq), 0) + 1).scalar_subquery()
                    sequence = func.pg_get_serial_sequence(table.name, "seq")
                    new.execute(select(func.setval(sequence, next_seq, False)))


def _ready(source: Path, draft: Path) -> None:
    """Copies a backup to `draft` and migrates the copy."""
    _copy(source, draft)
    with _opened(draft) as link:
        migrate.upgrade(link, lambda _: None)


def _pour(source: Connection, target: Connection) -> None:
    """Replaces all rows of one database by those of another."""
    tables = schema.metadata.sorted_tables
    for table in reversed(tables):
        target.execute(table.delete())
    for table in tables:
        rows = source.execution_options(yield_per=_CHUNK).execute(select(table)).mappings()
        for part in rows.partitions():
            target.execute(table.insert(), [dict(row) for row in part])


def _raise_epoch(draft: Path, epoch: int) -> None:
    """Keeps an epoch from being used twice: executors refuse epochs below the last one they saw."""
    with _raw(draft, write=True) as connection:
        connection.execute("UPDATE state SET epoch = max(epoch, ?)", (epoch,))


def _shut(place: Path) -> int:
    """Merges a store's log into its file; its epoch, 0 if damaged. Raises StoreError if it is in use."""
    try:
        with closing(sqlite3.connect(place, timeout=0, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # refused while another process has it open
            connection.execute("BEGIN EXCLUSIVE")
            epoch: int = connection.execute("SELECT epoch FROM state").fetchone()[0]
            return epoch
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreError(f"{place} is in use: stop the server first (pliant down)") from None
        if error.sqlite_errorname.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")):
            return 0  # damaged, or not even a store: this is why it is being replaced
        raise explain(str(place), error) from error


def _set_aside(place: Path) -> None:
    """Keeps a store under a second name; its log must not meet the file that replaces it."""
    aside = Path(f"{place}.replaced")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{aside}{suffix}").unlink(missing_ok=True)
    _link(place, aside)
    for suffix in ("-wal", "-shm"):  # only a damaged store still has them
        if (part := Path(f"{place}{suffix}")).exists():
            part.replace(f"{aside}{suffix}")


def _copy(source: Path, draft: Path) -> None:
    with _raw(source) as old, _raw(draft, write=True) as new:
        old.backup(new)


def _as_one_file(draft: Path) -> None:
    """Makes it one file without a log beside it."""
    with _raw(draft, write=True) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def _raw(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise explain(str(path), error) from error


@contextmanager
def _opened(path: Path) -> Iterator[Link]:
    with closing(connect(path)) as link:
        yield link


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """An empty private file on the target's file system; deleted at the end unless it was moved.

    Removes the drafts beside it that killed processes have left.
    """
    try:
        _remove_abandoned(target.parent)
        with tempfile.TemporaryDirectory(prefix=DRAFT, dir=target.parent) as folder:
            lock = os.open(Path(folder) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(lock)  # without one, nobody removes what a kill leaves
                draft = Path(folder) / "draft"
                draft.touch(0o600)
                yield draft
            finally:
                os.close(lock)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror or error}") from error


def _remove_abandoned(parent: Path) -> None:
    for folder in sorted(parent.glob(f"{DRAFT}*")):
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:  # of another account, no folder, or gone meanwhile
            log.debug("%s is left as it is: %s", folder, error.strerror)
            continue
        try:
            if _remove_parts(handle):
                folder.rmdir()
                log.info("removed %s, which a killed process had left", folder)
        except OSError as error:
            log.warning("%s, which a killed process has left, cannot be removed: %s", folder, error.strerror)
        finally:
            os.close(handle)


def _remove_parts(folder: int) -> bool:
    """Empties the folder of an abandoned draft. False, without a change, if it is in use or no draft."""
    names = os.listdir(folder)
    if _LOCK not in names or not _PARTS.issuperset(names) or os.fstat(folder).st_uid != os.geteuid():
        return False
    lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not _lock(lock):
            return False
        for name in sorted(names, key=_LOCK.__eq__):  # the lock last: without it the rest would stay for ever
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(lock)
    return True


def _lock(handle: int) -> bool:
    """Takes the lock on a file. False if another has it, or if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, *_NO_LOCKS):
            raise
        return False
    return True


def _publish(draft: Path, target: Path) -> None:
    """Gives a finished draft its name, whole or not at all, and never in place of another file."""
    _sync(draft)
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        target.touch(0o600, exist_ok=False)
        draft.replace(target)
    _sync(target.parent)


def _link(path: Path, name: Path) -> None:
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copy2(path, name)


def _sync(path: Path) -> None:
    """Syncs to disk: a file's content, a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
