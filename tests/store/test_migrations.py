"""Fresh, older, newer and equal databases."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from pliant.control.lease import Seen
from pliant.control.ports import Batch
from pliant.model.priority import PriorityClass
from pliant.model.topology import Topology
from pliant.model.workload import Workload
from pliant.store import UNSEALED, StoreError, migrate, open_store, schema
from pliant.store.connect import connect, locate
from pliant.store.migrations.versions.v0006_identity import TABLES
from tests.store.conftest import Release
from tests.store.samples import running

ROOT = Path(__file__).resolve().parents[2]
HEAD = schema.HEAD  # this release's, whichever release a test simulates


def fill(where: str | Path) -> None:
    store = open_store(where)
    epoch = store.lead()
    for number in range(1, 6):
        store.commit(epoch, running(number))
    store.close()


def columns(where: str | Path, table: str) -> set[str]:
    link = connect(locate(where))
    with link.reading() as connection:
        found = {column["name"] for column in inspect(connection).get_columns(table)}
    link.close()
    return found


@pytest.mark.parametrize("by", [migrate._make, lambda connection: migrate.change(connection, "it")])
def test_a_fresh_database_is_what_the_migrations_make(
    where: str | Path, by: Callable[[Connection], None]
) -> None:
    link = connect(locate(where))
    with link.writing(durable=True) as connection:
        by(connection)
    with link.readers.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, schema.metadata) == []
        assert migrate.version(connection, "it") == schema.HEAD
        filled = {
            name: rows
            for name in inspect(connection).get_table_names()
            if (rows := connection.execute(text(f"SELECT * FROM {name}")).all())
        }
        key = inspect(connection).get_pk_constraint(schema.TABLE_OF_VERSION)
    link.close()
    assert filled == {
        "state": [(1, 0, 0, "")],
        "leadership": [(1, 0, 0)],
        "alembic_version": [(schema.HEAD,)],
    }
    assert (key["name"], key["constrained_columns"]) == ("alembic_version_pkc", ["version_num"])


def test_tables_made_at_once_are_word_for_word_those_of_the_migrations(tmp_path: Path) -> None:
    """Compares names, types, order of columns, keys and indexes, as SQLite stores them."""
    found = []
    for name, by in (("made", migrate._make), ("migrated", lambda c: migrate.change(c, "it"))):
        link = connect(tmp_path / name)
        with link.writing(durable=True) as connection:
            by(connection)
            rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")).all()
        link.close()
        found.append({row.name: " ".join(row.sql.split()) for row in rows})
    assert found[0] == found[1]


def test_head_is_the_newest_version() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.SCRIPTS))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


def test_an_older_store_is_brought_up_to_date_after_a_copy(where: str | Path, release: Release) -> None:
    fill(where)
    release(True)
    store = open_store(where)
    assert len(store.load().of(Workload)) == 5
    assert store.load().settings["last"] == "5"
    assert len(store.events("w-3")) == 1
    store.commit(store.lead(), running(6))
    store.close()
    assert "note" in columns(where, "settings")
    if isinstance(where, Path):
        copy = Path(f"{where}.schema-{HEAD}")
        release(False)
        kept = open_store(copy)
        assert len(kept.load().of(Workload)) == 5
        kept.close()


def test_a_store_of_the_first_schema_takes_what_came_later(
    where: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "HEAD", "0001")
    link = connect(locate(where))
    with link.writing(durable=True) as connection:
        migrate.change(connection, "it")
        connection.execute(schema.settings.insert().values(key="last", value="5"))
    link.close()
    monkeypatch.undo()
    store = open_store(where)
    later = Topology("room", ("row", "rack")), PriorityClass("high", 7)
    store.commit(store.lead(), Batch(put=later))
    assert (*store.load().of(Topology), *store.load().of(PriorityClass)) == later
    assert store.load().settings["last"] == "5"
    store.close()


def test_copies_of_two_upgrades_do_not_replace_each_other(tmp_path: Path, release: Release) -> None:
    path = tmp_path / "state.db"
    for number in (1, 2):
        release(False)
        path.unlink(missing_ok=True)
        fill(path)
        release(True)
        open_store(path).close()
        assert Path(f"{path}.schema-{HEAD}{'' if number == 1 else '.2'}").exists()


def test_an_upgrade_that_fails_changes_nothing(where: str | Path, release: Release) -> None:
    fill(where)
    release(True, 'op.execute("SELECT * FROM no_such_table")')
    with pytest.raises(StoreError, match="no_such_table"):
        open_store(where)
    release(False)
    store = open_store(where)
    assert len(store.load().of(Workload)) == 5
    store.commit(store.lead(), running(6))
    store.close()
    assert "note" not in columns(where, "settings")


def test_a_newer_store_is_refused_and_left_as_it_is(where: str | Path, release: Release) -> None:
    release(True)
    fill(where)
    before = hashlib.sha256(where.read_bytes()).digest() if isinstance(where, Path) else None
    release(False)
    with pytest.raises(StoreError) as caught:
        open_store(where)
    said = str(caught.value)
    assert "it has schema 9999, written by Pliant 77.0; this is Pliant 0.1, which knows" in said
    assert f"schemas up to {schema.HEAD}" in said
    assert "Install that release or a later one, or restore a backup" in said
    if isinstance(where, Path):
        assert hashlib.sha256(where.read_bytes()).digest() == before
        assert [path.name for path in where.parent.glob("state.db*")] == ["state.db"]
    release(True)
    store = open_store(where)
    assert len(store.load().of(Workload)) == 5
    store.close()


def test_servers_that_open_a_new_store_at_once_share_it(where: str | Path) -> None:
    code = "import sys; from pliant.store import open_store; s = open_store(sys.argv[1]); print(s.lead())"
    command = [sys.executable, "-c", code, str(where)]
    run = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    said = [process.communicate(timeout=200) for process in run]
    assert sorted(out.strip() for out, _ in said) == ["1", "2", "3", "4"], said


def test_alembic_is_imported_only_to_change_what_is_there(tmp_path: Path) -> None:
    code = (
        "import sys; from pliant.store import open_store; s = open_store(sys.argv[1]); s.lead(); s.load();"
        " print('alembic' in sys.modules, 'psycopg' in sys.modules); s.close()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "state.db")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.check_output(command, text=True, env=env).split() == ["False", "False"]
    assert subprocess.check_output(command, text=True, env=env).split() == ["False", "False"]


def test_a_store_whose_making_was_interrupted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    store = open_store(path)
    store.commit(store.lead(), Batch(settings={"a": "b"}))
    assert store.load().settings["a"] == "b"
    store.close()


def test_values_of_variables_leave_the_rows_of_an_older_store(where: str | Path) -> None:
    fill(where)
    link = connect(locate(where))
    env = [["TOKEN", "S3CR3T"]]
    with link.writing(durable=True) as connection:
        for identity, body in connection.execute(text("SELECT id, body FROM workloads")).all():
            row = json.loads(body)
            row["launch"] = {**row["launch"], "env": env}
            row["groups"].append({**row["groups"][0], "name": "own", "launch": {"image": "i", "env": env}})
            told = {"id": identity, "body": json.dumps(row)}
            connection.execute(text("UPDATE workloads SET body = :body WHERE id = :id"), told)
        answer = {"spec": {"environmentVariables": [{"name": "TOKEN", "value": "S3CR3T"}]}}
        row = {"key": "k", "fingerprint": "", "status": 202, "body": json.dumps(answer), "at": 1}
        told = {"key": "k", "at": 1, "format": 6, "body": json.dumps(row)}
        connection.execute(text("INSERT INTO remembered VALUES (:key, :at, :format, :body)"), told)
        for table in (
            *TABLES,
            "audit",
            "leadership",
            "assets",
            "samples",
            "usages",
            "subscriptions",
            "notices",
            "mail_servers",
            "bookings",
            "custom_roles",
            "ended_sessions",
        ):  # later versions added these tables
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    link.close()
    store = open_store(where)
    assert store.seen() == Seen(1, 0, 0)
    saved = store.load()
    workload = saved.of(Workload)[0]
    assert workload.launch.variables == ("TOKEN",) == workload.group("own").launch.variables  # type: ignore[union-attr]
    kept = {"TOKEN": "S3CR3T"}
    assert json.loads(saved.settings[UNSEALED])[workload.id] == {"": kept, "own": kept}
    remembered = store.remembered("k")
    assert remembered is not None and "S3CR3T" not in remembered.body and "***" in remembered.body
    store.commit(store.lead(), Batch(settings={UNSEALED: ""}))
    store.close()
    if isinstance(where, Path):
        assert b"S3CR3T" not in where.read_bytes(), "what is removed is overwritten"
