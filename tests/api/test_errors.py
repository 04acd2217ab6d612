"""Every error says what is wrong, where, and what to do; both sets of members agree."""

import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from pliant.api import errors
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound, OverQuota, Unavailable
from pliant.control.ports import StaleEpoch
from pliant.wire.server import Problem
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import IMAGE

TRAININGS = "/api/v1/workloads/trainings"


def problem(api: Api, method: str, path: str, **options: Any) -> Problem:
    answer = api.http.request(method, path, **options)
    assert answer.headers["content-type"] == "application/problem+json"
    found = conform(Problem, answer.json())
    assert found.status == found.code == answer.status_code
    assert found.detail == f"{found.message} {found.details}".strip()
    return found


def said(found: Problem) -> str:
    return f"{found.status} {found.reason}: {found.detail}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"spec": {"compute": {"gpuDevicesRequest": "two"}}},
            snapshot("400 bad-request: spec.compute.gpuDevicesRequest must be a number, not 'two'."),
        ),
        (
            {"spec": {"compute": {"gpuDeviceRequest": 1}}},
            snapshot(
                "400 bad-request: spec.compute: there is no field 'gpuDeviceRequest' here; did you "
                "mean gpuDevicesRequest?"
            ),
        ),
        (
            {"spec": {"preemptibility": "maybe"}},
            snapshot(
                "400 bad-request: spec.preemptibility must be 'preemptible', 'semi-preemptible' or "
                "'non-preemptible', not 'maybe'."
            ),
        ),
        (
            {"spec": {"backoffLimit": 1.5}},
            snapshot("400 bad-request: spec.backoffLimit must be a whole number, not 1.5."),
        ),
        (
            {"spec": {"backoffLimit": -1}},
            snapshot("400 bad-request: spec.backoffLimit must be at least 0, not -1."),
        ),
        (
            {"spec": {"image": "a\0b"}},
            snapshot("400 bad-request: spec.image contains an invalid character, not 'a\\x00b'."),
        ),
        (
            {"spec": {"environmentVariables": [{"name": "A", "value": "1"}, {"value": "2"}]}},
            snapshot("400 bad-request: spec.environmentVariables[1].name must be given."),
        ),
        ({"spec": "x"}, snapshot("400 bad-request: spec must be an object, not 'x'.")),
        (
            {"name": ["a"], "spec": {"image": 1, "nodeType": []}},
            snapshot("400 bad-request: name must be text, not ['a']. 1 more fields are invalid."),
        ),
    ],
)
def test_bad_bodies(quiet: Api, body: dict[str, Any], expected: str) -> None:
    assert said(problem(quiet, "POST", TRAININGS, json={"projectName": "default", **body})) == expected
    assert quiet.get("/api/v1/workloads/count") == {"count": 0}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            b"{",
            snapshot(
                "400 bad-request: The body is not JSON: Expecting property name enclosed in double quotes."
            ),
        ),
        (b"", snapshot("400 bad-request: The body must be given.")),
        (b"[]", snapshot("400 bad-request: The body must be an object, not [].")),
        (
            b'{"spec": {"compute": {"gpuDevicesRequest": NaN}}}',
            snapshot("400 bad-request: spec.compute.gpuDevicesRequest must be a finite number, not nan."),
        ),
        (
            b'{"name": "\\ud800"}',
            snapshot("400 bad-request: name must be valid Unicode text, not '\\ud800'."),
        ),
        (
            b"1" * 5000,
            snapshot("400 bad-request: The body cannot be read. A number in it has too many digits."),
        ),
    ],
)
def test_bodies_that_are_no_bodies(quiet: Api, raw: bytes, expected: str) -> None:
    found = problem(quiet, "POST", TRAININGS, content=raw, headers={"Content-Type": "application/json"})
    assert said(found) == expected


def test_parameters(quiet: Api) -> None:
    found = problem(quiet, "GET", "/api/v1/workloads", params={"limit": 1000})
    assert said(found) == snapshot("400 bad-request: The parameter limit must be at most 500, not '1000'.")
    found = problem(quiet, "GET", "/api/v1/workloads", params={"sortOrder": "up"})
    assert said(found) == snapshot(
        "400 bad-request: The parameter sortOrder must be 'asc' or 'desc', not 'up'."
    )


def test_routes_that_do_not_exist(quiet: Api) -> None:
    assert said(problem(quiet, "GET", "/api/v1/workload")) == snapshot(
        "404 not-found: There is no route /api/v1/workload. See /api/docs for all routes."
    )
    assert said(problem(quiet, "PUT", "/api/v1/whoami")) == snapshot(
        "405 method-not-allowed: PUT /api/v1/whoami is not possible. Use GET."
    )


def test_a_body_that_is_too_large(quiet: Api) -> None:
    body = json.dumps({"spec": {"image": IMAGE}, "pad": "x" * errors.MOST_BODY})
    assert problem(quiet, "POST", TRAININGS, content=body).status == 413


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (BadRequest("a", "b"), 400, "bad-request"),
        (NotFound("a", "b"), 404, "not-found"),
        (NameTaken("a", "b"), 409, "name-exists"),
        (Conflict("a", "b"), 409, "conflict"),
        (OverQuota("a", "b"), 403, "over-quota"),
        (Unavailable("a", "b"), 503, "unavailable"),
        (StaleEpoch("7"), 503, "not-leading"),
        (TimeoutError(), 503, "timeout"),
        (ZeroDivisionError("secret detail"), 500, "internal"),
    ],
)
def test_whatever_the_service_raises(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, reason: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(api.stage.service, "suspend", fail)
    made = api.submit()
    found = problem(api, "POST", f"{TRAININGS}/{made['workloadId']}/suspend")
    assert (found.status, found.reason) == (status, reason)
    assert "secret" not in found.model_dump_json()
    if status == 503 and reason == "unavailable":
        again = api.http.post(f"{TRAININGS}/{made['workloadId']}/suspend")
        assert again.headers["retry-after"] == "1"


def test_an_unexpected_error_is_logged_once(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api.stage.service, "ended", lambda: 1 / 0)
    assert problem(api, "GET", "/api/v1/workloads", params={"deleted": True}).status == 500
    assert [record.message for record in caplog.records] == ["GET /api/v1/workloads failed"]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/healthz"),
        ("GET", "/api/docs"),
        ("GET", "/api/v1/workloads"),
        ("GET", "/api/v1/nothing"),
        ("POST", TRAININGS),
        ("OPTIONS", "/api/v1/workloads"),
    ],
)
def test_no_page_of_another_origin_may_read_or_frame_an_answer(quiet: Api, method: str, path: str) -> None:
    other = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    answer = quiet.http.request(method, path, headers=other)
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "cache-control" in answer.headers
