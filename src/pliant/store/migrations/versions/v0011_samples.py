"""Measurements over time."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("subject", "step", "at", name="pk_samples"),
    )
    op.create_index("ix_samples_step_at", "samples", ["step", "at"])
