"""The API's questions: what unblocks, hidden names, what-if, drains, the record; and what is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pliant.api.identity.auth import Authority
from pliant.control.clock import SteadyClock
from pliant.engines.virtual.machines import Machines
from pliant.engines.virtual.timeline import Timeline
from pliant.model.machine import Node
from pliant.wire.questions import DrainItem, Fairness, Queue, ReplayItem, WhatIfItem, WhyItem
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import TOKEN, behaviour, nodes, stage
from tests.api.stage import until as until_in

WORKLOADS = "/api/v1/workloads"


def until(true: Callable[[], object]) -> None:
    """Polls for as long as a busy machine may take."""
    until_in(true, 60)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    with (
        stage(tmp_path) as made,
        TestClient(made.app(), headers=owner, raise_server_exceptions=False) as http,
    ):
        yield Api(made, http)


def waiting(api: Api) -> str:
    """One workload that holds both GPUs for good, and one that waits."""
    api.running(api.submit("busy", gpus=2, kind="workspaces")["workloadId"])
    identity = api.submit("patient", gpus=2)["workloadId"]
    until(lambda: api.item(identity)["reason"] is not None)
    return identity


def test_what_unblocks_it(api: Api) -> None:
    identity = waiting(api)
    why = api.get(f"{WORKLOADS}/{identity}/why", full=True)
    conform(WhyItem, why)
    found = {remedy["kind"]: remedy for remedy in why["unblock"]["remedies"]}
    assert {"end", "machines"} <= found.keys()
    (busy,) = found["end"]["steps"][0]["whom"]
    assert (busy["name"], busy["project"]) == ("busy", "default") and busy["id"]
    assert found["machines"]["steps"][0]["count"] == 2000
    assert why["unblock"]["never"] is False
    assert why["unblock"]["start"]["unknown"]
    assert api.get(f"{WORKLOADS}/{identity}/why")["unblock"]["remedies"]


def logged_in(api: Api, user: str) -> dict[str, str]:
    """Headers of a user logged in under that name."""
    grant = {"grantType": "password", "username": user, "password": TOKEN}
    return {"Authorization": f"Bearer {api.call('POST', '/api/v1/token', json=grant)['accessToken']}"}


def test_the_account_of_the_server_sees_all_names_whichever_way_it_asks(api: Api) -> None:
    identity = waiting(api)
    account = Authority(lambda: TOKEN, b"any").owner
    for headers in ({}, logged_in(api, account)):
        why = api.call("GET", f"{WORKLOADS}/{identity}/why?full=true", headers=headers)
        assert "busy (project default) ends" in str(why["unblock"])
        queue = api.call("GET", "/api/v1/queue?remedies=true", headers=headers)["entries"]
        assert [entry["name"] for entry in queue] == ["patient"]
        assert "busy" in queue[0]["remedy"]["text"]
    api.call("GET", "/api/v1/replay/record", 404, headers=logged_in(api, account))


def test_what_waits_for_the_same_shares_one_suggestion(api: Api) -> None:
    first = waiting(api)
    more = [api.submit(f"patient-{number}", gpus=2)["workloadId"] for number in (2, 3)]
    until(lambda: all(api.item(it)["reason"] is not None for it in more))
    queue = api.get("/api/v1/queue", remedies=True)["entries"]
    conform(Queue, {"entries": queue})
    assert [(entry["name"], entry["like"]) for entry in queue] == [
        ("patient", None), ("patient-2", "patient"), ("patient-3", "patient"),
    ]  # fmt: skip
    assert [entry["remedy"] is not None for entry in queue] == [True, False, False]
    assert [entry["remedy"] for entry in api.get("/api/v1/queue")["entries"]] == [None] * 3
    why = api.get(f"{WORKLOADS}/{more[1]}/why")
    assert (why["aheadCount"], why["aheadGpus"], len(why["ahead"])) == (2, 4.0, 2)
    assert api.get(f"{WORKLOADS}/{first}/why")["aheadCount"] == 0


def test_the_starts_of_the_first_in_the_queue_are_estimated(api: Api) -> None:
    api.running(api.submit("busy", gpus=2, maxRuntimeSeconds=600)["workloadId"])
    for name in ("first", "second"):
        identity = api.submit(name, gpus=2, maxRuntimeSeconds=600)["workloadId"]
        until(lambda identity=identity: api.item(identity)["reason"] is not None)
    queue = api.get("/api/v1/queue", starts=1)["entries"]
    conform(Queue, {"entries": queue})
    start, none = (entry["start"] for entry in queue)
    assert start["basis"] == "declared" and none is None
    first, last = (datetime.fromisoformat(start[end]) - datetime.now(UTC) for end in ("earliest", "latest"))
    assert timedelta(0) < first < timedelta(minutes=10) < last, "busy ends after 10 minutes"
    assert [entry["start"] for entry in api.get("/api/v1/queue")["entries"]] == [None, None]


def test_a_suggestion_that_takes_more_questions_is_found_too(api: Api) -> None:
    """Two jobs must end for it; one is not enough."""
    for name in ("left", "right"):
        api.running(api.submit(name, gpus=1)["workloadId"])
    identity = api.submit("patient", gpus=2)["workloadId"]
    until(lambda: api.item(identity)["reason"] is not None)

    def remedy() -> str:
        """The server searches for half a second, which may be too short on a busy machine."""
        (entry,) = api.get("/api/v1/queue", remedies=True)["entries"]
        return (entry["remedy"] or {}).get("text", "")

    until(lambda: "left" in remedy() and "right" in remedy())


def test_names_of_others_are_hidden_from_whom_they_are_no_concern(api: Api) -> None:
    identity = waiting(api)
    headers = logged_in(api, "eve")
    why = api.call("GET", f"{WORKLOADS}/{identity}/why?full=true", headers=headers)
    end = next(remedy for remedy in why["unblock"]["remedies"] if remedy["kind"] == "end")["steps"][0]
    assert "busy" not in str(why["unblock"])
    assert [(it["name"], it["id"], it["project"]) for it in end["whom"]] == [("", "", "")]
    assert (end["count"], end["nodes"]) == (2000, ["node-0"]), "numbers are told"
    queue = api.call("GET", "/api/v1/queue?remedies=true", headers=headers)["entries"]
    assert [(entry["name"], entry["project"]) for entry in queue] == [("a workload", "another project")]
    assert "busy" not in str(queue) and queue[0]["remedy"]["steps"][0]["count"] == 2000
    supposed = {"changes": [{"kind": "end", "workload": "busy"}]}
    found = api.call("POST", "/api/v1/what-if", json=supposed, headers=headers)
    assert {one["name"] for one in found["differences"]} == {"a workload"}
    api.call("GET", "/api/v1/replay/record", 403, headers=headers)


def test_what_runs_needs_nothing(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    api.running(identity)
    assert api.get(f"{WORKLOADS}/{identity}/why")["unblock"] is None


def test_what_if(api: Api) -> None:
    waiting(api)
    said = [{"kind": "add-nodes", "count": 1, "gpus": 2}, {"kind": "submit", "project": "default", "gpus": 1}]
    found = api.call("POST", "/api/v1/what-if", json={"changes": said})
    conform(WhatIfItem, found)
    told = {
        one["name"]: (one["what"], one["before"], [seat["gpus"] for seat in one["after"]])
        for one in found["differences"]
    }
    assert told["patient"] == ("starts", [], [2.0])
    assert found["gpusAfter"] > found["gpusBefore"] == 2.0
    ended = api.call("POST", "/api/v1/what-if", json={"changes": [{"kind": "end", "workload": "busy"}]})
    gone = next(one for one in ended["differences"] if one["what"] == "gone")
    assert (gone["name"], gone["project"], gone["after"]) == ("busy", "default", [])
    assert len(api.get("/api/v1/nodes")["nodes"]) == 1, "nothing was changed"


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ([], 400, "changes must have at least 1 entries"),
        ([{"kind": "explode"}], 400, "changes[0].kind must be submit, end,"),
        ([{"project": "default", "to": 1}], 400, "changes[0].kind must be submit, end,"),
        (
            [{"kind": "drain", "node": "n", "stops": True}],
            400,
            "there is no field 'stops' here; did you mean stop?",
        ),
        ([{"kind": "drain", "node": "n", "stop": "maybe"}], 400, "changes[0].stop must be true or false"),
        ([{"kind": "add-nodes", "labels": 5}], 400, "changes[0].labels must be an object"),
        ([{"kind": "add-nodes", "labels": [1]}], 400, "changes[0].labels must be an object"),
        ([{"kind": "quota", "project": "default", "department": "default", "to": 1}], 400, "given twice"),
        ([{"kind": "quota", "to": 1}], 404, "There is no project ''"),
        ([{"kind": "drain", "node": "nowhere"}], 404, "There is no node 'nowhere'"),
        ([{"kind": "drain", "label": "rack", "value": "r9"}], 404, "No node has the label rack=r9"),
        ([{"kind": "remove", "label": "rack", "value": ""}], 404, "No node has the label rack="),
        ([{"kind": "fail", "label": "rack", "value": "r9"}], 404, "No node has the label rack=r9"),
        ([{"kind": "quota", "project": "default", "to": -1}], 400, "changes[0].to must be at least 0"),
        ([{"kind": "quota", "project": "default", "to": 1e300}], 400, "changes[0].to must be at most"),
        ([{"kind": "add-nodes", "count": 10**9}], 400, "count must be smaller"),
        ([{"kind": "quota", "project": "nobody", "to": 1}], 404, "There is no project 'nobody'"),
        ([{"kind": "weight", "project": "default", "to": "much"}], 400, "must be a number"),
        ([{"kind": "priority", "workload": "ghost", "to": 3}], 404, "There is no workload 'ghost'"),
        ([{"kind": "limit", "department": "none", "to": 3}], 404, "There is no department 'none'"),
        ([{"kind": "add-nodes", "count": 0}], 400, "1 to 1000 nodes"),
        ([{"kind": "submit", "project": "default", "tasks": 10_001}], 400, "at most 10000 tasks"),
        ([{"kind": "submit", "project": "default", "gpus": 1.5}], 400, "Invalid number of GPUs 1.5"),
    ],
)
def test_what_cannot_be_supposed(quiet: Api, said, status: int, words: str) -> None:
    before = quiet.stage.service.board
    answer = quiet.call("POST", "/api/v1/what-if", status, json={"changes": said})
    assert words in str(answer)
    assert quiet.stage.service.board.projects == before.projects


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    with stage(tmp_path_factory.mktemp("why")) as made, TestClient(made.app(), headers=owner) as http:
        yield Api(made, http)


def test_draining_a_node(tmp_path: Path) -> None:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    with stage(tmp_path, 2) as made, TestClient(made.app(), headers=owner) as http:
        api = Api(made, http)
        identity = api.submit("mobile")["workloadId"]
        fixed = api.submit("fixed", kind="workspaces")["workloadId"]
        name = api.running(identity)["node"]
        api.running(fixed)
        seen = api.call("POST", f"/api/v1/nodes/{name}/drain?dryRun=true", json={})
        conform(DrainItem, seen)
        assert {one["name"]: one["what"] for one in seen["workloads"]}["mobile"] == "moves"
        done = api.call("POST", f"/api/v1/nodes/{name}/drain", json={"stop": True})
        assert "waits" not in {one["what"] for one in done["workloads"]}
        until(lambda: name not in str(api.running(identity).get("node")))
        assert name not in str(api.item(identity).get("node"))
        api.call("POST", "/api/v1/nodes/nowhere/drain", 404, json={})


def test_draining_all_nodes_of_a_label(tmp_path: Path) -> None:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    rack = nodes(2, labels=(("rack", "r1"),))
    machines = Machines(Timeline(SteadyClock().now()), [*rack, *away()], behaviour=behaviour)
    with stage(tmp_path, machines=machines) as made, TestClient(made.app(), headers=owner) as http:
        api = Api(made, http)
        ids = [api.submit(f"w{number}", gpus=1)["workloadId"] for number in range(2)]
        for identity in ids:
            api.running(identity)
        said = [{"kind": "drain", "label": "rack", "value": "r1"}]
        supposed = api.call("POST", "/api/v1/what-if", json={"changes": said})
        body = {"label": "rack", "value": "r1"}
        seen = api.call("POST", "/api/v1/drains?dryRun=true", json=body)
        assert seen["nodes"] == ["node-0", "node-1"] and seen["dryRun"]
        moving = {one["name"] for one in seen["workloads"] if one["what"] == "moves"}
        assert {one["name"] for one in supposed["differences"]} == moving
        assert not any(node["draining"] for node in api.get("/api/v1/nodes")["nodes"])
        done = api.call("POST", "/api/v1/drains", json=body)
        assert {one["name"] for one in done["workloads"]} == moving
        until(lambda: {api.running(identity)["node"] for identity in ids} == {"spare"})
        both = {"nodes": ["node-0"], "value": "r1"}
        for wrong, status in (
            ({}, 400),
            (both, 400),
            ({"label": "rack", "value": "r9"}, 404),
            ({"nodes": ["no"]}, 404),
        ):
            api.call("POST", "/api/v1/drains", status, json=wrong)


def away() -> list[Node]:
    """One node in another rack."""
    (node,) = nodes(1, labels=(("rack", "r2"),))
    gpus = tuple(replace(gpu, uuid=f"SPARE-{gpu.index}") for gpu in node.gpus)
    return [replace(node, name="spare", gpus=gpus)]


def test_the_record_and_fairness(api: Api) -> None:
    conform(ReplayItem, api.get("/api/v1/replay"))
    assert "records no cycles" in str(api.get("/api/v1/replay/record", 404))
    assert "Name one of them" in str(api.get("/api/v1/replay/record", 400, cycle=1, at=2))
    api.running(api.submit("a")["workloadId"])
    found = api.get("/api/v1/audit/fairness", windowSeconds=3600)
    conform(Fairness, found)
    assert "default" in {row["project"] for row in found["projects"]}
    assert "Jain" not in found["definitions"] and "jain" in found["definitions"]
    api.get("/api/v1/audit/fairness", 400, windowSeconds=1)


def test_of_one_that_ended_long_ago(api: Api) -> None:
    identity = api.submit("gone")["workloadId"]
    api.running(identity)
    api.call("DELETE", f"{WORKLOADS}/{identity}", 202)
    until(lambda: identity not in api.stage.service.board.workloads)
    why = api.get(f"{WORKLOADS}/{identity}/why")
    assert why["unblock"] is None and why["position"] is None
    assert "There is no workload" in str(
        api.get(f"{WORKLOADS}/11111111-1111-1111-1111-111111111111/why", 404)
    )


@pytest.mark.parametrize(
    ("code", "held"),
    [("begin-time", {"beginAt": "2100-01-01T00:00:00Z"}), ("dependency", {"dependencies": [{"on": "busy"}]})],
)
def test_of_one_that_does_not_compete_yet(api: Api, code: str, held: dict[str, Any]) -> None:
    """Its reason suffices: no change of nodes or quotas would start it, and it is not impossible either."""
    api.running(api.submit("busy", gpus=1)["workloadId"])
    identity = api.submit("held", gpus=1, **held)["workloadId"]
    until(lambda: api.item(identity)["reason"] is not None)
    why = api.get(f"{WORKLOADS}/{identity}/why?full=true")
    assert (why["reason"]["code"], why["unblock"], why["position"]) == (code, None, None)


def test_of_one_that_is_being_stopped(api: Api) -> None:
    """It waits for nothing, so there is no search, but still an answer."""
    slow = [{"name": "PLIANT_VIRTUAL_STOP_SECONDS", "value": "20"}]
    identity = api.submit("slow", environmentVariables=slow)["workloadId"]
    api.running(identity)
    api.call("DELETE", f"{WORKLOADS}/{identity}", 202)
    until(lambda: api.item(identity)["phase"] == "Deleting")
    assert api.get(f"{WORKLOADS}/{identity}/why")["unblock"] is None
