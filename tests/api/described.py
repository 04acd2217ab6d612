"""What the description of the API says of one request."""

import re
from typing import Any

from jsonschema import Draft202012Validator


def operation_of(described: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """Of the path that fits it with the fewest parameters."""
    path = path.partition("?")[0]
    fitting = [
        (pattern.count("{"), item[method.lower()])
        for pattern, item in described["paths"].items()
        if method.lower() in item and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path)
    ]
    found: dict[str, Any] = min(fitting, key=lambda it: it[0])[1]
    return found


def not_allowed(described: dict[str, Any], method: str, path: str, body: Any) -> str:
    """What a body has that the schemas do not allow; empty if nothing."""
    content = operation_of(described, method, path)["requestBody"]["content"]
    whole = {"components": described["components"], **content["application/json"]["schema"]}
    errors = [it.message[:300] for it in Draft202012Validator(whole).iter_errors(body)]
    return errors[0] if errors else ""
