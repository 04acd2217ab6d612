"""Sends notices by POST to a web address, which is kept in a file on this machine because it is a secret."""

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pliant.model.notice import Notice

SECONDS = 15
MOST = 100
"""Most notices in one request; `more` counts the others."""


def deliver(place: str, rows: Sequence[Notice]) -> None:
    """Send one request. Raises OSError, which does not name the address."""
    url = _url(place)
    path = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    body = {
        "events": [_event(row) for row in rows[:MOST]],
        "more": max(0, len(rows) - MOST),
        "text": "\n".join(_sentence(row) for row in rows[:MOST]),
    }
    made: http.client.HTTPConnection
    if url.scheme == "https":
        made = http.client.HTTPSConnection(
            url.hostname or "", url.port, timeout=SECONDS, context=ssl.create_default_context()
        )
    else:
        made = http.client.HTTPConnection(url.hostname or "", url.port, timeout=SECONDS)
    try:
        made.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = made.getresponse()
        answer.read(2**16)
    except http.client.HTTPException as error:
        raise OSError(f"the address in {place} does not speak HTTP: {type(error).__name__}") from error
    finally:
        made.close()
    if not 200 <= answer.status < 300:
        raise OSError(f"the address in {place} answered {answer.status}")


def _url(place: str) -> urllib.parse.SplitResult:
    try:
        url = urllib.parse.urlsplit(Path(place).read_text("utf-8").strip())
        port = url.port
    except (OSError, ValueError) as error:
        raise OSError(
            f"the file with the address, {place}, cannot be used: {type(error).__name__}"
        ) from error
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise OSError(f"{place} holds no address such as https://chat.example.org/hook")
    return url


def _event(row: Notice) -> dict[str, str]:
    at = datetime.fromtimestamp(row.at / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "event": row.event,
        "at": at,
        "workload": row.workload,
        "name": row.name,
        "project": row.project,
        "user": row.user,
        "message": row.message,
    }


def _sentence(row: Notice) -> str:
    return f"{row.name} ({row.project}, {row.user}): {row.event}. {row.message}".strip()
