"""Times on the wire: RFC 3339 in UTC with milliseconds."""

from datetime import UTC, datetime


def stamp(ms: int) -> str:
    """1700000000123 -> '2023-11-14T22:13:20.123Z'."""
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def stamp_or_none(ms: int | None) -> str | None:
    return None if ms is None else stamp(ms)


def instant(text: str) -> int:
    """Ms since the epoch of an RFC 3339 time; without an offset it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
