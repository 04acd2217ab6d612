"""Fields that have no effect because of other fields: they are accepted, and the answer names them."""

from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.stage import IMAGE

TRAININGS, DISTRIBUTED = "/api/v1/workloads/trainings", "/api/v1/workloads/distributed"


def notices(api: Api, path: str, spec: dict[str, Any], **top: Any) -> list[str]:
    body = {"projectName": "default", **top, "spec": {"image": IMAGE, **spec}}
    told: list[str] = api.call("POST", f"{path}?dryRun=true", json=body)["notices"]
    return told


def named(*fields: str) -> list[str]:
    return [f"These fields have no effect here: {', '.join(fields)}."]


@pytest.mark.parametrize(
    ("path", "spec", "top", "idle"),
    [
        (TRAININGS, {"elasticDoubling": True}, {}, "spec.elasticDoubling"),
        (TRAININGS, {"keepPending": True}, {}, "spec.keepPending"),
        (TRAININGS, {"dependencyAny": True}, {}, "spec.dependencyAny"),
        (TRAININGS, {"compute": {"gpuMemoryLimit": "1G"}}, {}, "spec.compute.gpuMemoryLimit"),
        (TRAININGS, {}, {"name": "a", "nameBase": "b"}, "name"),
        (TRAININGS, {}, {"nameStyle": "index"}, "nameStyle"),
        (TRAININGS, {}, {"useGivenNameAsPrefix": True}, "useGivenNameAsPrefix"),
        (
            DISTRIBUTED,
            {},
            {"masterSpecSameAsWorker": True, "masterSpec": {"command": "x", "labels": [{"name": "a"}]}},
            "masterSpec",
        ),
        (DISTRIBUTED, {"cleanPodPolicy": "All"}, {}, "spec.cleanPodPolicy"),
        (DISTRIBUTED, {}, {"masterSpec": {"backoffLimit": 3}}, "masterSpec.backoffLimit"),
        (
            DISTRIBUTED,
            {"taskGroups": [{"name": "a"}, {"name": "b", "spec": {"nodePools": ["none"]}}]},
            {},
            "spec.taskGroups[1].spec.nodePools",
        ),
    ],
)
def test_what_does_nothing_is_named(quiet: Api, path: str, spec: Any, top: Any, idle: str) -> None:
    assert notices(quiet, path, spec, **top) == named(idle)


@pytest.mark.parametrize(
    ("path", "spec", "top"),
    [
        (TRAININGS, {"compute": {"gpuMemoryRequest": "1G", "gpuMemoryLimit": "2G"}}, {}),
        (TRAININGS, {"elastic": True, "elasticDoubling": True, "compute": {"gpuDevicesRequest": 1}}, {}),
        (TRAININGS, {}, {"nameBase": "a", "nameStyle": "index"}),
        (TRAININGS, {}, {"name": "a", "useGivenNameAsPrefix": True}),
        (DISTRIBUTED, {}, {"masterSpec": {"command": "true", "priorityClass": "high", "stdin": True}}),
        (DISTRIBUTED, {}, {"masterSpec": {"labels": []}}),
    ],
)
def test_what_has_an_effect_is_not(quiet: Api, path: str, spec: Any, top: Any) -> None:
    assert notices(quiet, path, spec, **top) == []


@pytest.mark.parametrize("spoken", [{"minReplicas": 1}, {"maxReplicas": 2}, {"numWorkers": 2}])
def test_groups_and_what_is_said_of_equal_workers(quiet: Api, spoken: dict[str, int]) -> None:
    spec = {"image": IMAGE, "taskGroups": [{"name": "a"}], **spoken}
    quiet.call("POST", DISTRIBUTED, 400, json={"projectName": "default", "spec": spec})


@pytest.mark.parametrize(
    "meta",
    [
        {"scope": "project", "scopeType": "tenant", "projectId": "default"},
        {"scope": "tenant", "projectId": "default"},
        {"scope": "tenant", "scopeId": "default"},
        {"scope": "cluster", "departmentId": "default"},
        {"scope": "project", "departmentId": "default"},
        {"scope": "project", "projectId": "default", "scopeId": "other"},
        {"projectId": "default", "departmentId": "default"},
    ],
)
def test_a_scope_that_is_given_twice(quiet: Api, meta: dict[str, str]) -> None:
    body = {"meta": {"name": "twice", **meta}, "spec": {"image": IMAGE}}
    quiet.call("POST", "/api/v1/asset/environment", 400, json=body)
    assert quiet.get("/api/v1/asset/environment/count")["count"] == 0


@pytest.mark.parametrize("scope", ["tenant", "system", "cluster"])
def test_words_for_everybody(api: Api, scope: str) -> None:
    meta = {"name": "all", "scope": scope, "autoDelete": True, "clusterId": None}
    made = api.call("POST", "/api/v1/asset/environment", 202, json={"meta": meta, "spec": {"image": IMAGE}})
    assert (made["meta"]["scope"], made["notices"]) == ("tenant", named("meta.autoDelete"))
    body = {"meta": {"scope": scope, "name": "p"}, "policy": {"rules": {"image": {"required": True}}}}
    made = api.call("PUT", "/api/v2/policy/trainings", json=body)
    assert (made["meta"]["scope"], made["notices"]) == ("tenant", named("meta.name"))


def test_another_cluster(quiet: Api) -> None:
    meta = {"name": "far", "clusterId": "another"}
    quiet.call("POST", "/api/v1/asset/environment", 404, json={"meta": meta, "spec": {"image": IMAGE}})
