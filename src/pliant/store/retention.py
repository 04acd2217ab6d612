"""Deletes old rows, in small transactions between which others may write."""

from sqlalchemy import ColumnElement, Connection, Table, and_, exists, func, or_, select

from pliant.store.schema import attempts, audit, events, remembered, samples, tasks, workloads
from pliant.store.writer import Writer, delete

EVENTS_KEPT = 200
"""The newest events of a stored workload, which are kept however old they are."""

CHUNK = 2000
"""Rows per transaction: about 20 ms during which commits wait."""


def prune(writer: Writer, before: int) -> int:
    """Deletes what is older than `before` (ms): deleted workloads with their rows, ended attempts, events and
    remembered answers. Returns the number of these rows.

    Keeps a stored workload's newest EVENTS_KEPT events, and the last attempt of each task.
    """
    last = exists().where(
        tasks.c.workload == attempts.c.workload,
        tasks.c.name == attempts.c.task,
        tasks.c.attempt == attempts.c.number,
    )
    stored = exists().where(workloads.c.id == events.c.subject)
    gone = exists().where(workloads.c.id == attempts.c.workload, workloads.c.deleted < before)
    count = _forget(writer, attempts, or_(gone, and_(attempts.c.ended < before, ~last)))
    count += _forget(writer, workloads, workloads.c.deleted < before)
    count += _forget(writer, remembered, remembered.c.at < before)
    count += _forget(writer, events, and_(events.c.at < before, ~stored))
    for subject in writer.write(_talkative):
        newest = select(events.c.seq).where(events.c.subject == subject).order_by(events.c.seq.desc())
        floor = newest.offset(EVENTS_KEPT - 1).limit(1).scalar_subquery()
        old = and_(events.c.subject == subject, events.c.at < before, events.c.seq < floor)
        count += _forget(writer, events, old)
    return count


def prune_audit(writer: Writer, before: int) -> int:
    """Deletes audit records older than `before` (ms); returns their number."""
    return _forget(writer, audit, audit.c.at < before)


def prune_samples(writer: Writer, step: int, before: int) -> int:
    """Deletes samples of that step (ms) older than `before` (ms); returns their number."""
    return _forget(writer, samples, and_(samples.c.step == step, samples.c.at < before))


def _talkative(connection: Connection) -> list[str]:
    """Stored workloads with more than EVENTS_KEPT events."""
    query = select(events.c.subject).join(workloads, workloads.c.id == events.c.subject)
    query = query.group_by(events.c.subject).having(func.count() > EVENTS_KEPT)
    return [*connection.execute(query).scalars()]


def _forget(writer: Writer, table: Table, which: ColumnElement[bool]) -> int:
    doomed = select(*table.primary_key).where(which).limit(CHUNK)

    def chunk(connection: Connection) -> int:
        rows = [dict(row) for row in connection.execute(doomed).mappings()]
        if rows:
            connection.execute(delete(table), rows)
        return len(rows)

    total = count = writer.write(chunk)
    while count == CHUNK:
        total += (count := writer.write(chunk))
    return total
