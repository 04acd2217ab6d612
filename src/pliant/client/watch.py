"""Streams changes of workloads as they happen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pliant.client.errors import Unreachable
from pliant.client.transport import Stream, Transport


class Change(NamedTuple):
    """One change that `watch` reports."""

    kind: str  # "workload" | "deleted"
    item: dict[str, Any]  # a WorkloadItem, or {"id": ...}
    id: str  # resume here with watch(after=...)


def watch(http: Transport, project: str | None, after: str | None) -> Iterator[Change]:
    """Opens the stream at the call, not at the first iteration; see Client.watch."""
    return _onward(http, project, _opened(http, project, after), after)


def _opened(http: Transport, project: str | None, after: str | None) -> Stream:
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
    return http.stream("GET", "/api/v1/watch", query=[("project", project)], headers=headers)


def _onward(http: Transport, project: str | None, stream: Stream, after: str | None) -> Iterator[Change]:
    while True:
        seen = False
        try:
            for change in _changes(stream):
                seen = True
                after = change.id or after
                yield change
        except Unreachable:
            if not seen:
                raise
        else:
            if not seen:
                raise Unreachable(f"The server at {http.url} ended the stream of changes.")
        finally:
            stream.close()
        stream = _opened(http, project, after)


def _changes(stream: Stream) -> Iterator[Change]:
    """Parses server-sent events: fields up to an empty line; a line that begins with a colon is a comment."""
    kind, data, mark = "message", "", ""
    for line in stream.lines():
        if not line:
            if data and kind in ("workload", "deleted"):
                yield Change(kind, json.loads(data), mark)
            kind, data, mark = "message", "", ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data = f"{data}\n{value}" if data else value
        elif name == "id":
            mark = value
