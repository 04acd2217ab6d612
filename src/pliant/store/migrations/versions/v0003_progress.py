"""Progress that training jobs report."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "progresses",
        sa.Column("workload", sa.Text),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("workload", name="pk_progresses"),
        sa.ForeignKeyConstraint(
            ["workload"], ["workloads.id"], name="fk_progresses_workload", ondelete="CASCADE"
        ),
    )
