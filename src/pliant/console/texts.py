"""Formats amounts and times for a page."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def gpus(amount: Any) -> str:
    return f"{amount or 0:.2f}"


def counted_gpus(amount: float) -> str:
    """In a sentence: '0.5 GPU', '1 GPU', '2.5 GPUs'."""
    return f"{amount:g} {'GPU' if 0 < amount <= 1 else 'GPUs'}"


def size(amount: Any) -> str:
    """Bytes as GiB or MiB."""
    count = int(amount or 0)
    return f"{count / 2**30:.4g} GiB" if count >= 2**30 else f"{count / 2**20:.4g} MiB"


def age(since: str | None) -> str:
    """How long ago, in its two largest units."""
    if not since:
        return ""
    return duration((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())


def duration(seconds: float) -> str:
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def clock(moment: str | None) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def hour(moment: str) -> str:
    """The label of an hour in a chart."""
    return datetime.fromisoformat(moment).strftime("%d %b %H:00")


def plain(text: str) -> str:
    """The text of a log, with its control characters shown as escapes."""
    kept = text.replace("\r\n", "\n")
    return "".join(it if it in "\n\t" or it.isprintable() else f"\\x{ord(it):02x}" for it in kept)


def spreadsheet(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """CSV; text that a spreadsheet would take for a formula gets an apostrophe before it."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(header)
    for row in rows:
        writer.writerow([f"'{it}" if isinstance(it, str) and it.startswith(_FORMULA) else it for it in row])
    return file.getvalue().encode()
