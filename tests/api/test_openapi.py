"""The description of the API is complete, and true of the answer to any request."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient
from jsonschema_rs import Draft202012Validator

from pliant.api.app import ROUTERS
from tests.api.conftest import Api
from tests.api.described import not_allowed, operation_of, with_references
from tests.api.ground import OWNER, Ground
from tests.api.refusals import KNOWN, Known
from tests.api.stage import stage
from tests.house.seeds import seed_or

EXAMPLES = 1
"""Calls of each operation; `make test-long` sends fifty and more."""

PARTS = 2
"""Parts of all operations: one process for each."""

PARTS_OF_MANY = 4
"""Where each operation is called fifty times and more."""

MINUTES = 20


def test_the_description_is_valid_and_whole(quiet: Api) -> None:
    import schemathesis  # takes a second

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
    """FastAPI would rebuild each route of an included router at the first request, in half a second."""
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


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with stage(tmp_path_factory.mktemp("ground")) as made:
        yield Ground(made)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute on a quiet machine
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_can_be_sent_breaks_the_server(tmp_path: Path, part: int) -> None:
    from tests.api.calls import sent_by_another

    sent_by_another(tmp_path, part, PARTS, EXAMPLES, None)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS_OF_MANY))
def test_twenty_minutes_of_calls_break_nothing(tmp_path: Path, part: int) -> None:
    """Twenty minutes for all parts together, with at least fifty calls of each operation."""
    from tests.api.calls import sent_by_another

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
    """A reason must leave the list once the description expresses it or the server accepts the request."""
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
    """Each link takes a value that the example of its answer contains."""
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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_links_lead_to_is_there(ground: Ground) -> None:
    from tests.api.calls import follow_links

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
                whole = with_references(described, part["schema"])
                for error in Draft202012Validator(whole).iter_errors(part["example"]):
                    wrong.append(f"{method} {path} {part.get('name', '')}: {error.message[:200]}")
    assert not wrong


def test_the_example_of_each_body_is_understood(ground: Ground) -> None:
    """It is accepted, or refused because something that it names does not exist."""
    refused: list[str] = []
    paths = ground.app.openapi()["paths"]
    with TestClient(ground.app, headers=OWNER) as http:
        for path, item in paths.items():
            for method, operation in item.items():
                body = operation.get("requestBody", {}).get("content", {}).get("application/json")
                if body is None or "security" not in operation or path == "/api/v1/me/password":
                    continue  # the caller here has no password
                if path.endswith("/exec/port"):
                    continue  # refused once the job runs: its tasks listen on this machine itself
                real = ground.real(path)
                at = re.sub(r"\{(\w+)\}", lambda found, real=real: str(real.get(found[1], "trainings")), path)
                got = http.request(method, at, json=body["example"])
                if got.status_code == 400:
                    refused.append(f"{method} {path}: {got.json()['message']} ({body['example']})")
    assert not refused, "\n".join(refused)
