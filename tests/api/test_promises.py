"""Quotas above the machines' size: marked for readers, refused if a setting says so, named by `why`."""

from typing import Any

import pytest

from pliant.wire.organization import OrgUnitItem
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import IMAGE, until

UNITS = "/api/v1/org-unit"
REFUSE, MARK = {"overpromise": "refuse"}, {"overpromise": None}


def resources(gpus: float) -> list[dict[str, Any]]:
    return [{"nodePool": {"name": "default"}, "gpu": {"deserved": gpus}}]


def made(api: Api, name: str, gpus: float, status: int = 201, what: str = "projects", **more: Any) -> Any:
    body = {"name": name, "resources": resources(gpus), **more}
    return api.call("POST", f"{UNITS}/{what}", status, json=body)


def tuned(api: Api, **settings: str | None) -> None:
    api.call("PATCH", "/api/v1/scheduling-settings", json=settings)


def marks(api: Api, name: str, what: str = "projects") -> Any:
    item = api.get(f"{UNITS}/{what}/{name}")
    conform(OrgUnitItem, item)
    return item["status"]["overpromised"]


def test_quotas_beyond_the_machines_are_accepted_and_marked(api: Api) -> None:
    made(api, "a", 1)
    assert marks(api, "a") == []
    found = made(api, "b", 2)["status"]["overpromised"]  # the node has two GPUs
    assert found == [{"nodePoolName": "default", "departmentName": None, "promisedGpus": 3.0, "gpus": 2.0}]
    assert marks(api, "a") == marks(api, "b") == found
    assert marks(api, "default") == [], "who was promised nothing loses nothing"
    api.call("PATCH", f"{UNITS}/projects/b", json={"resources": resources(1)})
    assert marks(api, "a") == marks(api, "b") == []


def test_nothing_is_marked_where_nobody_set_the_quota_of_a_department(api: Api) -> None:
    for name in ("a", "b"):
        made(api, name, 1)  # in department default: the node has two GPUs
    made(api, "none", 0)
    for name in ("default", "a", "b", "none"):
        assert marks(api, name) == []
    assert marks(api, "default", "departments") == []
    api.call("PATCH", f"{UNITS}/projects/default", json={"resources": resources(0)})
    assert marks(api, "default") == marks(api, "default", "departments") == marks(api, "a") == []
    tuned(api, **REFUSE)
    made(api, "more", 0)
    made(api, "lab", 0, what="departments")


def test_quotas_beyond_those_of_their_department_are_marked(api: Api) -> None:
    made(api, "lab", 1, what="departments")
    made(api, "a", 2, departmentName="lab")
    made(api, "other", 1)
    found = [{"nodePoolName": "default", "departmentName": "lab", "promisedGpus": 2.0, "gpus": 1.0}]
    assert marks(api, "a") == marks(api, "lab", "departments") == found
    assert marks(api, "other") == [], "the department promises 1 of the 2 GPUs, whatever is in it"


def test_a_setting_refuses_them(api: Api) -> None:
    tuned(api, **REFUSE)
    made(api, "a", 1)
    told = made(api, "b", 2, 409)
    assert "add up to 3 GPUs; its nodes have 2 GPUs" in told["message"]
    made(api, "b", 1)
    more = {"resources": resources(2)}
    api.call("PATCH", f"{UNITS}/projects/b", 409, json=more)
    api.call("PUT", f"{UNITS}/projects/b/resources", 409, json=resources(2))
    made(api, "lab", 1, 409, what="departments")
    made(api, "lab", 0, what="departments")
    told = api.call("PATCH", f"{UNITS}/projects/a", 409, json={"departmentName": "lab"})
    assert "in department lab add up to 1 GPU" in told["message"]
    tuned(api, **MARK)
    api.call("PATCH", f"{UNITS}/projects/b", json=more)
    tuned(api, **REFUSE)
    api.call("PATCH", f"{UNITS}/projects/b", 409, json={"resources": resources(2.5)})
    api.call("PATCH", f"{UNITS}/projects/b", json={"description": "what was promised may stay"})
    api.call("PATCH", f"{UNITS}/projects/b", json={"resources": resources(1.5)})


def test_a_sheet_is_refused_by_what_it_adds_up_to(api: Api) -> None:
    made(api, "a", 2)
    made(api, "b", 0)
    tuned(api, **REFUSE)
    path = f"{UNITS}/projects/node-pool-resources/batch-patch"

    def sheet(a: float, b: float) -> dict[str, Any]:
        return {"entries": [{"id": "b", "resources": resources(b)}, {"id": "a", "resources": resources(a)}]}

    api.call("POST", path, 409, json=sheet(1.5, 1))
    assert api.get(f"{UNITS}/projects/b")["resources"][0]["gpu"]["deserved"] == 0, "all or none"
    api.call("POST", path, json=sheet(0.5, 1.5))


@pytest.mark.parametrize("word", ["deny", "", "Refuse"])
def test_a_word_that_the_setting_does_not_know(api: Api, word: str) -> None:
    told = api.call("PATCH", "/api/v1/scheduling-settings", 400, json={"overpromise": word})
    assert "mark or refuse" in str(told)


def test_why_says_that_a_promise_cannot_be_kept_and_who_holds_it(api: Api) -> None:
    for name in ("a", "b"):
        made(api, name, 2)

    def submitted(project: str) -> str:
        spec = {"image": IMAGE, "compute": {"gpuDevicesRequest": 2}}
        body = {"name": f"job-{project}", "projectName": project, "spec": spec}
        return str(api.call("POST", "/api/v1/workloads/trainings", 202, json=body)["workloadId"])

    def reason(identity: str) -> Any:
        return api.get(f"/api/v1/workloads/{identity}/why")["reason"] or {}

    held = submitted("b")
    until(lambda: api.get(f"/api/v1/workloads/{held}")["phase"] == "Running")
    waits = submitted("a")
    until(lambda: reason(waits).get("code") == "overpromised")
    told = reason(waits)
    assert {"promised": 4000, "has": 2000, "held": 2000, "holders": "b"}.items() <= told["numbers"].items()
    assert "project b uses 2 GPUs within quota" in told["message"]
