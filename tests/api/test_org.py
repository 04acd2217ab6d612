"""Projects, departments, ranks."""

from typing import Any

import pytest
from inline_snapshot import snapshot

from pliant.wire.organization import DepartmentList, OrgUnitItem, PoolQuota, ProjectList
from tests.api.conform import conform
from tests.api.conftest import Api

UNITS = "/api/v1/org-unit"


def made(api: Api, what: str, **body: Any) -> Any:
    found = api.call("POST", f"{UNITS}/{what}s", 201, json=body)
    conform(OrgUnitItem, found)
    return found


def gpu(item: Any) -> Any:
    return item["resources"][0]["gpu"]


def test_a_project_as_its_clients_make_it(api: Api) -> None:
    project = made(
        api,
        "project",
        name="team-a",
        clusterId="11111111-2222-3333-4444-555555555555",
        description="the A team",
        resources=[
            {
                "nodePool": {"id": "default", "name": "default"},
                "gpu": {"deserved": 1.5, "limit": 2, "overQuotaWeight": 3},
                "cpu": {"deserved": 500, "limit": None},
                "memory": {"deserved": 1, "limit": 2, "units": "GB"},
                "priority": "medium-high",
            }
        ],
        schedulingRules={"interactiveJobTimeLimitSeconds": 60},
        nodeTypes={"training": ["a"], "workspace": ["b"], "names": {}},
        defaultNodePools=["default"],
        enforceRunaiScheduler=True,
    )
    assert project["resources"] == snapshot(
        [
            {
                "nodePool": {"id": "default", "name": "default"},
                "gpu": {"deserved": 1.5, "limit": 2.0, "overQuotaWeight": 3.0},
                "cpu": {"deserved": 500.0, "limit": None, "overQuotaWeight": None},
                "memory": {"deserved": 1000.0, "limit": 2000.0, "overQuotaWeight": None, "units": "MB"},
                "rank": "MediumHigh",
                "priority": "Medium High",
                "reclaimMinRuntimeSeconds": None,
                "preemptMinRuntimeSeconds": None,
            }
        ]
    )
    assert project["schedulingRules"]["interactiveJobTimeLimitSeconds"] == 60
    assert project["nodeTypes"] == {"training": ["a"], "workspace": ["b"]}
    assert project["status"]["namespace"] == "runai-team-a"
    assert (project["departmentName"], project["quotaDerived"]) == ("default", False)
    assert project["totalResources"]["gpuQuota"] == 1.5
    for key in (project["id"], "team-a"):
        assert api.get(f"{UNITS}/projects/{key}") == project


def test_lists(api: Api) -> None:
    for name, quota in (("team-b", 1), ("team-a", 2)):
        made(api, "project", name=name, resources=[{"gpu": {"deserved": quota}}])
    found = api.get(f"{UNITS}/projects")
    conform(ProjectList, found)
    assert [item["name"] for item in found["projects"]] == ["default", "team-b", "team-a"]
    assert [item["name"] for item in api.get(f"{UNITS}/projects", sortBy="name")["projects"]] == [
        "default",
        "team-a",
        "team-b",
    ]
    assert api.get(f"{UNITS}/projects/count", filterBy="totalGpuQuota>=1") == {"count": 2}
    departments = api.get(f"{UNITS}/departments")
    conform(DepartmentList, departments)
    assert [item["name"] for item in departments["departments"]] == ["default"]


def test_a_change_leaves_what_it_does_not_name(api: Api) -> None:
    made(
        api,
        "project",
        name="p",
        description="x",
        resources=[{"gpu": {"deserved": 1, "limit": 2}}],
        schedulingRules={"trainingJobTimeLimitSeconds": 5, "interactiveJobTimeLimitSeconds": 6},
    )
    path = f"{UNITS}/projects/p"
    changed = api.call("PATCH", path, json={"resources": [{"gpu": {"overQuotaWeight": 0}}]})
    assert gpu(changed) == {"deserved": 1.0, "limit": 2.0, "overQuotaWeight": 0.0}
    changed = api.call("PUT", path, json={"schedulingRules": {"trainingJobTimeLimitSeconds": None}})
    assert changed["schedulingRules"]["trainingJobTimeLimitSeconds"] is None
    assert changed["schedulingRules"]["interactiveJobTimeLimitSeconds"] == 6
    assert changed["description"] == "x"
    for unlimited in (None, -1):
        body = [{"gpu": {"deserved": 2, "limit": unlimited}}]
        [entry] = api.call("PATCH", f"{path}/resources", json=body)
        conform(PoolQuota, entry)
        assert entry["gpu"] == {"deserved": 2.0, "limit": None, "overQuotaWeight": 0.0}
    assert gpu(api.call("PUT", path, json={"name": "p"}))["deserved"] == 2.0


def test_departments_hold_projects(api: Api) -> None:
    department = made(api, "department", name="research", resources=[{"gpu": {"deserved": 1}}])
    project = made(api, "project", name="p", parentId=department["id"])
    assert (project["parentId"], project["departmentName"]) == (department["id"], "research")
    moved = api.call("PATCH", f"{UNITS}/projects/p", json={"departmentName": "default"})
    assert moved["departmentName"] == "default"
    api.call("DELETE", f"{UNITS}/departments/research", 204)
    api.get(f"{UNITS}/departments/research", 404)


def test_departments_hold_departments(api: Api) -> None:
    above = made(api, "department", name="research")
    below = made(api, "department", name="vision", departmentName="research")
    assert (below["parentId"], below["departmentName"]) == (above["id"], "research")
    path = f"{UNITS}/departments/research"
    assert "departments belong to it: vision" in api.call("DELETE", path, 409)["message"]
    loop = api.call("PATCH", path, 409, json={"parentId": below["id"]})
    assert loop["message"] == "Department research cannot be below vision, which is below it."
    assert api.call("PATCH", path, 409, json={"departmentName": "research"})["status"] == 409
    up = api.call("PATCH", f"{UNITS}/departments/vision", json={"departmentName": ""})
    assert (up["parentId"], up["departmentName"]) == ("", "")
    api.call("DELETE", path, 204)
    fixed = api.call("PATCH", f"{UNITS}/departments/default", 409, json={"departmentName": "vision"})
    assert fixed["message"] == "The department 'default' is always at the top."


def test_minimum_run_times_and_a_weight_are_set_and_unset(api: Api) -> None:
    entry = {"reclaimMinRuntimeSeconds": 120, "preemptMinRuntimeSeconds": 0, "gpu": {"overQuotaWeight": 2}}
    project = made(api, "project", name="p", resources=[entry])
    [told] = project["resources"]
    assert (told["reclaimMinRuntimeSeconds"], told["preemptMinRuntimeSeconds"]) == (120.0, 0.0)
    assert told["gpu"]["overQuotaWeight"] == 2.0
    entry = {"reclaimMinRuntimeSeconds": None, "gpu": {"overQuotaWeight": None}}
    [told] = api.call("PATCH", f"{UNITS}/projects/p", json={"resources": [entry]})["resources"]
    assert (told["reclaimMinRuntimeSeconds"], told["preemptMinRuntimeSeconds"]) == (None, 0.0)
    assert told["gpu"]["overQuotaWeight"] is None


def test_what_stands_in_the_way_of_deleting(api: Api) -> None:
    api.submit("a")
    assert "default" in api.call("DELETE", f"{UNITS}/projects/default", 409)["message"]
    made(api, "project", name="p")
    api.call("DELETE", f"{UNITS}/projects/p", 204)
    api.call("DELETE", f"{UNITS}/projects/p", 404)
    assert "projects" in api.call("DELETE", f"{UNITS}/departments/default", 409)["message"]


def test_a_quota_below_what_cannot_be_stopped(api: Api) -> None:
    api.running(api.submit("a", gpus=2, kind="workspaces")["workloadId"])
    body = {"resources": [{"gpu": {"deserved": 1}}]}
    found = api.call("PATCH", f"{UNITS}/projects/default", 409, json=body)
    assert "uses 2 GPUs" in found["message"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "name must be given."),
        ({"name": "default"}, 409, "A project named 'default' already exists."),
        ({"name": "Team"}, 400, "'Team' cannot be the name of a project."),
        ({"name": "p", "parentId": "99"}, 404, "There is no department '99'."),
        (
            {"name": "p", "resources": [{"nodePool": {"name": "fast"}, "gpu": {"deserved": 1}}]},
            404,
            "There is no node pool 'fast'.",
        ),
        ({"name": "p", "resources": [{"priority": "top"}]}, 400, "There is no rank 'top'."),
        (
            {"name": "p", "resources": [{"gpu": {"deserved": 2, "limit": 1}}]},
            400,
            "The limit of 1 GPU is below the quota.",
        ),
        (
            {"name": "p", "resources": [{"cpu": {"deserved": 8000, "limit": 4000}}]},
            400,
            "The limit of 4 cores is below the quota of 8 cores.",
        ),
        (
            {"name": "p", "resources": [{"memory": {"deserved": 8000, "limit": 4000}}]},
            400,
            "The limit of 4G of memory is below the quota of 8G of memory.",
        ),
        (
            {"name": "p", "resources": [{"gpu": {"deserved": -1}}]},
            400,
            "resources: gpu.deserved is -1.",
        ),
        (
            {"name": "p", "resources": [{"gpu": {"quota": 2}}]},
            400,
            "resources[0].gpu: there is no field 'quota' here;"
            " the fields are deserved, limit, overQuotaWeight.",
        ),
        (
            {"name": "p", "resources": [{"gpu": {"deserved": 1}}, {"nodePool": {"name": "default"}}]},
            400,
            "resources: pool default is named twice.",
        ),
        (
            {"name": "p", "resources": [{"gpu": {"deserved": -0.5}}]},
            400,
            "resources: gpu.deserved is -0.5.",
        ),
        (
            {"name": "p", "resources": [{"gpu": {"deserved": 0.0001}}]},
            400,
            "resources: gpu.deserved is 0.0001, which has too many decimals.",
        ),
    ],
)
def test_refused(quiet: Api, body: dict[str, Any], status: int, message: str) -> None:
    assert quiet.call("POST", f"{UNITS}/projects", status, json=body)["message"] == message
    assert quiet.get(f"{UNITS}/projects/count") == {"count": 1}


def test_a_name_stays(quiet: Api) -> None:
    found = quiet.call("PUT", f"{UNITS}/projects/default", 400, json={"name": "other"})
    assert found["message"] == "The name of a project cannot be changed."


def test_a_namespace_follows_from_the_name(api: Api) -> None:
    path = f"{UNITS}/projects/default"
    for body in ({}, {"name": "default"}):
        api.call("PATCH", path, json={**body, "requestedNamespace": "runai-default"})
        found = api.call("PATCH", path, 400, json={**body, "requestedNamespace": "runai-None"})
        assert found["message"] == "The namespace 'runai-None' cannot be chosen."
    made(api, "project", name="p", requestedNamespace="runai-p")


def test_ranks_and_priorities(api: Api) -> None:
    ranks = api.get(f"{UNITS}/priorities")["priorities"]
    assert api.get(f"{UNITS}/ranks") == {"ranks": ranks}
    assert [rank["name"] for rank in ranks if rank["isDefault"]] == ["Medium Low"]
    assert [rank["value"] for rank in ranks] == sorted(rank["value"] for rank in ranks)
    for rank in ranks:
        changed = api.call(
            "PATCH", f"{UNITS}/projects/default", json={"resources": [{"priority": rank["name"]}]}
        )
        assert changed["resources"][0]["priority"] == rank["name"]
    values = {entry["name"]: entry["value"] for entry in api.get("/api/v1/workload-priorities")["priorities"]}
    assert (values["low"], values["very-high"]) == (40, 150)


def test_two_administrators_who_change_different_things_at_once_lose_nothing(api: Api) -> None:
    """Both read the old state before either writes."""
    project = f"{UNITS}/projects/{made(api, 'project', name='both')['id']}"
    policy = "/api/v2/policy/trainings"
    meta = {"scope": "tenant"}
    api.call("PUT", policy, json={"meta": meta, "policy": {"defaults": {"image": "a"}}})

    def both(path: str, *bodies: Any) -> None:
        assert api.at_once(*(("PATCH", path, body) for body in bodies)) == [200, 200]

    rules = ({"trainingJobTimeLimitSeconds": 60}, {"interactiveJobTimeLimitSeconds": 90})
    both(project, *({"schedulingRules": rule} for rule in rules))
    found = api.call("GET", project)["schedulingRules"]
    assert (found["trainingJobTimeLimitSeconds"], found["interactiveJobTimeLimitSeconds"]) == (60, 90)
    both(
        project, *({"resources": [share]} for share in ({"gpu": {"deserved": 1}}, {"cpu": {"deserved": 500}}))
    )
    (quota,) = api.call("GET", project)["resources"]
    assert (quota["gpu"]["deserved"], quota["cpu"]["deserved"]) == (1, 500)
    parts = ({"rules": {"backoffLimit": {"max": 3}}}, {"defaults": {"backoffLimit": 2}})
    both(policy, *({"meta": meta, "policy": part} for part in parts))
    kept = api.call("GET", policy, params=meta)["policy"]
    assert kept["defaults"] == {"image": "a", "backoffLimit": 2} and kept["rules"] == parts[0]["rules"]


def test_two_administrators_who_do_the_same_at_once(api: Api) -> None:
    create = ("POST", f"{UNITS}/projects", {"name": "same"})
    assert sorted(api.at_once(create, create)) == [201, 409]
    (project,) = (it for it in api.get(f"{UNITS}/projects")["projects"] if it["name"] == "same")
    delete = ("DELETE", f"{UNITS}/projects/{project['id']}", None)
    assert sorted(api.at_once(delete, delete)) == [204, 404]
    change = ("PATCH", f"{UNITS}/projects/{made(api, 'project', name='gone')['id']}", {"description": "x"})
    one, other = api.at_once(("DELETE", change[1], None), change)
    assert one == 204 and other in (200, 404)
