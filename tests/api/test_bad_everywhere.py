"""Bad input to every route of the description: the answer is a documented 4xx, and nothing changes.

Every route and every field gets a third of the bad values, in turn; `make test-long` sends all of them.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from pliant.model.ledger import PastUse
from pliant.model.machine import Node
from pliant.model.workload import Attempt, Task, Workload
from tests.api.ground import ENDLESS, OWNER, Ground
from tests.api.stage import Stage, stage

JSON = {"Content-Type": "application/json"}
HUGE = b'{"name": "' + b"x" * (10 << 20) + b'"}'
SQL = "'; DROP TABLE workloads; -- $(reboot) `reboot` \"&&|;"
DATES = ("2026-02-30T00:00:00Z", "99999-01-01T00:00:00Z", "0000-00-00T00:00:00Z", "2026-01-01T25:61:00Z")
PATHS = ["%00", "a%E2%80%AEb", "%ED%A0%80", "%27%3B%20DROP%20TABLE%20workloads%3B--", "%24%28reboot%29"]
TEXTS = ("\x00", "a\u202eb", "\ud800", SQL)
NAN = float("nan")
NUMBERS = (-1, 10**30, NAN, "two")
ALWAYS = ("\ud800", NAN, "two", 10**30, *DATES)
"""Values that no field of that kind accepts."""

NAMES = {"name", "email", "projectName", "departmentName", "labelKey", "user", "nodePool", "roleName"}
"""Fields that hold names: a name contains neither NUL nor a character that changes text direction."""

DATE = re.compile(r"\d{4}-\d\d-\d\dT")


def mutated(value: Any, key: str = "") -> Iterator[tuple[Any, bool]]:
    """Copies with one part made bad, and whether each has to be refused."""
    if isinstance(value, dict):
        for name, part in value.items():
            for bad, refused in mutated(part, name):
                yield {**value, name: bad}, refused
    elif isinstance(value, list):
        for at, part in enumerate(value):
            for bad, refused in mutated(part, key):
                yield [*value[:at], bad, *value[at + 1 :]], refused
    elif not isinstance(value, bool):
        bads: tuple[Any, ...] = TEXTS if isinstance(value, str) else NUMBERS
        if isinstance(value, str) and DATE.match(value):
            bads += DATES
        for bad in bads if value is not None else ():
            always = any(bad is it for it in ALWAYS)
            yield bad, always or (key in NAMES and isinstance(bad, str) and bad in ("\x00", "a\u202eb"))


def kept(on: Stage) -> Any:
    """All that the store has, without what changes as time passes."""
    saved = on.store.load()
    still = (Workload, Task, Attempt, Node, PastUse)
    rows = sorted(repr(row) for row in saved.rows if not isinstance(row, still))
    wanted = sorted((row.id, row.name, row.desired, row.priority) for row in saved.of(Workload))
    nodes = sorted((row.name, row.draining, row.labels, row.taints) for row in saved.of(Node))
    return rows, wanted, nodes


class Kept:
    """Caches `kept`: computes it again only when a table other than the audit log, which records refusals,
    has changed."""

    def __init__(self, on: Stage) -> None:
        self._on = on
        self._file = sqlite3.connect(f"file:{on.path}?mode=ro", uri=True)
        known = self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self._tables = [name for (name,) in known if name != "audit"]
        assert {"workloads", "projects", "settings"} < set(self._tables)
        self._rows: Any = None
        self._told: Any = None

    def now(self) -> Any:
        rows = [self._file.execute(f"SELECT * FROM {table}").fetchall() for table in self._tables]
        if rows != self._rows:
            self._rows, self._told = rows, kept(self._on)
        return self._told

    def close(self) -> None:
        self._file.close()


class Everywhere:
    """Every operation of the description that needs a token, with parameters that exist."""

    def __init__(self, made: Stage) -> None:
        self.ground = Ground(made)
        self.kept = Kept(made)
        self.http = TestClient(self.ground.app, headers=OWNER)
        self.wrong: list[str] = []
        self.count = 0
        self._before: Any = None  # what was kept after the last call; None: unknown
        self.operations = [
            (method, path, operation)
            for path, item in self.ground.app.openapi()["paths"].items()
            for method, operation in item.items()
            if "security" in operation and path != ENDLESS
        ]

    def at(self, path: str) -> str:
        self._before = None  # a workload may be made for it
        known = {"kind": "trainings", "key": "default", **self.ground.real(path)}
        return re.sub(r"\{(\w+)\}", lambda found: str(known.get(found[1], "x")), path)

    def send(
        self, method: str, at: str, operation: Any, content: str | bytes, refused: bool, wanted: int = 0
    ) -> Response:
        self.count += 1
        before = self._before or self.kept.now()
        answer: Response = self.http.request(method, at, content=content, headers=JSON)
        self._before = self.kept.now() if answer.status_code >= 400 else None
        shown = f"{method} {at} {content[:200]!r}: {answer.status_code}"
        if str(answer.status_code) not in operation["responses"] or answer.status_code >= 500:
            self.wrong.append(f"{shown} {answer.text[:200]}")
        elif wanted and answer.status_code not in (
            wanted,
            403,
            404,
        ):  # no permission, or the workload has ended
            self.wrong.append(f"{shown}, not {wanted}")
        elif refused and not 400 <= answer.status_code < 500:
            self.wrong.append(f"{shown}: taken")
        elif answer.status_code >= 400 and self._before != before:
            self.wrong.append(f"{shown}: refused, and yet something is changed")
        return answer


@pytest.fixture
def everywhere(tmp_path: Path) -> Iterator[Everywhere]:
    with stage(tmp_path) as made:
        found = Everywhere(made)
        with found.http:
            yield found
        found.kept.close()
        assert not found.wrong, "\n".join(found.wrong)


def test_what_is_changed_is_noticed(tmp_path: Path) -> None:
    with stage(tmp_path) as made, closing(Kept(made)) as found, TestClient(made.app(), headers=OWNER) as http:
        before = found.now()
        assert http.post("/api/v1/org-unit/projects", json={"colour": "red"}).status_code == 400
        assert found.now() == before, "what was refused has changed nothing"
        assert http.post("/api/v1/org-unit/departments", json={"name": "new"}).status_code < 300
        assert found.now() != before and found.now() == kept(made)


def body_of(operation: Any) -> Any:
    return operation.get("requestBody", {}).get("content", {}).get("application/json")


def closed(schema: Any, whole: Any) -> bool:
    """True if an object of this schema may have no other members."""
    while "$ref" in schema:
        schema = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema.get("type") == "object" and schema.get("additionalProperties") is False


def part(of: list[Any], turn: int, whole: bool) -> list[Any]:
    """All, or every third but at least one; the next `turn` gets others."""
    return of if whole else of[turn % 3 :: 3] or of[:1]


def sweep(test: Any) -> Any:
    """Runs a test twice: with a third of the values for each turn, and with all."""
    whole = [pytest.param(False, id="a third"), pytest.param(True, id="all", marks=pytest.mark.long)]
    return pytest.mark.slow(pytest.mark.timeout(900)(pytest.mark.parametrize("whole", whole)(test)))


@sweep
def test_each_field_of_each_body(everywhere: Everywhere, whole: bool) -> None:
    for turn, (method, path, operation) in enumerate(everywhere.operations):
        if (body := body_of(operation)) is not None:
            at = everywhere.at(path)
            for sent, refused in part([*mutated(body["example"])], turn, whole):
                everywhere.send(method, at, operation, json.dumps(sent), refused)
    assert everywhere.count > (800 if whole else 270)


@sweep
def test_each_body_as_a_whole(everywhere: Everywhere, whole: bool) -> None:
    described = everywhere.ground.app.openapi()
    nearest = 0
    for turn, (method, path, operation) in enumerate(everywhere.operations):
        if (body := body_of(operation)) is None:
            continue
        at, example = everywhere.at(path), body["example"]
        other: Any = [] if isinstance(example, dict) else {}
        bad = [
            (b'{"a":' * 50_000, 400),
            (b"[" * 50_000, 400),
            (HUGE, 413),
            (b'{"name": "\xff\xfe"}', 400),
            (json.dumps("text"), 400),
            (json.dumps(7), 400),
            (json.dumps(other), 400),
        ]
        for content, status in part(bad, turn, whole):
            everywhere.send(method, at, operation, content, True, status)
        if isinstance(example, dict) and example and closed(body["schema"], described):
            known = next(iter(example))
            sent = json.dumps({**example, f"{known}x": 1})
            answer = everywhere.send(method, at, operation, sent, True, 400)
            if answer.status_code == 400:
                nearest += 1
                assert f"did you mean {known}?" in answer.json()["message"], (method, path, answer.text)
    assert nearest > 50


def is_list(operation: Any) -> bool:
    return {"offset", "filterBy"} <= {it["name"] for it in operation.get("parameters", ())}


PARAMETERS: dict[str, Callable[[str, set[str]], bool]] = {
    "filterBy=colour==red": lambda method, names: "filterBy" in names,
    "filterBy=nonsense": lambda method, names: "filterBy" in names,
    "sortBy=colour": lambda method, names: "sortBy" in names,
    "offset=-1": lambda method, names: "offset" in names,
    f"offset={10**30}": lambda method, names: "offset" in names,
    "offset=NaN": lambda method, names: "offset" in names,
    f"limit={10**30}": lambda method, names: "limit" in names,
    "dryRun=perhaps": lambda method, names: method != "get",
    "colour=red": lambda method, names: True,
}
"""Query -> whether a route with that method and these parameters has to refuse it."""


@sweep
def test_parameters_of_every_route(everywhere: Everywhere, whole: bool) -> None:
    for turn, (method, path, operation) in enumerate(everywhere.operations):
        names = {it["name"] for it in operation.get("parameters", ())}
        needed = [it for it in operation.get("parameters", ()) if it["in"] == "query" and it["required"]]
        first = "&".join(f"{it['name']}={it['example']}" for it in needed)
        at, body = everywhere.at(path), body_of(operation)
        sent = json.dumps(body["example"]) if body is not None else ""
        bad = [f"{first}&{query}" for query, refused in PARAMETERS.items() if refused(method, names)]
        if method != "get" and "dryRun" not in names:
            bad.append(f"{first}&dryRun=true")
        for it in needed:
            if it["name"] in ("start", "end"):
                named = f"{it['name']}={it['example']}"
                bad += [first.replace(named, f"{it['name']}={date}") for date in DATES]
        for query in part(bad, turn, whole):
            everywhere.send(method, f"{at}?{query}", operation, sent, True, 400)
        if method == "get" and is_list(operation):
            answer = everywhere.http.get(f"{at}?{first}&offset={10**9}")
            assert answer.status_code == 200, (path, answer.text)
            told = answer.json()
            entries = told if isinstance(told, list) else [it for it in told.values() if isinstance(it, list)]
            assert not any(entries), (path, told)
    assert everywhere.count > (500 if whole else 170)


@sweep
def test_paths_to_what_cannot_be(everywhere: Everywhere, whole: bool) -> None:
    for turn, (method, path, operation) in enumerate(everywhere.operations):
        if "{" in path and "/exec/{session}" not in path:
            body = body_of(operation)
            sent = json.dumps(body["example"]) if body is not None else ""
            for bad in part(PATHS, turn, whole):
                at = re.sub(r"\{kind\}", "trainings", path)
                everywhere.send(method, re.sub(r"\{\w+\}", bad, at), operation, sent, "{" in at)
    assert everywhere.count > (300 if whole else 100)
