"""Checks that an answer has its type on the wire: its keys and values, nothing missing and nothing more."""

from typing import Any

from pydantic import TypeAdapter

from pliant.api.schemas.models import answer_type


def conform(kind: Any, answer: Any) -> Any:
    """The answer with its keys as attributes; raises ValidationError."""
    return TypeAdapter(answer_type(kind)).validate_python(answer, strict=True)
