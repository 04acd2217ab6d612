"""Looks up one request in the description of the API."""

import json
import re
from typing import Any

from jsonschema_rs import Draft202012Validator


def operation_of(described: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """The operation whose path matches with the fewest parameters."""
    path = path.partition("?")[0]
    fitting = [
        (pattern.count("{"), item[method.lower()])
        for pattern, item in described["paths"].items()
        if method.lower() in item and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path)
    ]
    found: dict[str, Any] = min(fitting, key=lambda it: it[0])[1]
    return found


def with_references(described: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with only the schemas that it refers to: compiling all of them takes 30 ms."""
    known, found, left = described["components"]["schemas"], {}, [schema]
    while left:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(left.pop())):
            if name not in found:
                found[name] = known[name]
                left.append(known[name])
    return {"components": {"schemas": found}, **schema}


def not_allowed(described: dict[str, Any], method: str, path: str, body: Any) -> str:
    """The first violation of the schemas in a body; "" if there is none."""
    content = operation_of(described, method, path)["requestBody"]["content"]
    whole = with_references(described, content["application/json"]["schema"])
    errors = [it.message[:300] for it in Draft202012Validator(whole).iter_errors(body)]
    return errors[0] if errors else ""
