"""The tables. A row is the whole object as JSON (`body`, in `format`); other columns are only for queries.

A change here needs a migration in migrations/versions and a new HEAD: fresh databases are made from these
tables, older ones by migrations, and a test checks that both are equal.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

from pliant.control.state.kinds import STORED_ROWS
from pliant.sched.world.rows import RowKind

HEAD = "0014"
"""Schema version that this program writes; versions are four digits and grow."""

TABLE_OF_VERSION = "alembic_version"

UNSEALED = "unsealed"
"""Setting: values of environment variables that a migration took out of rows, as JSON, until sealed."""

metadata = MetaData(
    naming_convention={
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)
_Sequence = BigInteger().with_variant(Integer(), "sqlite")  # SQLite autoincrements only an INTEGER


def _row(name: str, *columns: Column[Any] | Index) -> Table:
    return Table(
        name,
        metadata,
        *columns,
        Column("format", Integer, nullable=False),
        Column("body", Text, nullable=False),
    )


state = Table(
    "state",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),  # always 1: there is one row
    Column("epoch", BigInteger, nullable=False),  # of the server that leads; only ever grows
    Column("serial", BigInteger, nullable=False),  # highest of any workload ever stored, forgotten ones too
    Column("program", Text, nullable=False),  # version of Pliant that led last
)
leadership = Table(
    "leadership",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),  # always 1: there is one row
    Column("revision", BigInteger, nullable=False),  # grows with every commit
    Column("renewed", BigInteger, nullable=False),  # grows while the leader lives
)
settings = Table(
    "settings",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)


def _table(kind: RowKind[Any]) -> Table:
    """The table of a kind of rows: its identity, extra columns for queries, and the row."""
    more = BESIDES.get(kind.slot, ())
    own = {column.name for column in more if isinstance(column, Column)}
    names = [name.rpartition(".")[2] for name in kind.identity]
    return _row(
        kind.slot, *[Column(name, Text, primary_key=True) for name in names if name not in own], *more
    )


BESIDES: dict[str, Sequence[Column[Any] | Index]] = {
    "workloads": (
        Column("project", Text, nullable=False),
        Column("serial", BigInteger, nullable=False),
        Column("deleted", BigInteger),  # ms; null while it lives
        Index(None, "deleted", "project"),
    ),
    "tasks": (
        Column("workload", Text, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
        Column("name", Text, primary_key=True),
        Column("attempt", BigInteger, nullable=False),  # number of its current or last attempt
    ),
    "attempts": (
        Column("workload", Text, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
        Column("task", Text, primary_key=True),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("ended", BigInteger),  # ms; null while it may live
        Index(None, "ended"),
    ),
    "progresses": (
        Column("workload", Text, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
    ),
    "custom_roles": (Column("id", BigInteger, primary_key=True, autoincrement=False),),
    "remembered": (Column("at", BigInteger, nullable=False),),
}
"""Columns by table, besides a text for each part of the identity."""

ROWS: dict[str, Table] = {kind.slot: _table(kind) for kind in STORED_ROWS.kinds}
"""The table of each kind of rows."""

workloads, tasks, attempts = ROWS["workloads"], ROWS["tasks"], ROWS["attempts"]
progresses, remembered = ROWS["progresses"], ROWS["remembered"]
events = Table(
    "events",
    metadata,
    Column("seq", _Sequence, primary_key=True),  # over all subjects, in commit order; never reused
    Column("subject", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "subject", "seq"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)
audit = Table(
    "audit",
    metadata,
    Column("seq", _Sequence, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "at"),
    sqlite_autoincrement=True,
)
samples = _row(
    "samples",
    Column("subject", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),  # ms
    Column("at", BigInteger, primary_key=True, autoincrement=False),  # ms
    Index(None, "step", "at"),
)
