"""Encodes answers: the handler's own thread makes the JSON, so that the event loop only passes bytes on."""

from typing import Any, get_args, get_origin, is_typeddict

from fastapi import Response
from pydantic import TypeAdapter

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def encode(content: Any) -> bytes:
    return _JSON.dump_json(content)


def answer(content: Any, status: int = 200) -> Response:
    return Response(encode(content), status, media_type="application/json")


def empty() -> Response:
    return Response(status_code=204)


SCHEMA = "#/components/schemas/{model}"
"""Reference to a schema of that name in OpenAPI."""

ANSWERED: dict[str, type] = {}
"""Types of pliant.wire that routes answer, by name. OpenAPI makes their models when it is asked for."""


def answers(status: int, kind: Any, told: str = "Successful Response") -> dict[str, Any]:
    """Arguments of a route that tell OpenAPI what it answers: a type of pliant.wire, or a list of it."""
    return {"status_code": status, "responses": {status: described(kind, told)}, "response_model": None}


def or_csv(told: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a route that also answers CSV."""
    for one in told["responses"].values():
        one["content"]["text/csv"] = {"schema": {"type": "string"}}
    return told


def described(kind: Any, told: str) -> dict[str, Any]:
    """One answer in OpenAPI."""
    schema = _schema(kind)
    return {"description": told, "content": {"application/json": {"schema": schema}}}


def _schema(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is list:
        return {"type": "array", "items": _schema(get_args(kind)[0])}
    if is_typeddict(kind):
        ANSWERED[kind.__name__] = kind
        return {"$ref": SCHEMA.format(model=kind.__name__)}
    return TypeAdapter(kind).json_schema()
