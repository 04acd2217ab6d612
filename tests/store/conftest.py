"""Stores to test: each test that asks for `where` or `store` runs on SQLite and on PostgreSQL."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.store import Database, open_store
from tests.store.postgres import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    # Not under pytest's own folder: that is closed to other accounts and too long a path for a socket.
    with tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder, server(Path(folder)) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """The place of a store that does not exist yet."""
    if request.param == "sqlite":
        return tmp_path / "state.db"
    return request.getfixturevalue("postgres").database()


@pytest.fixture
def store(where: str | Path) -> Iterator[Database]:
    made = open_store(where)
    yield made
    made.close()


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Database]:
    """On SQLite only."""
    made = open_store(tmp_path / "state.db")
    yield made
    made.close()
