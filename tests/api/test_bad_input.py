"""Bad input: the answer is a documented 4xx that names the field, if there is one; nothing changes."""

import json
from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.stage import IMAGE

TRAININGS = "/api/v1/workloads/trainings"
PROJECTS = "/api/v1/org-unit/projects"


GPUS = "spec.compute.gpuDevicesRequest"


def compute(**asked: Any) -> dict[str, Any]:
    return sent(spec={"image": IMAGE, "compute": asked})


def sent(**more: Any) -> dict[str, Any]:
    return {"name": "a", "projectName": "default", "spec": {"image": IMAGE}, **more}


def fields(api: Api, path: str, status: int, body: Any, method: str = "POST") -> list[str]:
    before = everything(api)
    text = json.dumps(body)  # unlike httpx this lets NaN and lone surrogates pass
    answer = api.http.request(method, path, content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert everything(api) == before
    return [entry["field"] for entry in answer.json()["fields"]]


def everything(api: Api) -> Any:
    org = "/api/v1/org-unit"
    paths = ("/api/v1/workloads/count", f"{org}/projects", f"{org}/departments", "/api/v1/node-pools")
    return [api.get(path) for path in paths]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (sent(colour="red"), ""),
        (sent(spec={"image": IMAGE, "imge": "x"}), "spec"),
        (compute(gpuDeviceRequest=1), "spec.compute"),
        (
            compute(gpuDevicesRequest="two"),
            GPUS,
        ),
        (compute(gpuDevicesRequest=-1), GPUS),
        (
            compute(gpuDevicesRequest=1e300),
            GPUS,
        ),
        (
            compute(gpuDevicesRequest=float("nan")),
            GPUS,
        ),
        (
            compute(gpuDevicesRequest=float("inf")),
            GPUS,
        ),
        (
            compute(gpuDevicesRequest=1.5),
            GPUS,
        ),
        (compute(cpuMemoryRequest="x"), "spec.compute.cpuMemoryRequest"),
        (
            compute(cpuMemoryRequest="9" * 40),
            "spec.compute.cpuMemoryRequest",
        ),
        (sent(spec={"image": IMAGE, "backoffLimit": 10**30}), "spec.backoffLimit"),
        (sent(spec={"image": "a\0b"}), "spec.image"),
        (sent(spec={"image": "\ud800"}), "spec.image"),
        (sent(spec={"image": "abc\u202edcba"}), "spec.image"),
        (sent(spec={"image": IMAGE, "priorityClass": "'; DROP TABLE workloads; --"}), "spec.priorityClass"),
        (sent(spec={"image": IMAGE, "command": "echo 'open"}), "spec.command"),
        (sent(name="\ud800"), "name"),
        (sent(name="a\0b"), "name"),
        (sent(name="a\u202eb"), "name"),
        (sent(name="$(reboot)"), "name"),
        (sent(name="a' OR '1'='1"), "name"),
        (sent(name=""), "name"),
        (sent(submittedBy="x\u2066y"), "submittedBy"),
        (sent(projectName=None), "projectName"),
        (sent(spec={}), "spec.image"),
    ],
    ids=str,
)
def test_a_submission_that_cannot_be(quiet: Api, body: dict[str, Any], field: str) -> None:
    assert fields(quiet, TRAININGS, 400, body) == ([field] if field else [])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "p", "resources": [{"gpu": {"deserved": -2}}]}, "resources[0].gpu.deserved"),
        ({"name": "p", "resources": [{"gpu": {"deserved": -1}}]}, "resources.gpu.deserved"),
        ({"name": "p", "resources": [{"gpu": {"deserved": 0.0001}}]}, "resources.gpu.deserved"),
        ({"name": "p", "resources": [{"gpu": {"deserved": 2, "limit": 1}}]}, "resources.gpu.limit"),
        ({"name": "p", "resources": [{"gpu": {"deserved": float("nan")}}]}, "resources[0].gpu.deserved"),
        ({"name": "p", "resources": [{"rank": "Highest"}]}, "resources.rank"),
        ({"name": "p\u202eq"}, "name"),
        ({"name": "P"}, "name"),
        ({}, "name"),
        ({"name": "p", "enforceRunaiScheduler": False}, "enforceRunaiScheduler"),
        ({"name": "p", "requestedNamespace": "kube-system"}, "requestedNamespace"),
        ({"name": "p", "schedulingRules": {"trainingJobTimeLimitSeconds": 0}}, ""),
    ],
    ids=str,
)
def test_a_project_that_cannot_be(quiet: Api, body: dict[str, Any], field: str) -> None:
    found = fields(quiet, PROJECTS, 400, body)
    assert found == [field] if field else found[0].startswith("schedulingRules.trainingJobTimeLimitSeconds")


def test_the_nearest_name_is_told(quiet: Api) -> None:
    told = quiet.call("POST", TRAININGS, 400, json=sent(spec={"image": IMAGE, "nodePool": ["default"]}))
    assert "did you mean nodePools?" in told["message"]
    told = quiet.call("POST", PROJECTS, 400, json={"nme": "p"})
    assert "did you mean name?" in told["message"]


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/api/v1/workloads?filterBy=colour==red", "filterBy"),
        ("GET", "/api/v1/workloads?filterBy=nonsense", "filterBy"),
        ("GET", "/api/v1/workloads?sortBy=colour", "sortBy"),
        ("GET", "/api/v1/workloads?limt=5", "limt"),
        ("GET", "/api/v1/workloads?offset=-1", "offset"),
        ("GET", "/api/v1/workloads?limit=501", "limit"),
        ("POST", f"{TRAININGS}?dryrun=true", "dryrun"),
        ("POST", f"{TRAININGS}?dryRun=perhaps", "dryRun"),
        ("PUT", f"{PROJECTS}/default?dryRun=perhaps", "dryRun"),
        ("POST", "/api/v1/server/backup?dryRun=true", "dryRun"),
        ("GET", "/api/v1/workloads/telemetry?telemetryType=TEMPERATURE", "telemetryType"),
        ("GET", "/api/v1/workloads/telemetry", "telemetryType"),
    ],
)
def test_parameters_that_are_not_known(quiet: Api, method: str, path: str, field: str) -> None:
    body = sent() if "trainings" in path else {} if "projects" in path else {"path": "/nowhere"}
    answer = quiet.http.request(method, path, json=None if method in ("GET", "DELETE") else body)
    assert answer.status_code == 400, answer.text
    assert field in [entry["field"] for entry in answer.json()["fields"]]
    assert quiet.get("/api/v1/workloads/count") == {"count": 0}


def test_an_offset_past_the_end_is_an_empty_page(quiet: Api) -> None:
    assert quiet.get("/api/v1/workloads", offset=10**9) == {"workloads": []}


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"a":' * 100_000, 400),
        (b"[" * 100_000, 400),
        (b'{"name": "' + b"x" * 2**20 + b'"}', 413),
        (b'{"name": "\xff\xfe"}', 400),
        (b"\x00", 400),
        (b'{"name": "a", "name": "a"', 400),
    ],
    ids=["deep objects", "deep lists", "more than 1 MiB", "no UTF-8", "NUL", "cut off"],
)
def test_bodies_that_cannot_be_read(quiet: Api, raw: bytes, status: int) -> None:
    for path in (TRAININGS, PROJECTS, "/api/v1/what-if", "/api/v1/token"):
        answer = quiet.http.post(path, content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert quiet.get("/api/v1/workloads/count") == {"count": 0}


def test_sql_and_shell_in_every_text_are_only_text(api: Api) -> None:
    nasty = "'; DROP TABLE workloads; -- $(reboot) `reboot` \"&&|"
    made = api.submit(
        "a",
        gpus=None,
        labels=[{"name": "team", "value": nasty}],
        annotations=[{"name": "note", "value": nasty}],
        argsArgv=[nasty],
        environmentVariables=[{"name": "NASTY", "value": nasty}],
    )
    assert made["spec"]["labels"] == [{"name": "team", "value": nasty}]
    assert api.get("/api/v1/workloads", search=nasty) == {"workloads": []}
    assert api.get("/api/v1/workloads", filterBy=f"name=={nasty}") == {"workloads": []}
    for path in (f"/api/v1/workloads/{nasty}", f"{PROJECTS}/{nasty}", f"/api/v1/nodes/{nasty}"):
        assert api.http.get(path).status_code == 404
    assert api.get("/api/v1/workloads/count") == {"count": 1}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "It is nested too deep."),
        (b'{"a":' * 100_000, "It is nested too deep."),
        (b'{"name": "\xff"}', "Send JSON in UTF-8."),
        (b'{"spec": {"backoffLimit": ' + b"9" * 5000 + b"}}", "A number in it has too many digits."),
    ],
)
def test_a_body_that_cannot_be_read_says_why(quiet: Api, body: bytes, said: str) -> None:
    for path in (TRAININGS, "/api/v1/asset/environment"):
        answer = quiet.http.post(path, content=body, headers={"Content-Type": "application/json"})
        told = answer.json()
        assert (answer.status_code, told["message"], told["details"]) == (
            400,
            "The body cannot be read.",
            said,
        )


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_said_to_be_json(quiet: Api, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = quiet.http.post(TRAININGS, content=b'{"projectName": "default"}', headers=headers)
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["message"]
