"""What the API says of itself: OpenAPI with each refusal by its status, as data and as a page."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from pliant.api import errors
from pliant.api.context import DRY_RUN, rehearsed
from pliant.api.examples import illustrate
from pliant.api.guard import flat
from pliant.api.models import answer_type
from pliant.api.repeats import BY_THEMSELVES, takes_key
from pliant.api.responses.encoding import ANSWERED, SCHEMA
from pliant.api.responses.reference import reference_page
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


class Api(FastAPI):
    """An application with a description of its own."""

    _page = ""

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
            for route in flat(self.routes)
            if isinstance(route, APIRoute) and rehearsed(route)
            for method in route.methods or ()
        }
        content = {errors.MEDIA_TYPE: {"schema": _named(Problem)}}
        for path, item in schema["paths"].items():
            for method, operation in item.items():
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
        illustrate(schema)
        return schema

    def reference(self) -> HTMLResponse:
        """The description as a page, for anybody: it tells nothing that is not in the documentation."""
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


def refusals(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(status, meaning) of what an operation may answer instead."""
    writes = method != "get"
    yield "400", "The request is invalid; `fields` names the fields"
    if "security" in operation or path.endswith(("/token", "/proof")):
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
