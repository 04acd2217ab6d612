"""Addresses for notices about jobs, notices that are not sent yet, and the mail server."""

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
