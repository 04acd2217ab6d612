"""Store fixtures: each test that uses `where` or `store` runs on SQLite and on PostgreSQL."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import pliant
from pliant.store import Database, migrate, open_store, schema
from tests.store.postgres import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    # Not under pytest's folder, which other accounts cannot enter and whose path is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder, server(Path(folder)) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """The place of a store that does not exist yet."""
    if request.param == "sqlite":
        return tmp_path / "state.db"
    return request.getfixturevalue("postgres").place()


@pytest.fixture
def store(where: str | Path) -> Iterator[Database]:
    made = open_store(where)
    yield made
    made.close()


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Database]:
    """A store on SQLite."""
    made = open_store(tmp_path / "state.db")
    yield made
    made.close()


NEXT = '''"""Made by a test."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    op.create_table("later", sa.Column("x", sa.Integer))
    with op.batch_alter_table("settings") as table:
        table.add_column(sa.Column("note", sa.Text, server_default="new", nullable=False))
    {extra}
'''


class Release(Protocol):
    """Makes the test run as this release of Pliant or as a later one."""

    def __call__(self, later: bool, extra: str = "") -> None: ...


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """The later release's schema is one version ahead; `extra` is one more statement of its migration."""
    scripts, head = migrate.SCRIPTS, schema.HEAD
    theirs = tmp_path / "later"
    shutil.copytree(scripts, theirs)

    def use(later: bool, extra: str = "") -> None:
        (theirs / "versions" / "v9999_next.py").write_text(NEXT.format(head=head, extra=extra))
        monkeypatch.setattr(migrate, "SCRIPTS", theirs if later else scripts)
        monkeypatch.setattr(schema, "HEAD", "9999" if later else head)
        monkeypatch.setattr(pliant, "__version__", "77.0" if later else "0.1")

    use(False)
    return use
