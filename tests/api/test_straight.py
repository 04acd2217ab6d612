"""The fast path to a handler gives the same answers as FastAPI's path."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pliant.api import straight
from pliant.api.app import ROUTERS
from tests.api.stage import IMAGE, TOKEN, Stage

TRAININGS = "/api/v1/workloads/trainings"
LISTED = "/api/v1/workloads"
GOOD = f'{{"name": "a", "projectName": "default", "spec": {{"image": "{IMAGE}"}}}}'.encode()
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def both(on_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TestClient, TestClient]]:
    """A client that uses the fast path where there is one, and one that never does."""
    with TestClient(on_stage.app()) as short:
        assert short.get("/healthz").status_code == 200
        monkeypatch.setattr(straight, "find", lambda routes, method, path: None)
        with TestClient(on_stage.app()) as long:
            long.get("/healthz")
            yield short, long


def test_what_is_asked_for_most_has_a_short_way() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    for method, path in [("POST", TRAININGS), ("GET", LISTED), ("POST", LISTED), ("GET", "/healthz")]:
        assert straight.find(routes, method, path) is not None
    assert straight.find(routes, "GET", f"{LISTED}/a") is None


@pytest.mark.parametrize("token", [TOKEN, "wrong", ""], ids=["owner", "wrong", "none"])
@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", LISTED, b"", {}),
        ("GET", f"{LISTED}?limit=1&sortBy=name&filterBy=name==a&filterBy=type==Training", b"", {}),
        ("GET", f"{LISTED}?limit=0", b"", {}),
        ("GET", f"{LISTED}?limit=x&offset=-1", b"", {}),
        ("GET", f"{LISTED}?lmit=5", b"", {}),
        ("GET", f"{LISTED}?deleted=true", b"", {}),
        ("HEAD", LISTED, b"", {}),
        ("PUT", LISTED, b"", {}),
        ("GET", f"{LISTED}/", b"", {}),
        ("POST", LISTED, b"{}", JSON),
        ("POST", LISTED, b"[1]", JSON),
        ("POST", TRAININGS, b"", JSON),
        ("POST", TRAININGS, b"null", JSON),
        ("POST", TRAININGS, b"{", JSON),
        ("POST", TRAININGS, b"[" * 100_000, JSON),
        ("POST", TRAININGS, b"{}", JSON),
        ("POST", TRAININGS, b'{"nme": "a"}', JSON),
        ("POST", TRAININGS, GOOD, {"Content-Type": "text/plain"}),
        ("POST", TRAININGS, GOOD, {}),
        ("POST", f"{TRAININGS}?dryRun=true", GOOD, JSON),
        ("POST", f"{TRAININGS}?dryRun=true", GOOD, {"Content-Type": "application/json; charset=utf-8"}),
        ("POST", f"{TRAININGS}?dryRun=perhaps", GOOD, JSON),
        ("POST", f"{TRAININGS}?dryRun=true", GOOD.replace(b"default", b"nowhere"), JSON),
        ("POST", TRAININGS, GOOD, {**JSON, "Idempotency-Key": "with a blank"}),
        ("POST", "/api/v1/what-if", b"[]", JSON),
        ("GET", "/healthz", b"", {}),
        ("GET", "/healthz?what=1", b"", {}),
        ("GET", "/proof?nonce=1", b"", {}),
        ("GET", "/api/v1/nothing", b"", {}),
    ],
)
def test_both_ways_say_the_same(
    both: tuple[TestClient, TestClient],
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    token: str,
) -> None:
    named = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
    short, long = (_told(client, method, path, body, named) for client in both)
    assert short == long


def _told(client: TestClient, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
    answer = client.request(method, path, content=body, headers=headers)
    return answer.status_code, answer.headers, answer.content


def test_a_submission_is_accepted_by_both(both: tuple[TestClient, TestClient], on_stage: Stage) -> None:
    owner = {"Authorization": f"Bearer {TOKEN}", **JSON}
    for client, name in zip(both, ("one", "two"), strict=True):
        body = GOOD.replace(b'"a"', f'"{name}"'.encode())
        assert client.post(TRAININGS, content=body, headers=owner).status_code == 202
        assert client.post(TRAININGS, content=body, headers=owner).status_code == 409
    known = {view.workload.name for view in on_stage.service.board.workloads.values()}
    assert known == {"one", "two"}
