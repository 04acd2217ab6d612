"""Topologies, and what the scheduler remembers of the past."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for name, keys in (
        ("topologies", ("name",)),
        ("past_uses", ("project", "pool")),
        ("disruptions", ("project",)),
    ):
        op.create_table(
            name,
            *(sa.Column(key, sa.Text) for key in keys),
            sa.Column("format", sa.Integer, nullable=False),
            sa.Column("body", sa.Text, nullable=False),
            sa.PrimaryKeyConstraint(*keys, name=f"pk_{name}"),
        )
