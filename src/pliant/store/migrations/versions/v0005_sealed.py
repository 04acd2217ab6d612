"""Removes values of environment variables from rows; the server seals them at its next start (UNSEALED)."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from pliant.store.schema import UNSEALED

revision = "0005"
down_revision = "0004"

workloads = sa.table("workloads", sa.column("id"), sa.column("deleted"), sa.column("body"))
remembered = sa.table("remembered", sa.column("key"), sa.column("body"))
settings = sa.table("settings", sa.column("key"), sa.column("value"))


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":  # for this connection: removed data is overwritten on disk
        connection.execute(sa.text("PRAGMA secure_delete = ON"))
    kept = {}
    for identity, deleted, text in connection.execute(sa.select(workloads)).all():
        body = json.loads(text)
        values = _take_values(body)
        connection.execute(
            sa.update(workloads).where(workloads.c.id == identity).values(body=json.dumps(body))
        )
        if deleted is None and any(values.values()):
            kept[identity] = values
    for key, text in connection.execute(sa.select(remembered)).all():
        connection.execute(
            sa.update(remembered).where(remembered.c.key == key).values(body=_without_values(text))
        )
    if kept:
        connection.execute(sa.insert(settings).values(key=UNSEALED, value=json.dumps(kept)))


def _take_values(workload: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Keeps the names only; returns the values by task group, "" for the workload's own launch."""
    found = {}
    launches = [("", workload["launch"])]
    launches += [(group["name"], group["launch"]) for group in workload["groups"] if group.get("launch")]
    for group, launch in launches:
        env = launch.pop("env", [])
        launch["variables"] = [name for name, _ in env]
        found[group] = dict(env)
    return found


def _without_values(text: str) -> str:
    """A row of `remembered` without the values in its answer, which repeats the submission."""
    row = json.loads(text)
    answer = json.loads(row["body"])
    for variable in (answer.get("spec") or {}).get("environmentVariables") or ():
        variable["value"] = "***"
    return json.dumps({**row, "body": json.dumps(answer)})
