"""The page at /api/docs: the OpenAPI description as plain HTML, without scripts or files from other sites."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from pliant.wire.server import Problem

Schema = Mapping[str, Any]

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "code,h3{font-family:ui-monospace,monospace}table{border-collapse:collapse;margin:.5rem 0}"
    "td,th{border:1px solid #bbb;padding:.15rem .5rem;text-align:left;vertical-align:top}"
)
DEPTH = 4
"""Levels of a body's fields that are shown."""


def reference_page(described: Mapping[str, Any]) -> str:
    """Every operation under its tags, with the fields that it takes and answers."""
    tags: dict[str, list[str]] = {}
    for path, item in described["paths"].items():
        for method, operation in item.items():
            for tag in operation.get("tags", ("other",)):
                tags.setdefault(tag, []).append(_operation(described, tag, path, method, operation))
    listed = " · ".join(f'<a href="#tag/{_anchor(tag)}">{escape(tag)}</a>' for tag in tags)
    parts = [
        f'<h2 id="tag/{_anchor(tag)}">{escape(tag)}</h2>{"".join(operations)}'
        for tag, operations in tags.items()
    ]
    info = described["info"]
    about = "".join(
        f"<tr><td><code>{name}</code></td><td>{escape(str(kind))}</td></tr>"
        for name, kind in Problem.__annotations__.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])} API</title>'
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} API {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])} The same as data: <code>GET /openapi.json</code>. Every request "
        "but those marked open carries <code>Authorization: Bearer &lt;token&gt;</code>; a token comes from "
        "<code>POST /api/v1/token</code>.</p>"
        f"<p>Every refusal is <code>application/problem+json</code> with:</p><table>{about}</table>"
        f"<nav>{listed}</nav>{''.join(parts)}</html>"
    )


def _anchor(text: str) -> str:
    return escape(text.title().replace(" ", "-"))


def _operation(described: Schema, tag: str, path: str, method: str, operation: Mapping[str, Any]) -> str:
    name = escape(operation.get("operationId", ""))
    opened = "" if "security" in operation else " <em>open</em>"
    text = escape(operation.get("description") or operation.get("summary", ""))
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}"
        f"{', required' if each.get('required') else ''}</td><td>{_kind(each.get('schema', {}))}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in operation.get("parameters", ())
    )
    body = _content(described, operation.get("requestBody", {}), "Body")
    answers = "".join(
        _content(described, answer, f"Answer {status}")
        for status, answer in operation.get("responses", {}).items()
        if status.startswith("2")
    )
    return (
        f'<section id="tag/{_anchor(tag)}/operation/{name}"><h3>{method.upper()} {escape(path)}{opened}</h3>'
        f"<p>{text}</p>{f'<table>{rows}</table>' if rows else ''}{body}{answers}</section>"
    )


def _content(described: Schema, holder: Mapping[str, Any], title: str) -> str:
    for media, entry in holder.get("content", {}).items():
        rows = "".join(
            f"<tr><td><code>{escape(path)}</code></td><td>{kind}</td></tr>"
            for path, kind in _fields(described, entry.get("schema", {}), "", DEPTH)
        )
        summary = f"<summary>{title}: <code>{escape(media)}</code></summary>"
        return f"<details>{summary}<table>{rows}</table></details>"
    return ""


def _fields(described: Schema, schema: Schema, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """(path, kind) of each field, as deep as is shown."""
    schema = _resolved(described, schema)
    if depth == 0:
        return
    if "items" in schema:
        yield from _fields(described, schema["items"], f"{path}[]", depth)
    for name, inner in schema.get("properties", {}).items():
        whole = _resolved(described, inner)
        must = " (required)" if name in schema.get("required", ()) else ""
        at = f"{path}.{name}" if path else name
        yield at, _kind(whole) + must
        yield from _fields(described, whole, at, depth - 1)


def _resolved(described: Schema, schema: Schema) -> Schema:
    """The schema that a reference names; of several choices the first that is not null."""
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            return _resolved(described, choice)
    if "$ref" in schema:
        found: Schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    if "const" in schema:
        return escape(str(schema["const"]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(choice) for choice in schema["anyOf"]))
    if "$ref" in schema:
        return escape(schema["$ref"].rpartition("/")[2])
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f" {low if low is not None else ''}…{high if high is not None else ''}"
    return escape(str(schema.get("type", "anything"))) + (bounds if (low, high) != (None, None) else "")
