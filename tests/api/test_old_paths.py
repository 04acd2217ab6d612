"""Paths and spellings of older documents: what still works, and what the answer says about the rest."""

from typing import Any

import pytest

from pliant.control.board.view import Board
from pliant.control.service import Service
from pliant.wire.workload import WorkloadList
from tests.api.conform import conform
from tests.api.conftest import Api

WORKLOADS = "/api/v1/workloads"


@pytest.mark.parametrize("body", [b"", b"  ", b"{}"])
def test_a_list_is_had_by_a_post_without_data(api: Api, body: bytes) -> None:
    api.submit("first")
    api.submit("second")
    headers = {"Content-Type": "application/json"}
    told = api.call("POST", WORKLOADS, content=body, headers=headers)
    conform(WorkloadList, told)
    assert [item["name"] for item in told["workloads"]] == ["first", "second"]
    paged = api.call("POST", f"{WORKLOADS}?limit=1&sortBy=name&sortOrder=desc", content=body, headers=headers)
    assert [item["name"] for item in paged["workloads"]] == ["second"]
    assert paged["next"] == 1


def test_a_workload_needs_a_kind(quiet: Api) -> None:
    told = quiet.call("POST", WORKLOADS, 400, json={"name": "a"})
    assert "/api/v1/workloads/trainings" in told["details"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/workloads/training"),
        ("POST", "/api/v1/workloads/distributed-inferences"),
        ("POST", "/api/v2/workloads/nim-services"),
        ("GET", "/api/v1/workloads/distributed-inferences/x"),
        ("POST", "/api/v1/workloads/jobs/x/suspend"),
    ],
)
def test_a_kind_that_there_is_not(quiet: Api, method: str, path: str) -> None:
    told = quiet.call(method, path, 404, json={})
    assert "There is no kind of workloads" in told["message"]
    assert "trainings" in told["details"]


@pytest.mark.parametrize(
    ("path", "successor"),
    [
        ("/api/v1/apps", "/api/v1/service-accounts"),
        ("/api/v1/apps/7", "/api/v1/service-accounts"),
        ("/api/v1/user-applications", "/api/v1/access-keys"),
        ("/api/v1/administration/user-applications/1", "/api/v1/administration/access-keys"),
        ("/api/v1/clusters/abc/nodes", "/api/v1/nodes"),
        ("/api/v1/authorization/roles", "/api/v2/authorization/roles"),
        ("/api/v1/asset/workload-template/trainings", "/api/v1/workload-templates"),
    ],
)
def test_a_removed_path_names_its_successor(quiet: Api, path: str, successor: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        told = quiet.call(method, path, 404)
        assert told["details"] == f"Use {successor}."


def quota(**rank: str) -> list[dict[str, Any]]:
    return [{"nodePool": {"name": "default"}, "gpu": {"deserved": 1}, **rank}]


@pytest.mark.parametrize(
    ("sent", "rank", "priority"),
    [
        ({"rank": "VeryHigh"}, "VeryHigh", "Very High"),
        ({"priority": "Medium Low"}, "MediumLow", "Medium Low"),
        ({"rank": "MediumLow", "priority": "medium-low"}, "MediumLow", "Medium Low"),
    ],
)
def test_a_rank_by_both_names(api: Api, sent: dict[str, str], rank: str, priority: str) -> None:
    body = {"name": "ranked", "resources": quota(**sent)}
    made = api.call("POST", "/api/v1/org-unit/projects", 201, json=body)
    assert (made["resources"][0]["rank"], made["resources"][0]["priority"]) == (rank, priority)
    again = api.get("/api/v1/org-unit/projects/ranked")
    assert again["resources"] == made["resources"]


def test_two_ranks_at_once_are_refused(quiet: Api) -> None:
    body = {"name": "ranked", "resources": quota(rank="High", priority="low")}
    told = quiet.call("POST", "/api/v1/org-unit/projects", 400, json=body)
    assert [entry["field"] for entry in told["fields"]] == ["resources.rank"]


def test_endpoints_beside_urls(api: Api) -> None:
    made = api.submit("served", exposedUrls=[{"container": 8080}])
    item = api.running(made["workloadId"])
    assert item["urls"] == [entry["url"] for entry in item["endpoints"]] != []
    assert item["endpoints"][0]["containerPort"] == 8080


class TwoBoards:
    """A service whose board shows no workload at every second read."""

    def __init__(self, full: Board, empty: Board) -> None:
        self.boards = (full, empty)
        self.looks = 0

    def __get__(self, service: Service | None, owner: type) -> Board:
        self.looks += 1
        return self.boards[(self.looks + 1) % 2]


def test_an_answer_is_made_from_one_board(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload may go between two reads: the answer is then "not found", not a server error."""
    empty = api.stage.service.board
    identity = api.submit("here")["workloadId"]
    api.running(identity)
    waits = api.submit("waits", gpus=2)["workloadId"]
    full = api.stage.service.board
    for path in (
        WORKLOADS,
        f"{WORKLOADS}/{identity}",
        f"{WORKLOADS}/{identity}/pods",
        f"{WORKLOADS}/{waits}/why",
        "/api/v1/queue",
        "/api/v1/org-unit/projects/default",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Service, "board", TwoBoards(full, empty), raising=False)
            answer = api.http.get(path)
        assert answer.status_code in (200, 404), (path, answer.text)
