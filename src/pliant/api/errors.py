"""Renders every error as application/problem+json: what is wrong, where, what to do. Never a traceback."""

import http
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.api.paths_elsewhere import missing_path, set_elsewhere
from pliant.api.responses.encoding import encode
from pliant.control.errors import (
    BadRequest,
    Conflict,
    NameTaken,
    NotFound,
    Outdated,
    OverLimit,
    OverQuota,
    Refused,
    Unavailable,
)
from pliant.control.ports import StaleEpoch
from pliant.control.submit.policy import Incompliant, Issue
from pliant.model.asset import Asset
from pliant.store.errors import StoreError
from pliant.wire.server import ComplianceIssue, FieldProblem, PolicyOf

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MOST_BODY = 2**20
"""Largest body of a request, in bytes."""

STATUS: dict[type[Refused], int] = {
    BadRequest: 400,
    NotFound: 404,
    NameTaken: 409,
    Outdated: 412,
    Conflict: 409,
    OverQuota: 403,
    OverLimit: 429,
    Unavailable: 503,
}
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
)
"""Headers of every answer that does not set them itself. None allows pages of other origins to read it."""

MOST_TOLD = 50
"""Most invalid fields that one answer lists."""

_REASONS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    503: "unavailable",
}


class Unauthorized(Refused):
    code = "unauthorized"


class Forbidden(Refused):
    code = "forbidden"


class NoAccount(Forbidden):
    """The caller has no account on this machine for its jobs to run as."""

    code = "no-account"


STATUS |= {Unauthorized: 401, Forbidden: 403}


class _TooLarge(Exception):
    pass


def problem(
    status: int,
    message: str,
    details: str = "",
    reason: str = "",
    headers: Mapping[str, str] | None = None,
    fields: Sequence[FieldProblem] = (),
    issues: Sequence[ComplianceIssue] = (),
) -> Response:
    reason = reason or _REASONS.get(status, "internal" if status >= 500 else "refused")
    content: dict[str, Any] = {
        "type": f"urn:pliant:problem:{reason}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": f"{message} {details}".strip(),
        "code": status,
        "message": message,
        "details": details,
        "reason": reason,
        "fields": list(fields),
    }
    if issues:
        content["complianceIssues"] = list(issues)
    return Response(encode(content), status, dict(headers or {}), media_type=MEDIA_TYPE)


def status_of_refusal(error: Refused) -> int:
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400)


def refusal(error: Refused) -> Response:
    if isinstance(error, Unauthorized):
        return problem(
            401, error.message, error.hint, error.code, {"WWW-Authenticate": "Bearer"}, of_field(error)
        )
    if isinstance(error, Incompliant):
        told: list[FieldProblem] = [{"field": it.field, "message": it.details} for it in error.issues]
        issues = [issue_item(it) for it in error.issues]
        return problem(400, error.message, error.hint, error.code, fields=told, issues=issues)
    status = status_of_refusal(error)
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return problem(status, error.message, error.hint, error.code, headers, of_field(error))


def issue_item(issue: Issue) -> ComplianceIssue:
    return {
        "field": issue.field,
        "details": issue.details,
        "rule": issue.rule,
        "policy": policy_of(issue.policy),
    }


def policy_of(row: Asset) -> PolicyOf:
    return {"id": row.id, "scope": row.scope.value, "scopeId": row.scope_id or None}


def of_field(error: Refused) -> list[FieldProblem]:
    return [{"field": error.field, "message": str(error)}] if error.field else []


# -- bodies and parameters that are not as they should be -------------------------------------------

_MUST = {
    "missing": "must be given",
    "string_type": "must be text",
    "string_unicode": "must be valid Unicode text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "contains an invalid character",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}


_SECRET = re.compile(r"(?i)password|secret|token")
"""The value of a field with such a name is not repeated in an error."""


CHANGES = "changes"
"""The one list in a body whose entries are of several kinds."""


def _path(location: Sequence[int | str]) -> str:
    """('body', 'spec', 'nodePools', 0) -> 'spec.nodePools[0]'."""
    path, parts = "", [*location[1:]]
    if parts[:1] == [CHANGES] and len(parts) > 2:
        del parts[2]  # the tag of the union
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _where(location: Sequence[int | str]) -> str:
    path = _path(location)
    if location and location[0] == "body":
        return path or "The body"
    return f"The {'header' if location and location[0] == 'header' else 'parameter'} {path}"


def sentence(error: Mapping[str, Any]) -> str:
    """One sentence for people: what is wrong with one field."""
    kind, location, context = error["type"], error["loc"], error.get("ctx") or {}
    if kind == "json_invalid":
        return f"The body is not JSON: {context.get('error', 'it cannot be read')}."
    where = _where(location)
    if location == ("body",) and isinstance(error.get("input"), bytes):
        return "The body is not taken for JSON: send the header Content-Type: application/json."
    if kind == "value_error":
        return f"{where}: {context['error']}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        kinds = "submit, end, add-nodes, drain, remove, fail, quota, limit, weight or priority"
        return f"{where}.kind must be {kinds}, not {str(context.get('tag', 'left out'))[:60]!r}."
    empty = kind == "string_too_short" and context.get("min_length") == 1
    must = "must not be empty" if empty else _MUST.get(kind)
    if must is None:
        return f"{where}: {error['msg']}."
    shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
    text = f"{where} {must.format(**shown)}"
    if kind == "missing" or _SECRET.search(where):
        return f"{text}."
    given = repr(error.get("input"))
    return f"{text}, not {given if len(given) <= 60 else given[:57] + '...'}."


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    more = f"{len(found) - 1} more fields are invalid." if len(found) > 1 else ""
    told: list[FieldProblem] = [
        {"field": path, "message": sentence(each)}
        for each in found[:MOST_TOLD]
        if each["type"] != "json_invalid" and (path := _path(each["loc"]))
    ]
    message = sentence(found[0]) if found else "The request cannot be read."
    return problem(400, message, more, fields=told)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code in (404, 405) and (missing := missing_path(request.method, request.url.path)):
        return problem(404, *missing)
    if error.status_code == 404:
        return problem(404, f"There is no route {request.url.path}.", "See /api/docs for all routes.")
    if error.status_code == 405:
        path = request.url.path
        hint = set_elsewhere(path) or f"Use {headers.get('Allow', '')}."
        return problem(405, f"{request.method} {request.url.path} is not possible.", hint, headers=headers)
    if error.status_code == 400:  # only __cause__ has the reason
        return problem(400, "The body cannot be read.", unreadable(error.__cause__))
    return problem(error.status_code, str(error.detail), headers=headers)


def unreadable(cause: BaseException | None) -> str:
    """Why a body could not be read as JSON."""
    if isinstance(cause, RecursionError):
        return "It is nested too deep."
    if isinstance(cause, UnicodeError):
        return "Send JSON in UTF-8."
    if isinstance(cause, ValueError):
        return "A number in it has too many digits." if "digits" in str(cause) else "Send JSON."
    return "Send JSON in UTF-8, and no encoding of it."


def _stale(request: Request, error: Exception) -> Response:
    return problem(503, "Another server leads now.", "Find it with: pliant status", "not-leading")


def _store(request: Request, error: Exception) -> Response:
    log.error("%s %s: %s", request.method, request.url.path, error)
    return problem(503, f"{str(error)[:1].upper()}{str(error)[1:]}.", headers={"Retry-After": "1"})


def _slow(request: Request, error: Exception) -> Response:
    log.error("%s %s: no answer in time", request.method, request.url.path)
    return problem(
        503,
        "The scheduler did not answer in time.",
        "It may still be carried out: check before you try again.",
        "timeout",
    )


def install(app: FastAPI) -> None:
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(StaleEpoch, _stale)
    app.add_exception_handler(StoreError, _store)
    app.add_exception_handler(TimeoutError, _slow)


class Guard:
    """The outermost middleware: limits bodies; turns an unexpected exception into a 500 and one log entry."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False
        taken = 0

        async def watched(message: Message) -> None:
            nonlocal began
            if taken <= MOST_BODY:  # else the application's answer to part of a body is not sent
                began = True
                await guarded(message)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name, value) for name, value in HEADERS if name not in said]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BODY:
                raise _TooLarge
            return message

        try:
            await self._app(scope, bounded, watched)
        except _TooLarge:
            pass  # answered below, also if the application has swallowed it
        except Exception:  # the last place where anything can be answered
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not began:
                failed = problem(500, "Internal server error.", "Collect the log: pliant debug bundle")
                await failed(scope, receive, guarded)
            return
        if taken > MOST_BODY:
            large = problem(413, f"The body is larger than {MOST_BODY >> 20} MiB.", "Send a smaller body.")
            await large(scope, receive, guarded)
