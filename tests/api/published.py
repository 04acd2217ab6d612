"""Reads the fields that another API publishes, and finds where our description differs from them."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

Described = dict[str, Any]

SENT, ANSWERED = ">", "<"


@dataclass(frozen=True, slots=True)
class Field:
    path: str  # `workloads[].phase`; `{}` is each value of an object
    kind: str  # a type of JSON, or `any`
    needed: bool = False
    null: bool = False
    words: frozenset[str] = frozenset()  # of an enumeration; empty if it is not one
    format: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """The fields that are sent or answered in one call."""

    operation: str  # `POST /api/v1/token`
    way: str
    fields: tuple[Field, ...]


# -- reading the list -----------------------------------------------------------------------------------


def read(path: Path) -> list[Call]:
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(" "):
            lines.append(line[1:])
        else:
            head, _, other = line.partition(" = ")
            lines = parts.setdefault(head.removesuffix(" :"), parts[other] if other else [])
    return [
        Call(head[:-2], head[-1], tuple(_fields(lines, parts, "")))
        for head, lines in parts.items()
        if head[-2:] in (" >", " <")
    ]


def _fields(lines: list[str], parts: dict[str, list[str]], above: str) -> Iterator[Field]:
    for at, line in enumerate(lines):
        if line.startswith(" "):
            continue
        line, _, other = line.partition(" = ")
        name, kind, *more = line.split(" ", 2)
        own = name.removesuffix("*")
        path = f"{above}{own}" if own in ("[]", "{}") or not above else f"{above}.{own}"
        said = more[0] if more else ""
        form = said.removeprefix("@") if said.startswith("@") else ""
        words = frozenset() if form or not said else frozenset(said.split("|"))
        yield Field(path, kind.removesuffix("?"), name.endswith("*"), kind.endswith("?"), words, form)
        below = parts[other] if other else _below(lines[at + 1 :])
        yield from _fields(below, parts, path)


def _below(lines: Iterable[str]) -> list[str]:
    found = []
    for line in lines:
        if not line.startswith(" "):
            break
        found.append(line[1:])
    return found


# -- comparing ------------------------------------------------------------------------------------------


class Ours:
    """Our own description."""

    def __init__(self, described: Described) -> None:
        self._schemas = described["components"]["schemas"]
        self._calls = {
            f"{method.upper()} {_unnamed(path)}": operation
            for path, item in described["paths"].items()
            for method, operation in item.items()
        }

    def differences(self, call: Call) -> Iterator[str]:
        """`OPERATION > FIELD: what differs`. Leaves out the fields below one that we do not have."""
        root = list(self._choices(self._schema(call)))
        lacking: list[str] = []
        for field in call.fields:
            if field.path.startswith(tuple(lacking)):
                continue
            found, needed = self._at(root, field.path)
            if not found or "any" in _kinds(found):
                lacking += [f"{field.path}{sign}" for sign in (".", "[", "{")]
            for said in _different(field, found, needed, call.way == SENT):
                yield f"{call.operation} {call.way} {field.path}: {said}"

    def _schema(self, call: Call) -> Described:
        operation = self._calls[_unnamed(call.operation)]
        if call.way == SENT:
            content = operation["requestBody"]["content"]
        else:
            answers = (answer for status, answer in operation["responses"].items() if status[0] == "2")
            content = next(answer["content"] for answer in answers if "content" in answer)
        schema: Described = next(iter(content.values()))["schema"]
        return schema

    def _choices(self, schema: Described) -> Iterator[Described]:
        """The schemas that a value may have, with references and anyOf resolved."""
        if "$ref" in schema:
            yield from self._choices(self._schemas[schema["$ref"].rpartition("/")[2]])
        elif "anyOf" in schema and "type" not in schema:
            for one in schema["anyOf"]:
                yield from self._choices(one)
        else:
            yield schema

    def _at(self, root: list[Described], path: str) -> tuple[list[Described], bool]:
        """(The schemas of that field, True if it is required); no schemas if we have no such field."""
        found, needed = root, False
        for part in re.findall(r"\[\]|\{\}|[^.\[\]{}]+", path):
            inner: list[Described] = []
            needed = part not in ("[]", "{}")
            for one in found:
                if part == "[]":
                    member = one.get("items")
                elif part == "{}":
                    member = one.get("additionalProperties")
                else:
                    member = one.get("properties", {}).get(part)
                    needed = needed and (member is None or part in one.get("required", ()))
                if isinstance(member, dict):
                    inner += self._choices(member)
            found = inner
        return found, needed


def _unnamed(text: str) -> str:
    return re.sub(r"\{\w+\}", "{}", text)


def calls_of(calls: Iterable[Call], method: str, path: str, way: str) -> list[Call]:
    """The calls whose operation matches this method and path."""
    return [
        call
        for call in calls
        if call.way == way
        and re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(call.operation)), f"{method} {path}")
    ]


def _kinds(choices: Iterable[Described]) -> set[str]:
    kinds: set[str] = set()
    for one in choices:
        kind = one.get("type", "string" if "enum" in one or "const" in one else "any")
        kinds |= {kind} if isinstance(kind, str) else set(kind)
    return kinds


def _words(choices: Iterable[Described]) -> frozenset[str] | None:
    """The words of an enumeration; None if other values are allowed."""
    words: set[str] = set()
    for one in (it for it in choices if it.get("type") != "null"):
        if "enum" not in one and "const" not in one:
            return None
        words |= {it if isinstance(it, str) else json.dumps(it) for it in one.get("enum", [one.get("const")])}
    return frozenset(words)


def _different(field: Field, found: list[Described], needed: bool, sent: bool) -> Iterator[str]:
    """In a request we must accept all that they allow; in an answer we may send only what they declare."""
    if not found:
        yield "we have none"
        return
    kinds, words = _kinds(found), _words(found)
    own = kinds - {"null"}
    if "any" in kinds:
        if field.kind != "any":
            yield f"of any type, not {field.kind}"
        return
    wide = own | {"integer"} if "number" in own else own
    known = {field.kind, "integer"} if field.kind == "number" else {field.kind}
    if field.kind != "any" and not (known <= wide if sent else own <= known):
        yield f"{'|'.join(sorted(own))}, not {field.kind}"
    if sent and field.null and "null" not in kinds:
        yield "not null"
    if not sent and not field.null and field.kind != "any" and "null" in kinds:
        yield "may be null"
    if sent and words is not None and (not field.words or field.words - words):
        yield f"not {'|'.join(sorted(field.words - words)) or 'all'}"
    if not sent and field.words and (words is None or words - field.words):
        yield f"{'|'.join(sorted((words or frozenset()) - field.words)) or 'any word'}"
    if not sent and field.format == "date-time" and any("string" in _kinds([it]) for it in found):
        texts = [it for it in found if it.get("type") == "string"]
        if any(it.get("format") != "date-time" for it in texts):
            yield "no date-time"
    if sent and needed and not field.needed:
        yield "must be there"
    if not sent and field.needed and not needed and not field.path.endswith(("[]", "{}")):
        yield "may be left out"


# -- what was answered ------------------------------------------------------------------------------------


def misfits(call: Call, answered: Any) -> Iterator[str]:
    """The same differences, found in one actual answer."""
    for field in call.fields:
        for value in _values([answered], re.findall(r"\[\]|\{\}|[^.\[\]{}]+", field.path)):
            for said in _different(field, [_choice(value, field)], True, False):
                yield f"{call.operation} {call.way} {field.path}: {said}"


def _values(found: list[Any], parts: list[str]) -> list[Any]:
    for part in parts:
        if part == "[]":
            found = [entry for one in found if isinstance(one, list) for entry in one]
        elif part == "{}":
            found = [entry for one in found if isinstance(one, dict) for entry in one.values()]
        else:
            found = [one[part] for one in found if isinstance(one, dict) and part in one]
    return found


def _choice(value: Any, field: Field) -> Described:
    """The narrowest schema that a value fits."""
    if isinstance(value, str):
        shape = {"type": "string", "format": "date-time" if is_moment(value) else ""}
        return {**shape, "enum": [value]} if value in field.words else shape
    kinds: list[tuple[Any, str]] = [(bool, "boolean"), (int, "integer"), (float, "number"), (list, "array")]
    if value is None:
        return {"type": "null"}
    return {"type": next((name for kind, name in kinds if isinstance(value, kind)), "object")}


def is_moment(text: object) -> bool:
    try:
        return not isinstance(text, str) or datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


# -- which differences are known ----------------------------------------------------------------------------


def reasons(path: Path) -> dict[str, str]:
    """Pattern of known differences -> the reason for them."""
    found, reason = {}, ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("-- "):
            reason = line[3:]
        elif line and not line.startswith("#"):
            assert reason and line not in found, line
            found[line] = reason
    return found


def matches(pattern: str, told: str) -> bool:
    """`*` stands for anything, `?` for one character."""
    words = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(words, told) is not None
