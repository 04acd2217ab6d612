"""Answers the question that a Kubernetes API server asks before it creates a pod.

The API server has no account here and learns only what the pod needs.
"""

import json
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/kubernetes/pods"
MOST = 3 * 2**20
"""Largest body of a question, in bytes."""


class Admission:
    """Passes requests to `app`, except questions about pods, which `admit` answers.

    `admit` raises KeyError, TypeError, AttributeError or ValueError for a body that is no such question.
    """

    def __init__(self, app: ASGIApp, admit: Callable[[Any], Any]) -> None:
        self._app, self._admit = app, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        status: int = 405
        said: Any = {}
        if scope["method"] == "POST":
            status, said = self._answer(await _body(receive))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})

    def _answer(self, body: bytes | None) -> tuple[int, Any]:
        if body is None:
            return 413, {}
        try:
            return 200, self._admit(json.loads(body))
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            return 400, {"message": "This is no AdmissionReview of a pod."}


async def _body(receive: Receive) -> bytes | None:
    """The body; None if it is too long, b'' if the client has gone."""
    parts: list[bytes] = []
    more, size = True, 0
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part = message.get("body", b"")
        size += len(part)
        if size <= MOST:
            parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts) if size <= MOST else None
