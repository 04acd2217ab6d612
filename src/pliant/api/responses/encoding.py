"""How answers leave: JSON made in the handler's own thread, so that the event loop only passes bytes on."""

from typing import Any

from fastapi import Response
from pydantic import TypeAdapter

from pliant.api.models import answer_type

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def encode(content: Any) -> bytes:
    return _JSON.dump_json(content)


def answer(content: Any, status: int = 200) -> Response:
    return Response(encode(content), status, media_type="application/json")


def empty() -> Response:
    return Response(status_code=204)


def answers(status: int, kind: Any) -> dict[str, Any]:
    """Arguments of a route that tell OpenAPI what it answers: a type of pliant.wire, or a list of it."""
    return {
        "status_code": status,
        "responses": {status: {"model": answer_type(kind)}},
        "response_model": None,
    }
