"""Brings a database to this program's schema before anything else touches it."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Dialect, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

import pliant
from pliant.store import schema
from pliant.store.connect import Link
from pliant.store.errors import StoreError

LOCK = 0x506C69616E74
"""Held in PostgreSQL while tables are made or changed, so that two servers do not do it at once."""

VERSION_TABLE = (
    f"CREATE TABLE {schema.TABLE_OF_VERSION} "
    "( version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num) )"
)
"""As alembic makes it."""

SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(link: Link, keep: Callable[[str], None]) -> None:
    """A fresh database gets its tables; of an older one, `keep` makes a copy before it is changed.

    Raises StoreError, with nothing changed, for a newer one and for one that is not Pliant's.
    alembic is imported only to change one that is there: that costs a start half a second.
    """
    with link.reading() as connection:
        found = version(connection, link.name)
    if found == schema.HEAD:
        return
    if found is not None:
        keep(found)
    with link.writing(durable=True, patient=True) as connection:
        if connection.dialect.name == "postgresql":  # SQLite has locked the file by now
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        found = version(connection, link.name)
        if found is None:
            _make(connection)
        elif found != schema.HEAD:  # no other process did it in between
            change(connection, link.name)


def version(connection: Connection, name: str) -> str | None:
    """Its schema version; None if it is empty. Raises StoreError if this program cannot use it."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if schema.TABLE_OF_VERSION not in tables or schema.state.name not in tables:
        raise StoreError(f"store {name}: it holds other tables than Pliant's: use a database of its own")
    query = f"SELECT version_num FROM {schema.TABLE_OF_VERSION}"  # a constant  # nosec B608
    found = connection.execute(text(query)).scalar_one()
    if found > schema.HEAD:
        program = connection.execute(text("SELECT program FROM state")).scalar_one()
        raise StoreError(
            f"store {name}: it has schema {found}, written by Pliant {program or '(newer)'}; this is"
            f" Pliant {pliant.__version__}, which knows schemas up to {schema.HEAD}. Install that release or"
            f" a later one, or restore a backup made before the upgrade. Nothing was changed."
        )
    return str(found)


def _make(connection: Connection) -> None:
    """What all migrations together make of an empty database."""
    connection.execute(text(VERSION_TABLE))
    for statement in _tables(connection.dialect):
        connection.exec_driver_sql(statement)
    connection.execute(schema.state.insert().values(one=1, epoch=0, serial=0, program=""))
    connection.execute(schema.leadership.insert().values(one=1, revision=0, renewed=0))
    entry = f"INSERT INTO {schema.TABLE_OF_VERSION} VALUES (:head)"  # a constant  # nosec B608
    connection.execute(text(entry), {"head": schema.HEAD})


_TABLES: dict[str, tuple[str, ...]] = {}
"""For each sort of database what makes the tables: to compile it takes longer than to do it."""


def _tables(dialect: Dialect) -> tuple[str, ...]:
    if dialect.name not in _TABLES:
        tables = schema.metadata.sorted_tables
        made: list[CreateTable | CreateIndex] = [CreateTable(table) for table in tables]
        made += [
            CreateIndex(each)
            for table in tables
            for each in sorted(table.indexes, key=lambda it: str(it.name))
        ]
        _TABLES[dialect.name] = tuple(str(each.compile(dialect=dialect)) for each in made)
    return _TABLES[dialect.name]


def change(connection: Connection, name: str) -> None:
    """Run the migrations that it lacks, all of them if it is empty. Raises StoreError."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, schema.HEAD)
    except CommandError as error:
        raise StoreError(f"store {name}: it cannot be brought to schema {schema.HEAD}: {error}") from error
