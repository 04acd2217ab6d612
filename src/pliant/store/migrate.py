"""Migrates a database to this program's schema before anything else uses it."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Dialect, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

import pliant
from pliant.store import schema
from pliant.store.connect import Link
from pliant.store.errors import StoreError

LOCK = 0x506C69616E74
"""Held in PostgreSQL while tables are made or changed, so that only one server does so at a time."""

VERSION_TABLE = (
    f"CREATE TABLE {schema.TABLE_OF_VERSION} "
    "( version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num) )"
)
"""As alembic makes it."""

SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(link: Link, keep: Callable[[str], None]) -> None:
    """Makes the tables of a fresh database; migrates an older one after `keep` has copied it.

    Raises StoreError, with nothing changed, for a newer database and for one that is not Pliant's. alembic is
    imported only for a migration: the import takes half a second of a start.
    """
    with link.reading() as connection:
        found = version(connection, link.name)
    if found == schema.HEAD:
        return
    if found is not None:
        keep(found)
    with link.writing(durable=True, patient=True) as connection:
        if connection.dialect.name == "postgresql":  # SQLite has locked the file already
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        found = version(connection, link.name)
        if found is None:
            _make(connection)
        elif found != schema.HEAD:  # no other process did it meanwhile
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
    """Makes the tables in an empty database, as all migrations together do."""
    connection.execute(text(VERSION_TABLE))
    for statement in _tables(connection.dialect):
        connection.exec_driver_sql(statement)
    connection.execute(schema.state.insert().values(one=1, epoch=0, serial=0, program=""))
    connection.execute(schema.leadership.insert().values(one=1, revision=0, renewed=0))
    entry = f"INSERT INTO {schema.TABLE_OF_VERSION} VALUES (:head)"  # a constant  # nosec B608
    connection.execute(text(entry), {"head": schema.HEAD})


_TABLES: dict[str, tuple[str, ...]] = {}
"""By database dialect: the statements that make the tables. Compiling them takes longer than running them."""


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
    """Runs the missing migrations, all of them if the database is empty. Raises StoreError."""
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
