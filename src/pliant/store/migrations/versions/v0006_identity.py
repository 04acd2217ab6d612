"""Users, programs, their keys and sessions, access rules, limits for each, and the audit."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

TABLES = {
    "users": ("id",),
    "applications": ("id",),
    "access_keys": ("id",),
    "access_rules": ("id",),
    "login_sessions": ("id",),
    "allowances": ("subject", "project"),
}


def upgrade() -> None:
    for table, identity in TABLES.items():
        op.create_table(
            table,
            *(sa.Column(name, sa.Text) for name in identity),
            sa.Column("format", sa.Integer, nullable=False),
            sa.Column("body", sa.Text, nullable=False),
            sa.PrimaryKeyConstraint(*identity, name=f"pk_{table}"),
        )
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"])
