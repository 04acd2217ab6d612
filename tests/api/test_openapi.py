"""The description of the API: whole, and true for whatever somebody sends."""

import re
import resource
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qsl

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.stateful.state_machine import StepInput, StepOutput
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pliant.api.app import ROUTERS
from pliant.control.submit.submission import Submission
from pliant.model.workload import AttemptId, Kind, Launch
from tests.api.conftest import Api
from tests.api.described import not_allowed, operation_of
from tests.api.refusals import KNOWN, Known, unexplained
from tests.api.stage import IMAGE, TOKEN, Command, Stage, stage
from tests.house.seeds import seed_or


def refused_for_a_reason_that_no_schema_could_say(_: Any, response: Any, case: schemathesis.Case) -> None:
    """Everything that is sent is as the schemas allow."""
    if 400 <= response.status_code < 500 and (why := unexplained(response.status_code, response.json())):
        raise AssertionError(f"the schemas allow it, and it is refused: {why}")


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    refused_for_a_reason_that_no_schema_could_say,
]
OWNER = {"Authorization": f"Bearer {TOKEN}"}
ENDLESS = "/api/v1/watch"
EXAMPLES = 5
STEPS = 20
"""Calls of one scenario."""

SCENARIOS = 5
"""Of one seed."""

READ = 0.85
"""The part of the callers who send what the description shows; all others send whatever its schemas allow."""
PARTS = 2
"""Of all operations: a process for each."""

PARTS_OF_MANY = 4
"""Where each operation is called fifty times and more."""

LONGEST = 4096
"""Characters of a text that is drawn, at most."""

MINUTES = 20

PATIENCE = 240
"""Seconds for one call: nothing here is about how long it takes."""

MEMORY = 4 << 30
"""Bytes that the process of a part needs at most."""


def test_the_description_is_valid_and_whole(quiet: Api) -> None:
    described = quiet.get("/openapi.json")
    schemathesis.openapi.from_dict(described).validate()
    routes = {
        (route.path, method.lower())
        for router in ROUTERS
        for route in router.routes
        for method in route.methods
    }
    assert {(path, method) for path, item in described["paths"].items() for method in item} == routes
    for path, item in described["paths"].items():
        for method, operation in item.items():
            assert not {"422", "default"} & set(operation["responses"]), (method, path)
            refused = {status for status in operation["responses"] if status >= "4"}
            assert refused >= {"400", "500", "503"}, (method, path)
            for status in refused:
                content = operation["responses"][status]["content"]
                assert list(content) == ["application/problem+json"], (method, path, status)
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_every_route_is_served_as_it_is(quiet: Api) -> None:
    """FastAPI makes each route of an included router anew at the first request, half a second."""
    served = {id(route) for route in quiet.http.app.routes}  # type: ignore[attr-defined]
    assert {id(route) for router in ROUTERS for route in router.routes} <= served


def test_what_needs_a_token_says_so(quiet: Api) -> None:
    described = quiet.get("/openapi.json")
    free = {path for path, item in described["paths"].items() for op in item.values() if "security" not in op}
    assert free == {
        "/healthz",
        "/readyz",
        "/version",
        "/proof",
        "/metrics",
        "/api/v1/token",
        "/api/v2/token",
        "/auth/realms/{realm}/protocol/openid-connect/token",
        "/api/v1/openid",
        "/api/v1/openid/login",
        "/api/v1/openid/arrived",
        "/api/v1/openid/allow",
        "/api/v1/openid/token",
    }


def without_lengths(schema: Any) -> None:
    """Takes from patterned texts the lengths that nothing drawn reaches: one is up to a second to compile."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str) and schema.get("maxLength", 0) > LONGEST:
            del schema["maxLength"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            without_lengths(part)


class Ground:
    """A stage on which every path leads to something that exists, if it is asked to."""

    def __init__(self, on: Stage, thorough: bool = False) -> None:
        """`thorough`: values are also taken from the sources of all modules that are loaded by then, for
        which each value is tried at each field, and lengths that no value reaches are compiled into patterns.
        """
        self.on = on
        self.app = on.app(backup=on.asked.append)  # paths are made up: nothing may be written there
        self.schema = schemathesis.openapi.from_asgi("/openapi.json", self.app, headers=OWNER)
        self.schema.config.analysis.constants.enabled = thorough
        if not thorough:
            without_lengths(self.schema.raw_schema)
        self.plain = {path for path in self.schema.raw_schema["paths"] if "{" not in path}

    def real(self, path: str) -> dict[str, Any]:
        """Parameters of a path that exist."""
        if "/exec/{session}" in path:
            return {"session": self._session()}
        if "{identity}" in path:
            return {"identity": self._workload("workspaces" in path)}
        if "{workload}" in path:
            return {"workload": self._workload(False), "task": "task-0", "number": 1}
        return {"key": "default", "name": "node-0"}

    def _workload(self, workspace: bool) -> str:
        kind = Kind.WORKSPACE if workspace else Kind.TRAINING
        for row in self.on.service.board.access.allowances.values():
            none = replace(row, running=None, waiting=None, gpu_ms=None)  # what a call before this one set
            self.on.service.usages.limit(none, "smoke")
        checked = self.on.service.check(Submission("default", Launch(IMAGE), kind))
        return self.on.service.submit(checked, "smoke").workload.id

    def _session(self) -> str:
        sessions = self.app.state.context.sessions
        return sessions.add(Command(["echo", "x"]), AttemptId("w", "task-0", 1))


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with stage(tmp_path_factory.mktemp("ground")) as made:
        yield Ground(made)


def operations(ground: Ground, part: int, parts: int) -> list[Any]:
    """Every one in so many of all that end."""
    found = [result.ok() for result in ground.schema.get_all_operations()]
    return [it for at, it in enumerate(found) if at % parts == part and it.path != ENDLESS]


def send(ground: Ground, operation: Any, examples: int, number: int | None) -> int:
    """So many calls, drawn by `number`; whose parameters leave nothing to draw is called alike as often."""
    sent: list[schemathesis.Case] = []
    bounded = settings(
        max_examples=examples,
        derandomize=number is None,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def call(case: schemathesis.Case) -> None:
        response = case.call(headers=OWNER, timeout=PATIENCE)
        case.validate_response(response, checks=CHECKS)

    @bounded
    @given(case=operation.as_strategy(), exists=st.booleans())
    def draw(case: schemathesis.Case, exists: bool) -> None:
        if exists and case.path_parameters:
            known = ground.real(case.operation.path)
            case.path_parameters |= {k: known[k] for k in case.path_parameters if k in known}
        # With some values it is the path of another operation.
        assume(not case.path_parameters or operation.path.format(**case.path_parameters) not in ground.plain)
        if case.operation.path.endswith("/logs"):
            case.query.pop("follow", None)  # of what runs, it has no end
        sent.append(case)
        call(case)

    (draw if number is None else seed(number)(draw))()
    if number is not None:
        while len(sent) < examples:
            sent.append(sent[-1])
            call(sent[-1])
    return len(sent)


@dataclass
class Sent:
    """What came of calls of a part of all operations."""

    calls: Counter[str] = field(default_factory=Counter)  # by operation
    wrong: list[str] = field(default_factory=list)  # what checks found
    memory: int = 0  # bytes at most


def send_part(folder: str, part: int, parts: int, examples: int, number: int | None, seconds: float) -> Sent:
    """Rounds of so many calls of each operation of a part, one round at least, until the time is over.

    Runs in a process of its own: what libraries compile of a schema, half a gigabyte of some, they keep.
    """
    warnings.simplefilter("error")  # as pytest does
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    done, until = Sent(), time.monotonic() + seconds
    with stage(Path(folder)) as made:
        ground, rounds = Ground(made, thorough=number is not None), 0
        while rounds == 0 or time.monotonic() < until:
            for operation in operations(ground, part, parts):
                if rounds > 0 and time.monotonic() >= until:
                    break
                try:
                    drawn = None if number is None else number + rounds
                    done.calls[operation.label] += send(ground, operation, examples, drawn)
                except (Exception, FailureGroup):
                    done.wrong.append(f"{operation.label}, round {rounds}:\n{traceback.format_exc()}")
            rounds += 1
        made.loop.call(lambda draft: made.loop.world.check())
    done.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return done


def sent_by_another(
    folder: Path, part: int, parts: int, examples: int, number: int | None, seconds: float = 0
) -> Sent:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        done = pool.submit(send_part, str(folder), part, parts, examples, number, seconds).result()
    assert not done.wrong, "\n\n".join(done.wrong)
    assert done.memory < MEMORY, f"{done.memory >> 20} MiB"
    return done


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute on a quiet machine
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_can_be_sent_breaks_the_server(tmp_path: Path, part: int) -> None:
    sent_by_another(tmp_path, part, PARTS, EXAMPLES, None)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS_OF_MANY))
def test_twenty_minutes_of_calls_break_nothing(tmp_path: Path, part: int) -> None:
    """Of all parts together, and fifty calls of each operation at least."""
    seconds = MINUTES * 60 / PARTS_OF_MANY
    done = sent_by_another(tmp_path, part, PARTS_OF_MANY, 50, seed_or(20261126), seconds)
    least = min(done.calls.values())
    print(
        f"part {part + 1} of {PARTS_OF_MANY}: {done.calls.total()} calls of {len(done.calls)} operations, "
        f"{least} of each at least, {done.memory >> 20} MiB at most"
    )
    assert least >= 50


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.said)
def test_a_reason_for_which_what_schemas_allow_is_refused(ground: Ground, known: Known) -> None:
    """Once the description says it, or the server takes it, it has no place in the list."""
    path, _, query = known.path.partition("?")
    described = ground.app.openapi()
    with TestClient(ground.app, headers=OWNER) as http:
        http.post("/api/v1/network-topologies", json={"name": "racks", "levels": ["rack"]})
        real = ground.real(path) if "{" in path else {}
        got = http.request(known.method, known.path.format(**real), json=known.body)
    assert (got.status_code, known.tells(got.json()["message"])) == (400, True), got.text
    if known.body is not None:
        assert not not_allowed(described, known.method, path, known.body)
    for parameter in operation_of(described, known.method, path).get("parameters", ()):
        for value in (value for name, value in parse_qsl(query) if name == parameter["name"]):
            sent = int(value) if value.isdigit() else value
            Draft202012Validator(parameter["schema"]).validate(sent)


# -- links --------------------------------------------------------------------------------------------


def test_links_lead_to_whatever_is_about_one_thing(quiet: Api) -> None:
    """And each takes something that the example of its answer has."""
    paths = quiet.get("/openapi.json")["paths"]
    linked, operations = set(), set()
    for path, item in paths.items():
        for operation in item.values():
            if path.count("{") == 1 and "{realm}" not in path:
                operations.add(operation["operationId"])
            for answered in operation["responses"].values():
                for link in answered.get("links", {}).values():
                    linked.add(link["operationId"])
                    for told in link["parameters"].values():
                        if told.startswith("$response.body#/"):
                            at = answered["content"]["application/json"]["example"]
                            for part in told.removeprefix("$response.body#/").split("/"):
                                at = at[int(part)] if isinstance(at, list) else at[part]
                            assert at not in ("", None), (path, link)
    assert operations <= linked


class Sensible:
    """What somebody sends who has read the description: its examples, about things that are there."""

    def __init__(self, ground: Ground) -> None:
        self.random = Random(1)
        self.count = 0
        paths = ground.app.openapi()["paths"]
        self.of = {
            f"{method.upper()} {path}": op for path, item in paths.items() for method, op in item.items()
        }
        self.parts = {part for path in paths for part in path.split("/") if "{" not in part}
        self.words = {"gpu-box": "node-0", "nvidia-smi": "true"}
        with TestClient(ground.app, headers=OWNER) as http:
            http.post("/api/v1/users", json={"email": "anna"})
            http.post("/api/v1/org-unit/projects", json={"name": "team-a"})
            self.words["4500003"] = http.get("/api/v1/org-unit/projects/team-a").json()["id"]

    def fill(self, case: schemathesis.Case) -> None:
        operation = self.of[case.operation.label]
        parameters = operation.get("parameters", ())
        needed = [it for it in parameters if it["in"] == "query" and it["required"]]
        case.query = {it["name"]: it["example"] for it in needed}
        case.headers.clear()
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            case.body = self._spoken(body["example"])
            if case.method == "POST" and isinstance(case.body, dict):
                self._name_anew(case.body)

    def _spoken(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._spoken(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._spoken(each) for each in value]
        return self.words.get(value, value) if isinstance(value, str) else value

    def _name_anew(self, body: dict[str, Any]) -> None:
        self.count += 1
        for of in (body, body.get("meta", {})):
            for name in ("name", "email", "labelValue"):
                if isinstance(of.get(name), str):
                    of[name] = f"n{self.count}"


@dataclass
class Followed:
    """What came of calls that a link led to."""

    calls: Counter[str] = field(default_factory=Counter)  # by operation
    good: Counter[str] = field(default_factory=Counter)  # of these, answered 2xx
    wrong: list[str] = field(default_factory=list)  # what checks found

    @property
    def share(self) -> float:
        return self.good.total() / max(1, self.calls.total())


def follow_links(ground: Ground, seeds: range) -> Followed:
    """A few scenarios for each seed; calls are checked whether a link led to them or not."""
    found = Followed()
    sensible = Sensible(ground)

    class Machine(ground.schema.as_state_machine()):  # type: ignore[misc]
        def step(self, input: StepInput) -> StepOutput:
            case = input.case
            if sensible.random.random() < READ or "/exec" in case.operation.path:
                sensible.fill(case)
            case.query.pop("follow", None)  # of what runs, it has no end
            for name, value in case.path_parameters.items():
                if value in sensible.parts:  # the path would be another operation's
                    case.path_parameters[name] = "none"
            response = case.call(headers=OWNER, timeout=PATIENCE)
            self.after_call(response, case)
            try:
                case.validate_response(response, checks=CHECKS)
            except FailureGroup as failures:
                found.wrong.append(f"{case.as_curl_command()}: {failures.exceptions}")
            if input.transition is not None and input.is_applied:
                found.calls[case.operation.label] += 1
                found.good[case.operation.label] += response.status_code < 300
            return StepOutput(response, case)

    bounded = settings(
        max_examples=SCENARIOS,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for number in seeds:
        Machine.rule_order_seed = number
        with suppress(Flaky):  # what it has sent once and sends again finds another server
            run_state_machine_as_test(seed(number)(Machine), settings=bounded)
    ground.on.loop.call(lambda draft: ground.on.loop.world.check())
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_links_lead_to_is_there(ground: Ground) -> None:
    found = follow_links(ground, range(1, 5))
    assert not found.wrong, found.wrong[0]
    assert found.calls.total() >= 25 and found.share >= 0.5, found


def test_every_schema_has_an_example_that_it_allows(quiet: Api) -> None:
    described = quiet.get("/openapi.json")
    wrong: list[str] = []
    for path, item in described["paths"].items():
        for method, operation in item.items():
            told = [operation.get("requestBody", {}), *operation["responses"].values()]
            parts = [
                media for part in told for media in part.get("content", {}).values() if "schema" in media
            ]
            for part in [*parts, *operation.get("parameters", ())]:
                whole = {"components": described["components"], **part["schema"]}
                for error in Draft202012Validator(whole).iter_errors(part["example"]):
                    wrong.append(f"{method} {path} {part.get('name', '')}: {error.message[:200]}")
    assert not wrong


def test_the_example_of_each_body_is_understood(ground: Ground) -> None:
    """It is taken, or what it names is not there."""
    refused: list[str] = []
    paths = ground.app.openapi()["paths"]
    with TestClient(ground.app, headers=OWNER) as http:
        for path, item in paths.items():
            for method, operation in item.items():
                body = operation.get("requestBody", {}).get("content", {}).get("application/json")
                if body is None or "security" not in operation or path == "/api/v1/me/password":
                    continue  # who asks here has no password
                if path.endswith("/exec/port"):
                    continue  # is refused once the job runs: it listens on this machine itself
                real = ground.real(path)
                at = re.sub(r"\{(\w+)\}", lambda found, real=real: str(real.get(found[1], "trainings")), path)
                got = http.request(method, at, json=body["example"])
                if got.status_code == 400:
                    refused.append(f"{method} {path}: {got.json()['message']} ({body['example']})")
    assert not refused, "\n".join(refused)
