"""Calls each line of the route table in order; each answer has the members that the line names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema_rs import Draft202012Validator

from pliant.api.responses.times import stamp
from pliant.model.identity import Provider
from tests.api.conftest import Api
from tests.api.described import not_allowed, operation_of, with_references
from tests.api.published import ANSWERED, calls_of, is_moment, matches, misfits, read, reasons
from tests.api.stage import CLUSTER, IMAGE, TOKEN, stage

TABLE = Path(__file__).with_name("route_table.txt")
MISSING = (404, 405)
CALLS = read(TABLE.with_name("published.txt"))
FORMATS = {"date-time": is_moment}
KNOWN = reasons(TABLE.with_name("differences.txt"))


def lines() -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(TABLE.read_text("utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            yield number, [cell.strip() for cell in line.split("|")]


def members(found: Any, path: str) -> list[Any]:
    """The values at a path; raises LookupError if a member on the path is missing."""
    head, _, rest = path.partition(".")
    name, entries = head.removesuffix("[]"), head.endswith("[]")
    if name:
        found = found[name]
    if entries:
        if not found:
            raise LookupError(f"{head} is empty")
        return [it for entry in found for it in (members(entry, rest) if rest else [entry])]
    return members(found, rest) if rest else [found]


KINDS = {"string": str, "integer": int, "number": int | float, "boolean": bool, "object": dict, "array": list}


def fits(value: Any, kind: str) -> bool:
    """True if a value is of a JSON type; `string?` may also be null."""
    if value is None:
        return kind.endswith("?")
    return isinstance(value, KINDS[kind.rstrip("?")]) and (kind == "boolean" or not isinstance(value, bool))


def picked(found: Any, path: str) -> str:
    for part in path.split("."):
        found = found[int(part) if part.isdigit() else part]
    return str(found)


def filled(text: str, known: dict[str, str]) -> str:
    for name in sorted(known, key=len, reverse=True):
        text = text.replace(f"${name}", known[name])
    return text


def misfit(http: TestClient, method: str, path: str, status: int, told: Any) -> str:
    """How an answer differs from our description, or from the published one without a known reason; or ""."""
    path = path.partition("?")[0]
    described = http.app.openapi()  # type: ignore[attr-defined]
    answered = operation_of(described, method, path)["responses"][str(status)]
    if "content" in answered:
        whole = with_references(described, answered["content"]["application/json"]["schema"])
        checker = Draft202012Validator(whole, formats=FORMATS, validate_formats=True)
        if error := next(checker.iter_errors(told), None):
            return f"the description does not allow what is answered: {error.message[:300]}"
    found = [it for call in calls_of(CALLS, method, path, ANSWERED) for it in misfits(call, told)]
    return next((it for it in found if not any(matches(pattern, it) for pattern in KNOWN)), "")


def wrong(http: TestClient, cells: list[str], known: dict[str, str]) -> str:
    """How the call differs from the line; "" if it does not."""
    _, call, state, body, *rest = [*cells, "", ""]
    method, path = filled(call, known).split(" ", 1)
    sent: dict[str, Any] = {}
    content = filled(body, known)
    if state == "missing" and not rest:
        return "say why it is missing"
    if state in ("missing", "removed"):
        answer = http.request(method, path, json={})
        if state == "missing":
            return "" if answer.status_code in MISSING else f"it is served: {answer.status_code}"
        named = body in answer.json()["details"]
        return "" if answer.status_code == 404 and named else answer.text
    if content.startswith("form:"):
        sent = {"content": content[5:], "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    elif content[:1] in ("{", "["):
        sent = {"content": content, "headers": {"Content-Type": "application/json"}}
        described = http.app.openapi()  # type: ignore[attr-defined]
        spelled = path.endswith("/token")  # case does not matter there, which no schema can express
        if (
            state[0] == "2"
            and not spelled
            and (unsaid := not_allowed(described, method, path, json.loads(content)))
        ):
            return f"the description does not allow what is sent: {unsaid}"
    answer = http.request(method, path, **sent)
    if str(answer.status_code) != state:
        return f"{answer.status_code}: {answer.text[:300]}"
    if body in ("html", "csv"):
        return "" if body in answer.headers["content-type"] else answer.headers["content-type"]
    told = answer.json() if answer.content else None
    if answer.is_success and (untold := misfit(http, method, path, answer.status_code, told)):
        return untold
    if not rest[0]:
        return ""
    for entry in rest[0].split():
        member, _, kind = entry.partition(":")
        try:
            found = members(told, member.removeprefix("-"))
            if member.startswith("-"):
                return f"{member[1:]} is there now: take the minus away"
        except (LookupError, TypeError) as error:
            if member.startswith("-"):
                continue
            return f"{member} is not there: {error}"
        if kind and (others := [it for it in found if fits(it, kind.rstrip("!")) is kind.endswith("!")]):
            return f"{member} is {'a' if kind.endswith('!') else 'no'} {kind}: {others[0]!r}"
    if rest[1]:
        name, _, where = rest[1].partition("=")
        known[name] = picked(told, where)
    return ""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    owner, folder = {"Authorization": f"Bearer {TOKEN}"}, tmp_path_factory.mktemp("table")
    lab = Provider(
        "Lab",
        "https://login.example.org",
        "pliant",
        "/nowhere",
        "https://gpu.example.org",
        allowed=("users",),
        uid="uid_number",
    )
    with stage(folder) as made, TestClient(made.app(provider=lab), headers=owner) as http:
        yield Api(made, http)


def test_every_route_of_the_table(table: Api) -> None:
    runs = table.submit("runs")["workloadId"]
    table.running(runs)
    table.stage.service.measure()
    now = table.stage.clock.now()
    start, end = stamp(now - 60_000), stamp(now + 60_000)
    known = {
        "TOKEN": TOKEN,
        "CLUSTER": CLUSTER,
        "IMAGE": IMAGE,
        "RUNS": runs,
        "START": start,
        "END": end,
        "WHEN": f"start={start}&end={end}",
    }
    found = {}
    for number, cells in lines():
        if said := wrong(table.http, cells, known):
            found[f"line {number}: {cells[1]}"] = said
        elif cells[1].endswith("/suspend"):
            table.stopped(filled(cells[1], known).split("/")[-2])
    assert not found, json.dumps(found, indent=1)


def test_what_is_missing_is_counted() -> None:
    """A change that serves one of them must change its line and this number."""
    missing = [cells[1] for _, cells in lines() if cells[2] == "missing"]
    assert not missing


def test_a_line_that_is_wrong_is_found(table: Api) -> None:
    for line in (
        "1 | GET /api/v1/workloads | 201",
        "1 | GET /api/v1/org-unit/projects | 200 | | projects[].nothing",
        "1 | GET /api/v1/workloads | missing | it is not there",
        "1 | GET /api/v1/asset/registries | 200 | | entries[]",
        "1 | GET /api/v1/apps | removed | /api/v1/nodes",
        "1 | GET /api/v1/org-unit/projects | 200 | | projects[].name:integer",
        "1 | GET /api/v1/org-unit/projects | 200 | | projects[].enforceRunaiScheduler:integer",
        "1 | GET /api/v1/workloads/count | 200 | | count:boolean",
        "1 | GET /api/v1/workloads/count | 200 | | count:integer!",
    ):
        assert wrong(table.http, [cell.strip() for cell in line.split("|")], {}) != "", line
