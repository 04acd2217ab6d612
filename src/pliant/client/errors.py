"""The errors between a client and its server. Each message is a sentence to show to the user."""

import json
from collections.abc import Mapping
from typing import Any


class PliantError(Exception):
    """The server answered with an error that has no class of its own, or a local operation failed.

    `message` says what is wrong; `details` says where, or what to do (may be empty); `reason` is the server's
    stable code; `status` is the HTTP status, 0 if there was none.
    """

    def __init__(self, message: str, details: str = "", *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.status = status
        self.reason = reason


class BadRequest(PliantError):
    """The request itself is wrong; nothing was changed."""


class Unauthorized(PliantError):
    """The token is missing or wrong, or lacks the permission."""


class NotFound(PliantError):
    """There is no such object."""


class Conflict(PliantError):
    """The name exists, or the object is not in the state that the request needs."""


class Refused(PliantError):
    """Quota or policy forbids it."""


class Unreachable(PliantError):
    """No server answers there, or the connection was lost."""


_BY_STATUS: dict[int, type[PliantError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    422: BadRequest,
    503: Unreachable,
}
_REFUSALS = ("over-quota", "over-limit", "policy", "refused")


def from_answer(status: int, problem: Mapping[str, Any], where: str) -> PliantError:
    """The error for an answer with this status and body (wire.Problem)."""
    message = str(problem.get("message") or problem.get("detail") or problem.get("title") or "")
    reason = str(problem.get("reason") or "")
    kind = Refused if reason.startswith(_REFUSALS) else _BY_STATUS.get(status, PliantError)
    if not message:
        message = f"The server answered {status} to {where}"
    details = problem.get("details")
    return kind(message, details if isinstance(details, str) else "", status=status, reason=reason)


def decoded(status: int, payload: bytes, where: str) -> Any:
    """The JSON value of an answer, None if it is empty. Raises PliantError for any other answer."""
    try:
        value = json.loads(payload) if payload else None
    except ValueError as error:
        if status < 300:
            raise PliantError(
                f"The answer to {where} is not JSON: it is not from a Pliant server.",
                "Check the address, and whether a proxy answers in its place: PLIANT_SERVER, --server.",
                status=status,
            ) from error
        value = {"message": payload.decode("utf-8", "replace")[:200]}
    if status >= 300:
        raise from_answer(status, value if isinstance(value, dict) else {}, where)
    return value
