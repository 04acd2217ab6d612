"""Policies: what they set, what they refuse and in whose name, which of them wins; the preview."""

from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.stage import IMAGE

TRAININGS = "/api/v1/workloads/trainings"
POLICY = "/api/v2/policy/trainings"
EFFECTIVE = "/api/v1/policies/effective"


def put(api: Api, scope: dict[str, Any], status: int = 200, method: str = "PUT", **policy: Any) -> Any:
    return api.call(method, POLICY, status, json={"meta": scope, "policy": policy})


def submit(api: Api, status: int, name: str = "a", project: str = "default", **spec: Any) -> Any:
    body = {"name": name, "projectName": project, "spec": {"image": IMAGE, **spec}}
    return api.call("POST", TRAININGS, status, json=body)


TENANT = {"scope": "tenant"}
PROJECT = {"scope": "project", "projectId": "default"}


@pytest.mark.parametrize(
    ("rules", "spec", "rule", "field"),
    [
        (
            {"compute": {"gpuDevicesRequest": {"max": 1}}},
            {"compute": {"gpuDevicesRequest": 2}},
            "max",
            "compute.gpuDevicesRequest",
        ),
        (
            {"compute": {"gpuDevicesRequest": {"min": 1}}},
            {"compute": {"gpuDevicesRequest": 0.5}},
            "min",
            "compute.gpuDevicesRequest",
        ),
        (
            {"compute": {"cpuMemoryRequest": {"max": "1G"}}},
            {"compute": {"cpuMemoryRequest": "2G"}},
            "max",
            "compute.cpuMemoryRequest",
        ),
        ({"backoffLimit": {"step": 2}}, {"backoffLimit": 3}, "step", "backoffLimit"),
        ({"image": {"options": [{"value": "ubuntu"}, "python"]}}, {}, "options", "image"),
        ({"category": {"required": True}}, {}, "required", "category"),
        ({"workingDir": {"blocked": True}}, {"workingDir": "/tmp"}, "blocked", "workingDir"),
        ({"category": {"canEdit": False}}, {"category": "x"}, "canEdit", "category"),
        (
            {"environmentVariables": {"locked": ["HTTP_PROXY"]}},
            {"environmentVariables": [{"name": "HTTP_PROXY", "value": "x"}]},
            "locked",
            "environmentVariables",
        ),
        ({"labels": {"canAdd": False}}, {"labels": [{"name": "a", "value": "b"}]}, "canAdd", "labels"),
    ],
)
def test_each_rule(api: Api, rules: Any, spec: Any, rule: str, field: str) -> None:
    made = put(api, TENANT, rules=rules)
    for dry in ("", "?dryRun=true"):
        body = {"name": "a", "projectName": "default", "spec": {"image": IMAGE, **spec}}
        told = api.call("POST", TRAININGS + dry, 400, json=body)
        (issue,) = told["complianceIssues"]
        assert (issue["rule"], issue["field"]) == (rule, f"spec.{field}")
        assert issue["policy"] == {"id": made["meta"]["id"], "scope": "tenant", "scopeId": None}
        assert [entry["field"] for entry in told["fields"]] == [f"spec.{field}"]
        assert told["reason"] == "policy"
    assert api.get("/api/v1/workloads/count") == {"count": 0}
    api.call("DELETE", f"{POLICY}?scope=tenant", 204)
    submit(api, 202, **spec)


def test_defaults_are_filled_in(api: Api) -> None:
    defaults = {"category": "Study", "compute": {"cpuCoreRequest": 2, "gpuDevicesRequest": 1}}
    put(
        api,
        TENANT,
        defaults=defaults,
        rules={"backoffLimit": {"defaultFrom": {"field": "compute.cpuCoreRequest", "factor": 2}}},
    )
    spec = submit(api, 202, compute={"cpuCoreRequest": 3})["spec"]
    assert (spec["category"], spec["backoffLimit"]) == ("Study", 6)
    assert (spec["compute"]["cpuCoreRequest"], spec["compute"]["gpuDevicesRequest"]) == (3, 1)


def test_which_one_wins(api: Api) -> None:
    """The nearest policy wins for defaults and plain rules, the farthest for compute and security rules."""
    put(
        api,
        TENANT,
        defaults={"category": "far"},
        rules={"backoffLimit": {"max": 2}, "compute": {"gpuDevicesRequest": {"max": 1}}},
    )
    put(
        api,
        {"scope": "department", "departmentId": "default"},
        defaults={"category": "middle", "workingDir": "/tmp"},
    )
    near = put(
        api,
        PROJECT,
        defaults={"category": "near"},
        rules={"backoffLimit": {"max": 9}, "compute": {"gpuDevicesRequest": {"max": 8}}},
    )
    found = api.get(EFFECTIVE, projectId="default", workloadType="trainings")
    defaults = {entry["field"]: (entry["value"], entry["policy"]["scope"]) for entry in found["defaults"]}
    assert defaults == {"category": ("near", "project"), "workingDir": ("/tmp", "department")}
    rules = {entry["field"]: (entry["value"], entry["policy"]["scope"]) for entry in found["rules"]}
    assert rules == {
        "backoffLimit": ({"max": 9}, "project"),
        "compute.gpuDevicesRequest": ({"max": 1}, "tenant"),
    }
    submit(api, 202, backoffLimit=9)
    told = submit(api, 400, "b", backoffLimit=10, compute={"gpuDevicesRequest": 2})
    scopes = {issue["field"]: issue["policy"]["scope"] for issue in told["complianceIssues"]}
    assert scopes == {"spec.backoffLimit": "project", "spec.compute.gpuDevicesRequest": "tenant"}
    assert near["meta"]["projectId"] == api.get("/api/v1/org-unit/projects/default")["id"]


def test_a_policy_of_one_project_leaves_the_others_alone(api: Api) -> None:
    api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "free"})
    put(api, PROJECT, rules={"backoffLimit": {"max": 1}})
    submit(api, 400, backoffLimit=2)
    submit(api, 202, project="free", backoffLimit=2)


def test_a_part_is_changed(api: Api) -> None:
    put(api, TENANT, defaults={"category": "a"}, rules={"backoffLimit": {"max": 1, "min": 1}})
    told = put(api, TENANT, method="PATCH", rules={"category": {"required": True}})
    assert told["policy"] == {
        "defaults": {"category": "a"},
        "rules": {"backoffLimit": {"max": 1, "min": 1}, "category": {"required": True}},
    }
    assert api.get(POLICY, scope="tenant")["policy"] == told["policy"]
    changed = {"backoffLimit": {"max": 2}, "compute": {"cpuCoreRequest": {"max": 4}}}
    told = put(api, TENANT, method="PATCH", rules=changed)
    assert told["policy"]["rules"] == {"category": {"required": True}, **changed}, "rules are whole"
    whole = {"compute": {"canEdit": False}}
    assert put(api, TENANT, method="PATCH", rules=whole)["policy"]["rules"]["compute"] == whole["compute"]
    told = put(api, TENANT, defaults={"category": "b"})
    assert told["policy"] == {"defaults": {"category": "b"}}


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"rules": {"imge": {"required": True}}}, "rules.imge"),
        ({"rules": {"image": {"maximum": 1}}}, "rules.image"),
        ({"rules": {"compute": {"gpuDeviceRequest": {"max": 1}}}}, "rules.compute.gpuDeviceRequest"),
        ({"rules": {"numWorkers": {"max": 1}}}, "rules.numWorkers"),
        ({"rules": {"backoffLimit": {"max": "many"}}}, "rules.backoffLimit.max"),
        ({"rules": {"image": {"options": []}}}, "rules.image.options"),
        ({"rules": {"image": {"options": ["ubuntu", {"name": "python"}]}}}, "rules.image.options"),
        ({"rules": {"image": {"required": "yes"}}}, "rules.image.required"),
        ({"rules": {"image": {"required": True, "colour": 1}}}, "rules.image"),
        ({"rules": {"image": 5}}, "rules.image"),
        ({"defaults": {"backoffLimit": "x"}}, "policy.defaults.backoffLimit"),
        ({"defaults": {"imge": "x"}}, "policy.defaults"),
    ],
)
def test_policies_that_cannot_be(quiet: Api, policy: Any, field: str) -> None:
    told = put(quiet, TENANT, 400, **policy)
    assert told["fields"][0]["field"] == field
    quiet.call("GET", f"{POLICY}?scope=tenant", 404)


def test_only_validated(api: Api) -> None:
    body = {"meta": TENANT, "policy": {"rules": {"backoffLimit": {"max": 1}}}}
    for how in ("validateOnly=true", "dryRun=true"):
        told = api.call("PUT", f"{POLICY}?{how}", json=body)
        assert told["dryRun"] is True
    api.call("GET", f"{POLICY}?scope=tenant", 404)


def test_which_of_todays_workloads_would_have_been_refused(api: Api) -> None:
    submit(api, 202, "big", compute={"gpuDevicesRequest": 2})
    submit(api, 202, "small", compute={"gpuDevicesRequest": 1})
    body = {"meta": PROJECT, "policy": {"rules": {"compute": {"gpuDevicesRequest": {"max": 1}}}}}
    told = api.call("POST", f"{POLICY}/preview", json=body)
    assert told["checked"] == 2
    (refused,) = told["workloads"]
    assert (refused["name"], refused["projectName"]) == ("big", "default")
    assert refused["complianceIssues"][0]["field"] == "spec.compute.gpuDevicesRequest"
    api.call("GET", f"{POLICY}?scope=project&projectId=default", 404)


def test_a_list_of_templates_says_which_would_run(api: Api) -> None:
    path = "/api/v1/workload-templates/trainings"
    for name, gpus in (("one", 1), ("two", 2)):
        spec = {"image": IMAGE, "compute": {"gpuDevicesRequest": gpus}}
        api.call("POST", path, 202, json={"meta": {"name": name}, "spec": spec})
    put(api, PROJECT, rules={"compute": {"gpuDevicesRequest": {"max": 1}}})
    told = api.get(path, complyToProject="default", sortBy="name")
    assert [entry["runnable"]["isRunnable"] for entry in told["entries"]] == [True, False]
    assert "at most 1" in told["entries"][1]["runnable"]["issue"]
