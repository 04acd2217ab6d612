"""What a standby server follows: the number of commits, and that the leader lives."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    made = op.create_table(
        "leadership",
        sa.Column("one", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("renewed", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("one", name="pk_leadership"),
    )
    op.execute(made.insert().values(one=1, revision=0, renewed=0))
