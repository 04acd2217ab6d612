"""Addresses to which is told what becomes of jobs, what is still to be told, and the server for mail."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    for table, identity in (("subscriptions", "id"), ("notices", "id"), ("mail_servers", "name")):
        op.create_table(
            table,
            sa.Column(identity, sa.Text),
            sa.Column("format", sa.Integer, nullable=False),
            sa.Column("body", sa.Text, nullable=False),
            sa.PrimaryKeyConstraint(identity, name=f"pk_{table}"),
        )
