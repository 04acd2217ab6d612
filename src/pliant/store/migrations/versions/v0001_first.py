"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_BODY = (("format", sa.Integer), ("body", sa.Text))


def _body() -> list[sa.Column[object]]:
    return [sa.Column(name, kind, nullable=False) for name, kind in _BODY]


def upgrade() -> None:
    state = op.create_table(
        "state",
        sa.Column("one", sa.Integer, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("serial", sa.BigInteger, nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("one", name="pk_state"),
    )
    op.bulk_insert(state, [{"one": 1, "epoch": 0, "serial": 0, "program": ""}])
    op.create_table(
        "settings",
        sa.Column("key", sa.Text),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_settings"),
    )
    for name, key in (
        ("clusters", "uuid"),
        ("departments", "id"),
        ("projects", "id"),
        ("pools", "id"),
        ("nodes", "name"),
    ):
        op.create_table(
            name, sa.Column(key, sa.Text), *_body(), sa.PrimaryKeyConstraint(key, name=f"pk_{name}")
        )
    op.create_table(
        "workloads",
        sa.Column("id", sa.Text),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("serial", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.BigInteger),
        *_body(),
        sa.PrimaryKeyConstraint("id", name="pk_workloads"),
    )
    op.create_index("ix_workloads_deleted_project", "workloads", ["deleted", "project"])
    op.create_table(
        "tasks",
        sa.Column("workload", sa.Text),
        sa.Column("name", sa.Text),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        *_body(),
        sa.PrimaryKeyConstraint("workload", "name", name="pk_tasks"),
        sa.ForeignKeyConstraint(["workload"], ["workloads.id"], name="fk_tasks_workload", ondelete="CASCADE"),
    )
    op.create_table(
        "attempts",
        sa.Column("workload", sa.Text),
        sa.Column("task", sa.Text),
        sa.Column("number", sa.BigInteger, autoincrement=False),
        sa.Column("ended", sa.BigInteger),
        *_body(),
        sa.PrimaryKeyConstraint("workload", "task", "number", name="pk_attempts"),
        sa.ForeignKeyConstraint(
            ["workload"], ["workloads.id"], name="fk_attempts_workload", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_attempts_ended", "attempts", ["ended"])
    op.create_table(
        "remembered",
        sa.Column("key", sa.Text),
        sa.Column("at", sa.BigInteger, nullable=False),
        *_body(),
        sa.PrimaryKeyConstraint("key", name="pk_remembered"),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        *_body(),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_subject_seq", "events", ["subject", "seq"])
    op.create_index("ix_events_at", "events", ["at"])
