"""Calls that schemathesis draws from the description of the API. The import takes a second."""

import resource
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.stateful.state_machine import StepInput, StepOutput
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.ground import ENDLESS, OWNER, Ground
from tests.api.refusals import unexplained
from tests.api.stage import stage


def refused_for_a_reason_that_no_schema_could_say(_: Any, response: Any, case: schemathesis.Case) -> None:
    """Fails if a request that the schemas allow is refused and refusals.py does not list the reason."""
    if 400 <= response.status_code < 500 and (why := unexplained(response.status_code, response.json())):
        raise AssertionError(f"the schemas allow it, and it is refused: {why}")


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    refused_for_a_reason_that_no_schema_could_say,
]

STEPS = 20
"""Calls of one scenario."""

SCENARIOS = 5
"""Scenarios of one seed."""

READ = 0.85
"""The share of calls that send the description's examples; the others send anything its schemas allow."""

LONGEST = 4096
"""Characters of a text that is drawn, at most."""

PATIENCE = 240
"""Seconds for one call; generous, as these tests do not measure time."""

MEMORY = 4 << 30
"""The most memory, in bytes, that the process of a part may use."""


def without_lengths(schema: Any) -> None:
    """Removes maxLength above LONGEST from texts with a pattern: compiling one takes up to a second."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str) and schema.get("maxLength", 0) > LONGEST:
            del schema["maxLength"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            without_lengths(part)


def schema_of(ground: Ground, thorough: bool = False) -> Any:
    """The API's schema. `thorough`: also draws constants found in the sources of all loaded modules, which it
    tries at each field, and keeps the lengths that no value reaches.
    """
    found = schemathesis.openapi.from_asgi("/openapi.json", ground.app, headers=OWNER)
    found.config.analysis.constants.enabled = thorough
    if not thorough:
        without_lengths(found.raw_schema)
    return found


def operations(schema: Any, part: int, parts: int) -> list[Any]:
    """Part number `part` of `parts` of all operations, without the one that does not end."""
    found = [result.ok() for result in schema.get_all_operations()]
    return [it for at, it in enumerate(found) if at % parts == part and it.path != ENDLESS]


def send(ground: Ground, operation: Any, examples: int, number: int | None) -> int:
    """Sends up to `examples` calls; with a seed `number`, repeats the last one until there are that many."""
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
        # With some values the path is that of another operation.
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
    """The results of calling one part of all operations."""

    calls: Counter[str] = field(default_factory=Counter)  # by operation
    wrong: list[str] = field(default_factory=list)  # what checks found
    memory: int = 0  # peak, in bytes


def send_part(folder: str, part: int, parts: int, examples: int, number: int | None, seconds: float) -> Sent:
    """Calls each operation of a part `examples` times a round, at least one round, until the time is over.

    Runs in a process of its own: libraries never free what they compile of a schema, up to half a gigabyte.
    """
    warnings.simplefilter("error")  # as pytest does
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    done, until = Sent(), time.monotonic() + seconds
    with stage(Path(folder)) as made:
        ground, rounds = Ground(made), 0
        schema = schema_of(ground, thorough=number is not None)
        while rounds == 0 or time.monotonic() < until:
            for operation in operations(schema, part, parts):
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


# -- links --------------------------------------------------------------------------------------------


class Sensible:
    """Fills in what a reader of the description sends: its examples, about things that exist."""

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
    """The results of calls that a link led to."""

    calls: Counter[str] = field(default_factory=Counter)  # by operation
    good: Counter[str] = field(default_factory=Counter)  # those answered 2xx
    wrong: list[str] = field(default_factory=list)  # what checks found

    @property
    def share(self) -> float:
        return self.good.total() / max(1, self.calls.total())


def follow_links(ground: Ground, seeds: range) -> Followed:
    """Plays SCENARIOS scenarios for each seed; checks every call, whether a link led to it or not."""
    found = Followed()
    sensible = Sensible(ground)

    class Machine(schema_of(ground).as_state_machine()):  # type: ignore[misc]
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
        with suppress(Flaky):  # a repeated call finds the server in another state
            run_state_machine_as_test(seed(number)(Machine), settings=bounded)
    ground.on.loop.call(lambda draft: ground.on.loop.world.check())
    return found
