"""Environments, compute resources and templates: kept by scope, and what a submission becomes with them."""

from pathlib import Path
from typing import Any

import pytest

from pliant.api.identity.vault import Vault
from tests.api.conftest import Api
from tests.api.stage import IMAGE

ENVIRONMENTS, COMPUTE = "/api/v1/asset/environment", "/api/v1/asset/compute"
TEMPLATES = "/api/v1/workload-templates/trainings"
TRAININGS = "/api/v1/workloads/trainings"


def kept(api: Api, path: str, name: str, spec: Any, status: int = 202, **meta: Any) -> Any:
    return api.call("POST", path, status, json={"meta": {"name": name, **meta}, "spec": spec})


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (ENVIRONMENTS, {"image": IMAGE, "command": "sleep"}),
        (COMPUTE, {"gpuDevicesRequest": 1}),
        (TEMPLATES, {"image": IMAGE, "compute": {"gpuDevicesRequest": 1}}),
    ],
)
def test_the_life_of_an_asset(api: Api, path: str, spec: Any) -> None:
    made = kept(api, path, "one", spec, description="first", scope="project", projectId="default")
    identity = made["meta"]["id"]
    project = api.get("/api/v1/org-unit/projects/default")["id"]
    assert (made["meta"]["scope"], made["meta"]["projectId"], made["spec"]) == ("project", project, spec)
    assert made["meta"]["createdBy"]
    kept(api, path, "two", spec)
    assert api.get(f"{path}/count") == {"count": 2}
    listed = api.get(path, limit=1, sortBy="name", sortOrder="desc")
    assert [entry["meta"]["name"] for entry in listed["entries"]] == ["two"]
    assert listed["pagination"] == {"limit": 1, "offset": 0, "nextOffset": 1}
    again = kept(api, path, "one", spec, 409, scope="project", projectId="default")
    assert again["fields"][0]["field"] == "meta.name"
    assert api.get(f"{path}/name-availability", name="one") == {"available": False}
    changed = api.call("PATCH", f"{path}/{identity}", json={"meta": {"name": "uno"}})
    assert (changed["meta"]["name"], changed["spec"]) == ("uno", spec)
    assert api.get(f"{path}/{identity}") == changed
    api.call("DELETE", f"{path}/{identity}", 204)
    api.call("GET", f"{path}/{identity}", 404)
    api.call("DELETE", f"{path}/{identity}", 404)


@pytest.mark.parametrize(
    ("path", "meta", "spec", "status", "field"),
    [
        (COMPUTE, {}, {"gpuDeviceRequest": 1}, 400, "spec"),
        (COMPUTE, {"scope": "project"}, {}, 400, "meta.scopeId"),
        (COMPUTE, {"scope": "project", "projectId": "nobody"}, {}, 404, "meta.scopeId"),
        (COMPUTE, {"scope": "galaxy"}, {}, 400, "meta.scope"),
        (COMPUTE, {"name": "No"}, {}, 400, "name"),
        (TEMPLATES, {}, {"numWorkers": 2}, 400, "spec"),
        (ENVIRONMENTS, {}, {"image": "a\0"}, 400, "spec.image"),
    ],
)
def test_assets_that_cannot_be(quiet: Api, path: str, meta: Any, spec: Any, status: int, field: str) -> None:
    told = quiet.call("POST", path, status, json={"meta": {"name": "a", **meta}, "spec": spec})
    assert told["fields"][0]["field"] == field
    assert quiet.get(f"{path}/count") == {"count": 0}


def test_a_submission_from_assets_and_a_template(api: Api) -> None:
    kept(api, ENVIRONMENTS, "quick", {"image": IMAGE})
    kept(api, COMPUTE, "one-gpu", {"gpuDevicesRequest": 1})
    template = kept(api, TEMPLATES, "usual", {"category": "Study", "compute": {"cpuCoreRequest": 2}})
    body = {
        "name": "a",
        "projectName": "default",
        "assets": {"environment": "quick", "compute": "one-gpu"},
        "templateId": template["meta"]["id"],
        "spec": {"backoffLimit": 3},
    }
    made = api.call("POST", TRAININGS, 202, json=body)
    spec = made["spec"]
    assert (spec["image"], spec["category"], spec["backoffLimit"]) == (IMAGE, "Study", 3)
    assert (spec["compute"]["gpuDevicesRequest"], spec["compute"]["cpuCoreRequest"]) == (1, 2)
    assert made["notices"] == []
    told = api.call("POST", TRAININGS, 404, json={**body, "name": "b", "templateId": "nothing"})
    assert told["fields"][0]["field"] == "templateId"
    told = api.call("POST", TRAININGS, 404, json={**body, "name": "b", "assets": {"compute": "nothing"}})
    assert told["fields"][0]["field"] == "assets.compute"


def test_what_belongs_to_another_project_is_not_found(api: Api) -> None:
    api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "other"})
    kept(api, ENVIRONMENTS, "secret", {"image": IMAGE}, scope="project", projectId="other")
    body = {"name": "a", "projectName": "default", "assets": {"environment": "secret"}}
    api.call("POST", TRAININGS, 404, json=body)
    api.call("DELETE", "/api/v1/org-unit/projects/other", 204)
    assert api.get(f"{ENVIRONMENTS}/count") == {"count": 0}


def test_assets_live_on_in_the_store(api: Api) -> None:
    made = kept(api, COMPUTE, "one-gpu", {"gpuDevicesRequest": 1})
    api.stage.loop.call(lambda draft: api.stage.loop.state.rebuild(api.stage.store.load()))
    assert api.get(f"{COMPUTE}/{made['meta']['id']}")["spec"] == {"gpuDevicesRequest": 1}


PASSWORDS, SECRETS = "/api/v1/asset/credentials/password", "/api/v1/asset/credentials/generic-secret"
GIT = "/api/v1/asset/datasource/git"
VALUE = "hunter2-and-more"
PAIR = {"key": "a", "value": VALUE}


def test_a_credential_is_sealed_and_reaches_the_job_alone(api: Api, tmp_path: Path) -> None:
    made = kept(api, PASSWORDS, "robot", {"user": "me", "password": VALUE})
    assert (made["meta"]["kind"], made["spec"]) == ("password", {"user": "me", "password": None})
    pairs = [{"key": "token", "value": VALUE}, {"key": "other", "value": "x"}]
    secret = kept(api, SECRETS, "hub", {"keyValuePairs": pairs}, scope="project", projectId="default")
    assert secret["spec"]["keyValuePairs"] == [{"key": key, "value": None} for key in ("other", "token")]
    variables = [
        {"name": "HUB", "credential": {"assetId": "hub", "key": "token"}},
        {"name": "ME", "credential": {"assetId": made["meta"]["id"], "key": "user"}},
        {"name": "TEST_OUTPUT", "value": "plain"},
    ]
    job = api.submit("a", None, environmentVariables=variables)
    shown = {entry["name"]: entry["value"] for entry in job["spec"]["environmentVariables"]}
    assert shown == dict.fromkeys(("HUB", "ME", "TEST_OUTPUT"), "***")
    assert job["notices"] == []
    api.running(job["workloadId"])
    given = dict(api.stage.machines.sealed[job["workloadId"]][""].given)
    assert (given["HUB"], given["ME"]) == (VALUE, "me")
    told = [api.get(path) for path in (PASSWORDS, SECRETS, "/api/v1/audit/log", "/api/v1/events")]
    assert VALUE not in str(told)
    on_disk = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"robot" in on_disk
    assert VALUE.encode() not in on_disk


@pytest.mark.parametrize(
    ("credential", "status", "field"),
    [
        ({"assetId": "nothing", "key": "user"}, 404, "spec.environmentVariables[0].credential"),
        ({"assetId": "robot", "key": "token"}, 400, "spec.environmentVariables[0].credential"),
        ({"assetId": "foreign", "key": "user"}, 404, "spec.environmentVariables[0].credential"),
        ({"assetId": "robot"}, 400, "spec.environmentVariables[0].credential.key"),
    ],
)
def test_a_value_that_cannot_be_had(api: Api, credential: Any, status: int, field: str) -> None:
    api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "other"})
    kept(api, PASSWORDS, "robot", {"user": "me", "password": VALUE})
    kept(api, PASSWORDS, "foreign", {"password": VALUE}, scope="project", projectId="other")
    spec = {"image": IMAGE, "environmentVariables": [{"name": "A", "credential": credential}]}
    told = api.call("POST", TRAININGS, status, json={"name": "a", "projectName": "default", "spec": spec})
    assert told["fields"][0]["field"] == field
    assert VALUE not in str(told)


def test_credentials_of_a_server_with_another_secret_are_set_again(api: Api) -> None:
    made = kept(api, PASSWORDS, "robot", {"user": "me", "password": VALUE})
    app: Any = api.http.app
    app.state.context.authority.vault = Vault(b"the secret of another state folder")
    spec = {
        "image": IMAGE,
        "environmentVariables": [{"name": "A", "credential": {"assetId": "robot", "key": "user"}}],
    }
    body = {"name": "a", "projectName": "default", "spec": spec}
    told = api.call("POST", TRAININGS, 409, json=body)
    assert "sealed by a server with another secret" in told["message"]
    again = {"spec": {"user": "me", "password": VALUE}}
    api.call("PATCH", f"{PASSWORDS}/{made['meta']['id']}", json=again)
    api.call("POST", TRAININGS, 202, json=body)


@pytest.mark.parametrize(
    ("path", "spec", "other"),
    [
        (TEMPLATES, {"image": IMAGE}, {"image": IMAGE, "args": VALUE}),
        (PASSWORDS, {"user": "me", "password": VALUE}, {"user": "me", "password": f"{VALUE}2"}),
        (SECRETS, {"keyValuePairs": [PAIR]}, {"keyValuePairs": [PAIR, {"key": "b", "value": VALUE}]}),
        (GIT, {"repository": f"https://me:{VALUE}@example.org/a"}, {"repository": "https://example.org/b"}),
    ],
)
def test_the_audit_says_which_asset_was_changed_and_not_what_is_in_it(
    api: Api, path: str, spec: Any, other: Any
) -> None:
    identity = kept(api, path, "one", spec)["meta"]["id"]
    api.call("PATCH", f"{path}/{identity}", json={"meta": {"name": "two"}, "spec": other})
    api.call("DELETE", f"{path}/{identity}", 204)
    made, changed, gone = [record for _, record in api.stage.service.audited(0, 2**60)]
    about = [(it.entity, it.entity_id, it.entity_name) for it in (made, changed, gone)]
    assert about == [("Asset", identity, name) for name in ("one", "two", "two")]
    assert {"Asset.kind", "Asset.name", "Asset.scope", "Asset.body"} <= {it.field for it in made.changes}
    told = [(it.field, it.before, it.after) for it in changed.changes]
    assert told == [("Asset.name", '"one"', '"two"'), ("Asset.body", "***", "***")]
    assert [(it.field, it.before, it.after) for it in gone.changes] == [("Asset", '"two"', "")]
    assert VALUE not in str((made, changed, gone))


def test_the_audit_says_which_policy_was_changed(api: Api) -> None:
    path = "/api/v2/policy/trainings"
    for most in (1, 2):
        rules = {"compute": {"gpuDevicesRequest": {"max": most}}}
        api.call("PUT", path, json={"meta": {"scope": "tenant"}, "policy": {"rules": rules}})
    api.call("DELETE", path, 204, params={"scope": "tenant"})
    records = [record for _, record in api.stage.service.audited(0, 2**60)]
    assert [it.entity for it in records] == ["Asset"] * 3 and records[0].entity_id
    changed = [(it.field, it.before, it.after) for it in records[1].changes]
    assert changed == [("Asset.body.rules.compute.gpuDevicesRequest.max", "1", "2")]


def test_the_deletion_of_a_project_with_assets_is_about_the_project(api: Api) -> None:
    project = api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "other"})["id"]
    kept(api, ENVIRONMENTS, "one", {"image": IMAGE}, scope="project", projectId="other")
    api.call("POST", "/api/v1/users", 201, json={"email": "anna"})
    rule = {"subjectId": "anna", "subjectType": "user", "roleName": "Viewer"}
    rule |= {"scopeType": "project", "scopeId": project}
    api.call("POST", "/api/v1/authorization/access-rules", 201, json=rule)
    api.call("DELETE", "/api/v1/org-unit/projects/other", 204)
    record = [record for _, record in api.stage.service.audited(0, 2**60)][-1]
    assert (record.entity, record.entity_name) == ("Project", "other")
    assert {it.field for it in record.changes} >= {"Asset", "AccessRule", "Project"}


def test_a_data_source_becomes_a_volume_of_the_job(api: Api) -> None:
    kept(api, PASSWORDS, "robot", {"user": "me", "password": VALUE})
    kept(api, GIT, "code", {"repository": "https://example.org/code.git", "credentialId": "robot"})
    kept(api, "/api/v1/asset/datasource/host-path", "data", {"path": "/srv/data", "mountPath": "in"})
    kept(api, "/api/v1/asset/datasource/nfs", "far", {"server": "files", "path": "/srv"})
    body = {
        "name": "a",
        "projectName": "default",
        "assets": {
            "datasources": [{"id": "code", "kind": "git"}, {"id": "data"}, {"id": "far", "kind": "nfs"}]
        },
        "spec": {"image": IMAGE, "storage": {"git": [{"repository": "own", "path": "own", "branch": "b"}]}},
    }
    made = api.call("POST", TRAININGS, 202, json=body)
    assert made["spec"]["storage"] == {
        "git": [
            {"repository": "own", "path": "own", "branch": "b"},
            {"repository": "https://example.org/code.git", "name": "code"},
        ],
        "hostPath": [{"path": "/srv/data", "mountPath": "in", "readOnly": True, "name": "data"}],
        "nfs": [{"path": "/srv", "server": "files", "readOnly": True, "name": "far"}],
    }
    given = dict(api.stage.machines.sealed[made["workloadId"]][""].given)
    assert given == {"VOLUME_1_USER": "me", "VOLUME_1_PASSWORD": VALUE}
    again = api.call(
        "POST",
        TRAININGS,
        202,
        json={"name": "b", "projectName": "default", "spec": made["spec"] | {"environmentVariables": []}},
    )
    assert again["spec"]["storage"] == made["spec"]["storage"]
    told = api.call(
        "POST", TRAININGS, 404, json={**body, "name": "c", "assets": {"datasources": [{"id": "x"}]}}
    )
    assert told["fields"][0]["field"] == "assets.datasources[0]"


def test_what_of_an_asset_does_nothing_is_said(api: Api) -> None:
    spec = {"path": "/srv", "mountPropagation": "HostToContainer"}
    made = kept(api, "/api/v1/asset/datasource/host-path", "data", spec)
    assert made["notices"] == ["These fields have no effect here: spec.mountPropagation."]
    body = {
        "name": "a",
        "projectName": "default",
        "spec": {"image": IMAGE, "storage": {"pvc": [{"name": "x"}]}},
    }
    made = api.call("POST", TRAININGS, 202, json=body)
    assert made["notices"] == ["These fields have no effect here: spec.storage.pvc."]
