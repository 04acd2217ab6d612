"""Changes of quotas: refused if they changed since they were read; several are made all or none."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.conftest import Api

ORG = "/api/v1/org-unit"


def quota(gpus: float, **more: Any) -> list[dict[str, Any]]:
    return [{"nodePool": {"name": "default"}, "gpu": {"deserved": gpus}, **more}]


def of(api: Api, kind: str, name: str) -> float:
    amount: float = api.get(f"{ORG}/{kind}/{name}")["resources"][0]["gpu"]["deserved"]
    return amount


@pytest.fixture(params=["projects", "departments"])
def kind(request: pytest.FixtureRequest, api: Api) -> str:
    for name in ("a", "b", "c"):
        api.call("POST", f"{ORG}/{request.param}", 201, json={"name": name, "resources": quota(1)})
    return str(request.param)


def test_two_changes_with_one_etag(api: Api, kind: str) -> None:
    read = api.http.get(f"{ORG}/{kind}/a")
    match = {"If-Match": read.headers["etag"]}

    def change(gpus: int) -> int:
        answer = api.http.patch(f"{ORG}/{kind}/a/resources", json=quota(gpus), headers=match)
        return answer.status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(change, (2, 3))) == [200, 412]
    assert of(api, kind, "a") in (2, 3)
    again = api.http.get(f"{ORG}/{kind}/a")
    assert again.headers["etag"] != read.headers["etag"]
    for method, path, body in (
        ("PUT", f"{ORG}/{kind}/a", {"description": "x"}),
        ("PATCH", f"{ORG}/{kind}/a", {"resources": quota(9)}),
    ):
        told = api.call(method, path, 412, json=body, headers=match)
        assert told["reason"] == "precondition-failed"
    for good in ("{}", "*", '"x", {}', "W/{}"):
        match = {"If-Match": good.format(again.headers["etag"])}
        again = api.http.put(f"{ORG}/{kind}/a", json={"description": f"same {good}"}, headers=match)
        assert again.status_code == 200, again.text
    assert api.get(f"{ORG}/{kind}/a")["description"] == "same W/{}"


def test_use_alone_does_not_change_the_etag(api: Api) -> None:
    before = api.http.get(f"{ORG}/projects/default").headers["etag"]
    api.running(api.submit("busy")["workloadId"])
    assert api.http.get(f"{ORG}/projects/default").headers["etag"] == before


def test_a_sheet_changes_all(api: Api, kind: str) -> None:
    entries = [{"id": name, "resources": quota(gpus)} for gpus, name in enumerate("abc", 2)]
    told = api.call("POST", f"{ORG}/{kind}/node-pool-resources/batch-patch", json={"entries": entries})
    assert [unit["name"] for unit in told[kind]] == ["a", "b", "c"]
    assert [of(api, kind, name) for name in "abc"] == [2, 3, 4]


BEYOND = quota(5, gpu={"deserved": 5, "limit": 1})


@pytest.mark.parametrize(
    ("bad", "status", "field"),
    [
        ({"id": "nobody", "resources": quota(5)}, 404, "entries[1]."),
        ({"id": "b", "resources": BEYOND}, 400, "entries[1].resources.gpu.limit"),
        ({"id": "b", "resources": quota(5), "etag": '"old"'}, 412, "entries[1]"),
        ({"id": "a", "resources": quota(5)}, 400, "entries[1].id"),
        ({"id": "b", "resources": [{"nodePool": {"name": "nowhere"}}]}, 404, "entries[1].nodePool"),
        ({"id": "b", "resources": []}, 400, "entries[1].resources"),
    ],
)
def test_a_bad_row_changes_nothing(api: Api, kind: str, bad: Any, status: int, field: str) -> None:
    rows = [{"id": "a", "resources": quota(7)}, bad, {"id": "c", "resources": quota(7)}]
    path = f"{ORG}/{kind}/node-pool-resources/batch-patch"
    told = api.call("POST", path, status, json={"entries": rows})
    assert told["fields"][0]["field"].startswith(field)
    assert [of(api, kind, name) for name in "abc"] == [1, 1, 1]
