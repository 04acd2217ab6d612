"""The API's description: OpenAPI with each refusal by its status, as data and as a page."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp

from pliant.api import errors
from pliant.api.context import DRY_RUN, rehearsed
from pliant.api.paths_elsewhere import KINDS
from pliant.api.repeats import BY_THEMSELVES, takes_key
from pliant.api.responses.encoding import ANSWERED, SCHEMA
from pliant.api.responses.reference import reference_page
from pliant.api.schemas.examples import illustrate
from pliant.api.schemas.models import answer_type
from pliant.api.straight import Straight
from pliant.wire.questions import DryRunDone
from pliant.wire.server import Problem

Described = dict[str, Any]

_DRY_RUN = {
    "name": DRY_RUN,
    "in": "query",
    "required": False,
    "schema": {"type": "boolean", "default": False},
    "description": "Change nothing; return what the scheduler would do.",
}


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"},
    "description": "The same key of the same caller gives the same answer again.",
}


_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "The server's token, or one from POST /api/v1/token.",
}


class Api(FastAPI):
    """An application that makes its own description."""

    open: frozenset[str] = frozenset()  # paths that need no token
    _page = ""

    def build_middleware_stack(self) -> ASGIApp:
        """Our own middleware only: the outermost one answers unexpected errors, and nothing is traced."""
        app: ASGIApp = Straight(AsyncExitStackMiddleware(self.router), self.routes)
        app = ExceptionMiddleware(app, handlers=self.exception_handlers)
        for kind, given, named in reversed(self.user_middleware):
            app = kind(app, *given, **named)
        return app

    def openapi(self) -> Described:
        if self.openapi_schema:
            return self.openapi_schema
        schema = super().openapi()
        schemas = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for kind in (Problem, DryRunDone, *ANSWERED.values()):
            made = TypeAdapter(answer_type(kind)).json_schema(ref_template=SCHEMA, mode="serialization")
            schemas |= made.pop("$defs", {}) | {kind.__name__: made}
        tried = {
            (route.path, method.lower())
            for route in self.routes
            if isinstance(route, APIRoute) and rehearsed(route)
            for method in route.methods or ()
        }
        content = {errors.MEDIA_TYPE: {"schema": _named(Problem)}}
        schema["components"]["securitySchemes"] = {"HTTPBearer": _BEARER}
        for path, item in schema["paths"].items():
            for method, operation in item.items():
                if path not in self.open:
                    operation["security"] = [{"HTTPBearer": []}]
                answers = operation["responses"]
                answers.pop("422", None)
                if (
                    method == "post"
                    and "security" in operation
                    and path not in BY_THEMSELVES
                    and takes_key(path)
                ):
                    operation.setdefault("parameters", []).append(_KEY)
                if (path, method) in tried:
                    _tell_of_dry_runs(operation)
                for status, meaning in refusals(path, method, operation):
                    answers.setdefault(status, {"description": meaning, "content": content})
        connect(schema)
        illustrate(schema)
        return schema

    def reference(self) -> HTMLResponse:
        """The description as a page. It is open: it contains nothing that is not in the documentation."""
        self._page = self._page or reference_page(self.openapi())
        return HTMLResponse(self._page)


def _named(kind: type) -> Described:
    return {"$ref": SCHEMA.format(model=kind.__name__)}


def _tell_of_dry_runs(operation: Described) -> None:
    operation.setdefault("parameters", []).append(_DRY_RUN)
    answers = operation["responses"]
    shown = _named(DryRunDone)
    if "200" in answers:
        shown = {"anyOf": [answers["200"]["content"]["application/json"]["schema"], shown]}
    answers["200"] = {
        "description": "With dryRun=true, what would happen to it",
        "content": {"application/json": {"schema": shown}},
    }


# -- links: from what is created or listed to the operations on it -----------------------------------

_IDENTITY = ("id", "meta/id", "uuid", "workloadId", "key", "name")
"""Members that identify a thing: the first that is present."""

_BY: Mapping[str, tuple[str, ...]] = {"name": ("name",), "kind": ("type",)}
"""The same by the name of the parameter."""

_ALSO = {
    **{f"/api/v1/workloads/{kind}": "/api/v1/workloads" for kind in KINDS},
    **{f"/api/v1/workload-templates/{kind}": "/api/v1/workload-templates" for kind in KINDS},
    "/api/v1/workloads/{identity}/exec": "/api/v1/exec",
    "/api/v1/workloads/{identity}/exec/port": "/api/v1/exec",
}
"""Things under the first path can also be reached under the second one."""


def connect(schema: Described) -> None:
    """Add OpenAPI links: the operations that take the identity that an answer contains."""
    paths, schemas = schema["paths"], schema["components"]["schemas"]
    for path, item in paths.items():
        for operation in (item[method] for method in ("post", "get") if method in item):
            answered = _made(operation["responses"])
            for root in [path, *([_ALSO[path]] if path in _ALSO else [])]:
                given = {name: f"$request.path.{name}" for name in re.findall(r"{(\w+)}", root)}
                for target, name in _beneath(paths, root):
                    kind = answered["content"]["application/json"]["schema"]
                    if pointer := _pointer(kind, schemas, _BY.get(name, _IDENTITY)):
                        told = {**given, name: f"$response.body#/{pointer}"}
                        link = {"operationId": target, "parameters": told}
                        answered.setdefault("links", {})[target] = link


def _made(answers: Described) -> Described:
    """The answer on success."""
    return next(answers[status] for status in ("201", "202", "200", "204") if status in answers)


def _pointer(told: Described, schemas: Described, names: Sequence[str]) -> str:
    """Pointer to the first of these members: in the answer, or in the first entry of a list; '' if none."""
    told = _whole(told, schemas)
    if told.get("type") == "array":
        inner = _pointer(told["items"], schemas, names)
        return f"0/{inner}" if inner else ""
    for path in names:
        found: Described | None = told
        for part in path.split("/"):
            found = _whole(found, schemas).get("properties", {}).get(part) if found is not None else None
        if found is not None:
            return path
    for name, member in told.get("properties", {}).items():
        if member.get("type") == "array" and (inner := _pointer(member, schemas, names)):
            return f"{name}/{inner}"
    return ""


def _whole(told: Described, schemas: Described) -> Described:
    """The schema that a reference names; of several choices the first."""
    while "$ref" in told or "anyOf" in told:
        told = told["anyOf"][0] if "anyOf" in told else schemas[told["$ref"].rpartition("/")[2]]
    return told


def _beneath(paths: Described, root: str) -> Iterator[tuple[str, str]]:
    """(operation id, parameter) of the operations on one thing below a path."""
    for path, item in paths.items():
        first, *rest = path.removeprefix(f"{root}/").split("/")
        if path.startswith(f"{root}/") and first.startswith("{") and not any("{" in part for part in rest):
            yield from ((operation["operationId"], first.strip("{}")) for operation in item.values())


def refusals(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(status, meaning) of the errors that an operation may answer."""
    writes = method != "get"
    yield "400", "The request is invalid; `fields` names the fields"
    if "security" in operation or path.endswith(("/token", "/proof")) or path.startswith("/api/v1/openid"):
        yield "401", "No token, or one that is not valid"
        yield "403", "A permission is missing, or a quota does not allow it"
        yield "404", "An object named in the request does not exist"
        yield "409", "The name exists, or the object's state does not allow it"
    if writes:
        yield "412", "If-Match failed: the object was changed meanwhile"
        yield "413", "The body is too large"
    yield "429", "Too many requests; Retry-After says when to try again"
    yield "500", "Internal error; the server log has the details"
    yield "503", "Temporarily unavailable"
