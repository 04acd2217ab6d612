"""The tables. A row is the whole object as JSON (`body`, in `format`); other columns are for queries only.

A change here needs a migration in migrations/versions and a new HEAD: fresh databases are made from these
tables, older ones by migrations, and a test holds both equal.
"""

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

HEAD = "0005"
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
_Sequence = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts up only an INTEGER


def _row(name: str, *columns: Column[int] | Column[str] | Column[int | None] | Index) -> Table:
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
settings = Table(
    "settings",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
clusters = _row("clusters", Column("uuid", Text, primary_key=True))
departments = _row("departments", Column("id", Text, primary_key=True))
projects = _row("projects", Column("id", Text, primary_key=True))
pools = _row("pools", Column("id", Text, primary_key=True))
topologies = _row("topologies", Column("name", Text, primary_key=True))
nodes = _row("nodes", Column("name", Text, primary_key=True))
workloads = _row(
    "workloads",
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("serial", BigInteger, nullable=False),
    Column("deleted", BigInteger),  # ms; null while it lives
    Index(None, "deleted", "project"),
)
tasks = _row(
    "tasks",
    Column("workload", Text, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("attempt", BigInteger, nullable=False),  # number of its present or last one
)
attempts = _row(
    "attempts",
    Column("workload", Text, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
    Column("task", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("ended", BigInteger),  # ms; null while it may live
    Index(None, "ended"),
)
progresses = _row(
    "progresses",
    Column("workload", Text, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
)
remembered = _row(
    "remembered",
    Column("key", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
)
past_uses = _row(
    "past_uses", Column("project", Text, primary_key=True), Column("pool", Text, primary_key=True)
)
disruptions = _row("disruptions", Column("project", Text, primary_key=True))
priority_classes = _row("priority_classes", Column("name", Text, primary_key=True))
events = Table(
    "events",
    metadata,
    Column(
        "seq", _Sequence, primary_key=True
    ),  # over all subjects, in the order of commits; never used again
    Column("subject", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "subject", "seq"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)
