"""Times on the wire: RFC 3339 in UTC with milliseconds."""

from datetime import UTC, datetime

from pliant.control.clock import stamp

__all__ = ["instant", "stamp", "stamp_or_none"]


def stamp_or_none(ms: int | None) -> str | None:
    return None if ms is None else stamp(ms)


def instant(text: str) -> int:
    """Ms since the epoch of an RFC 3339 time; without an offset it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
