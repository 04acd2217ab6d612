"""What users held, by day."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

IDENTITY = ("day", "user", "project", "pool")


def upgrade() -> None:
    op.create_table(
        "usages",
        *(sa.Column(name, sa.Text) for name in IDENTITY),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(*IDENTITY, name="pk_usages"),
    )
