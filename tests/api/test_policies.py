"""Policies: what they set, what they refuse and in whose name, which of them wins; the preview."""

from collections.abc import Iterator
from typing import Annotated, Any, Required, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from pliant.control.policy_changes import HIDDEN
from pliant.wire.submission import DistributedSpec, InferenceSpec, Spec
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


def audited(api: Api) -> dict[str, tuple[str, str]]:
    """What the newest record of the audit says about the policy: before and after, by path."""
    record = api.get("/api/v1/audit/log", limit=1)["audit_logs"][0]
    prefix = "Asset.body."
    return {
        it["field"].removeprefix(prefix): (it["before"], it["after"])
        for it in record["changes"]
        if it["field"].startswith(prefix)
    }


def test_the_audit_shows_which_fields_of_a_policy_changed(quiet: Api) -> None:
    rules = {
        "compute": {"gpuDevicesRequest": {"max": 1}, "cpuMemoryRequest": {"max": "16G"}},
        "image": {"options": ["a-word"]},
        "numWorkers": {"options": [1, 2]},
    }
    path = "/api/v2/policy/distributed"
    defaults = {"background": True, "workingDir": "/a-word"}

    def put_it(**policy: Any) -> dict[str, tuple[str, str]]:
        quiet.call("PUT", path, 200, json={"meta": TENANT, "policy": policy})
        return audited(quiet)

    assert put_it(rules=rules, defaults=defaults) == {
        "defaults.background": ("", "true"),
        "defaults.workingDir": ("", "***"),
        "rules.compute.cpuMemoryRequest.max": ("", '"16G"'),
        "rules.compute.gpuDevicesRequest.max": ("", "1"),
        "rules.image.options": ("", '["***"]'),
        "rules.numWorkers.options": ("", "[1,2]"),
    }
    rules["compute"] = {"gpuDevicesRequest": {"max": 4, "canEdit": False}}
    assert put_it(rules=rules, defaults=defaults | {"workingDir": "/another"}) == {
        "defaults.workingDir": ("***", "***"),
        "rules.compute.cpuMemoryRequest.max": ('"16G"', ""),
        "rules.compute.gpuDevicesRequest.canEdit": ("", "false"),
        "rules.compute.gpuDevicesRequest.max": ("1", "4"),
    }
    assert "defaults.background" in put_it(), "the server is used by other tests too"


VALUE = "1234567890"


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (
            {"defaults": {"environmentVariables": [{"name": "A", "value": VALUE}]}},
            "defaults.environmentVariables",
        ),
        (
            {"defaults": {"capturedEnvironment": {"variables": {VALUE: VALUE}}}},
            "defaults.capturedEnvironment",
        ),
        (
            {"rules": {"environmentVariables": {"options": [int(VALUE)]}}},
            "rules.environmentVariables.options",
        ),
        ({"rules": {"environmentVariables": {"max": int(VALUE)}}}, "rules.environmentVariables.max"),
        ({"rules": {"environmentVariables": {"min": VALUE}}}, "rules.environmentVariables.min"),
        ({"rules": {"environmentVariables": {"locked": [VALUE]}}}, "rules.environmentVariables.locked"),
        (
            {"rules": {"environmentVariables": {"options": [{"value": VALUE}]}}},
            "rules.environmentVariables.options",
        ),
        ({"rules": {"image": {"options": [{"value": VALUE}]}}}, "rules.image.options"),
        ({"defaults": {"command": f"--password {VALUE}"}}, "defaults.command"),
        ({"defaults": {"args": VALUE}}, "defaults.args"),
        ({"defaults": {"labels": [{"name": "a", "value": VALUE}]}}, "defaults.labels"),
        ({"defaults": {"security": {VALUE: int(VALUE)}}}, "defaults.security"),
        ({"defaults": {"imagePullSecrets": [int(VALUE)]}}, "defaults.imagePullSecrets"),
        ({"defaults": {"storage": {"s3": {"secretKey": int(VALUE)}}}}, "defaults.storage.s3"),
        ({"rules": {"security": {VALUE: {"max": int(VALUE)}}}}, "rules.security"),
    ],
)
def test_the_audit_holds_no_value_of_a_variable_and_no_text(
    quiet: Api, policy: dict[str, Any], field: str
) -> None:
    put(quiet, TENANT, **policy)
    made = audited(quiet)
    put(quiet, TENANT)
    assert (*made, *audited(quiet)) == (field, field)
    assert VALUE not in quiet.http.get("/api/v1/audit/log", params={"limit": 2}).text
    assert VALUE not in quiet.http.get("/api/v1/audit/log/file", params={"format": "csv"}).text


def test_a_rule_that_only_allows_or_forbids_is_shown_for_variables_too(quiet: Api) -> None:
    put(quiet, TENANT, rules={"environmentVariables": {"canAdd": False}})
    assert audited(quiet) == {"rules.environmentVariables.canAdd": ("", "false")}
    put(quiet, TENANT)


def test_a_text_is_shown_only_where_it_is_an_amount(quiet: Api) -> None:
    compute = {"cpuMemoryRequest": "4Gi", "cpuMemoryLimit": "a-word"}
    put(quiet, TENANT, defaults={"args": "4Gi", "compute": compute})
    assert audited(quiet) == {
        "defaults.args": ("", "***"),
        "defaults.compute.cpuMemoryLimit": ("", "***"),
        "defaults.compute.cpuMemoryRequest": ("", '"4Gi"'),
    }
    put(quiet, TENANT)


@pytest.mark.parametrize("kind", [Spec, DistributedSpec, InferenceSpec])
def test_every_field_of_any_type_is_hidden_in_the_audit(kind: type) -> None:
    """Nobody has looked at what such a field may hold."""

    def free(hints: dict[str, Any]) -> Iterator[str]:
        for name, hint in hints.items():
            bare = get_args(hint)[0] if get_origin(hint) in (Annotated, Required) else hint
            if bare is Any or (get_origin(bare) is dict and name not in HIDDEN):
                yield name
            elif is_typeddict(bare) and name not in HIDDEN:
                yield from free(get_type_hints(bare, include_extras=True))

    assert {*free(get_type_hints(kind, include_extras=True))} <= HIDDEN
