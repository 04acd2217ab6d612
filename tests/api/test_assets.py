"""Environments, compute resources and templates: kept by scope, and what a submission becomes with them."""

from typing import Any

import pytest

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
        (TEMPLATES, {}, {"numWorkers": 2}, 400, "spec.numWorkers"),
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
