"""Workloads as clients see them, from submission to their history."""

from typing import Any

import pytest

from pliant.control.ports import Kept
from pliant.engines.virtual.engine import VirtualEngine
from pliant.model.workload import Desired, Workload
from pliant.wire.events import EventItem, EventList, RecordList
from pliant.wire.questions import Queue, WhyItem
from pliant.wire.submission import Submitted
from pliant.wire.workload import (
    BatchDone,
    PodItem,
    WorkloadItem,
    WorkloadList,
)
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import IMAGE, until

WORKLOADS = "/api/v1/workloads"


def names(api: Api, **params: Any) -> list[str]:
    return [item["name"] for item in api.get(WORKLOADS, **params)["workloads"]]


def test_a_list_in_all_its_forms(api: Api) -> None:
    for name, kind in (("c", "trainings"), ("a", "workspaces"), ("b", "trainings")):
        api.submit(name, gpus=None, kind=kind)
    conform(WorkloadList, api.get(WORKLOADS))
    assert names(api) == ["c", "a", "b"]
    assert names(api, sortBy="name") == ["a", "b", "c"]
    assert names(api, sortBy="name", sortOrder="desc", limit=2) == ["c", "b"]
    assert names(api, filterBy=["type==Training", "name!=c"]) == ["b"]
    assert names(api, filterBy="projectName==elsewhere") == []
    assert names(api, search="A", filterBy="type==Workspace") == ["a"]
    assert api.get(f"{WORKLOADS}/count", filterBy="type==Training") == {"count": 2}
    first = api.get(WORKLOADS, limit=2)
    assert first["next"] == 2
    assert "next" not in api.get(WORKLOADS, limit=2, offset=first["next"])


def test_one_workload_through_its_life(api: Api) -> None:
    made = api.submit("a", environmentVariables=[{"name": "PLIANT_VIRTUAL_SECONDS", "value": "0.05"}])
    identity = made["workloadId"]
    until(lambda: api.item(identity)["phase"] == "Completed")
    item = api.item(identity)
    conform(WorkloadItem, item)
    assert (item["status"], item["runningPods"], item["pendingPods"]) == ("Succeeded", 0, 0)
    assert item["allocatedResources"]["gpu"] == 0.0
    assert item["createdAt"] <= item["completedAt"]
    assert item["actionsSupport"] == {"delete": True, "suspend": False}
    [pod] = api.get(f"{WORKLOADS}/{identity}/pods")["pods"]
    conform(PodItem, pod)
    assert (pod["name"], pod["status"], pod["exitCode"], pod["attempt"]) == ("a-task-0", "Succeeded", 0, 1)
    assert pod["message"] == "task-0 ended with exit code 0."
    events = api.get(f"{WORKLOADS}/{identity}/events")
    conform(EventList, events)
    kinds = [event["reason"] for event in events["events"]]
    assert kinds[0] == "Submitted"
    assert kinds[-1] == "Completed"
    placed = next(event for event in events["events"] if event["code"] == "placed")
    assert placed["numbers"]["gpus"] == 1000
    assert placed["decision"]


def test_pods_of_all_workloads_are_one_question_to_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.submit("first")
    api.submit("crew", kind="distributed", numWorkers=3, distributedFramework="PyTorch")
    api.submit("last")
    pods = [pod["name"] for pod in api.get(f"{WORKLOADS}/pods")["pods"]]
    assert pods[0] == "first-task-0" and pods[-1] == "last-task-0" and len(pods) == 6
    store, asked = api.stage.loop.store, []
    attempts = store.attempts
    monkeypatch.setattr(store, "attempts", lambda *ids: asked.append(ids) or attempts(*ids))
    for limit in range(1, 8):
        for offset in range(8):
            page = api.get(f"{WORKLOADS}/pods", limit=limit, offset=offset)
            assert [pod["name"] for pod in page["pods"]] == pods[offset : offset + limit]
            assert page.get("next") == (offset + limit if offset + limit < len(pods) else None)
    assert len(asked) == 7 * 8
    asked.clear()
    assert [pod["name"] for pod in api.get(f"{WORKLOADS}/pods", limit=1, offset=2)["pods"]] == pods[2:3]
    assert [len(ids) for ids in asked] == [1], "only the workload of that page"
    by_name = api.get(f"{WORKLOADS}/pods", filterBy="name=^crew", sortBy="name", sortOrder="desc")["pods"]
    assert [pod["name"] for pod in by_name] == sorted(pods[1:-1], reverse=True)
    assert api.get(f"{WORKLOADS}/pods/count") == {"count": 6}
    assert api.get(f"{WORKLOADS}/pods/count", filterBy="workloadName==crew") == {"count": 4}
    assert len(asked) == 3, "counting all asks nothing"


def test_events_in_pages_and_both_orders(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    api.running(identity)
    path = f"{WORKLOADS}/{identity}/events"
    everything = api.get(path)["events"]
    assert [event["id"] for event in everything] == sorted((event["id"] for event in everything), key=int)
    assert api.get(path, sortOrder="desc")["events"] == everything[::-1]
    assert api.get(path, limit=1)["next"] == 1
    assert api.get(path, filterBy="reason==Submitted")["events"] == everything[:1]


def test_history_tells_phases_from_events(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    api.running(identity)
    found = api.get(f"{WORKLOADS}/{identity}/history")
    conform(RecordList, found)
    phases = [
        record["spec"]["phaseUpdate"]["phase"]
        for record in found["records"]
        if record["meta"]["type"] == "PhaseUpdate"
    ]
    assert phases[-1] == "Running"
    event = next(record for record in found["records"] if record["meta"]["type"] == "Event")
    conform(EventItem, event["spec"]["event"])


def test_a_failure_between_two_tries(api: Api) -> None:
    env = [
        {"name": "PLIANT_VIRTUAL_SECONDS", "value": "0"},
        {"name": "PLIANT_VIRTUAL_EXIT", "value": "3"},
    ]
    identity = api.submit("a", environmentVariables=env, backoffLimit=20)["workloadId"]  # it goes on failing
    until(lambda: api.item(identity)["status"] == "Error")
    item = api.item(identity)
    assert (item["phase"], item["reason"]["code"]) == ("Pending", "back-off")
    [pod] = api.get(f"{WORKLOADS}/{identity}/pods")["pods"]
    assert (pod["status"], pod["exitCode"]) == ("Error", 3)


def test_a_failure_without_tries(api: Api) -> None:
    env = [
        {"name": "PLIANT_VIRTUAL_SECONDS", "value": "0"},
        {"name": "PLIANT_VIRTUAL_EXIT", "value": "3"},
    ]
    identity = api.submit("a", environmentVariables=env, backoffLimit=0)["workloadId"]
    until(lambda: api.item(identity)["status"] == "Failed")
    assert api.item(identity)["phaseMessage"] == "task-0 ended with exit code 3."


def test_who_waits_and_why(api: Api) -> None:
    api.running(api.submit("busy", gpus=2, kind="workspaces")["workloadId"])
    first, second = (api.submit(name, kind="workspaces")["workloadId"] for name in ("first", "second"))
    item = api.item(second)
    assert (item["status"], item["phaseReason"]) == ("Pending", "NonPreemptibleOverQuota")
    assert (item["queuePosition"], item["pendingPods"]) == (2, 1)
    assert item["phaseMessage"] == item["reason"]["message"]
    assert item["reason"]["numbers"]["asked"] == 1000
    why = api.get(f"{WORKLOADS}/{second}/why")
    conform(WhyItem, why)
    assert why["ahead"] == [{"name": "first", "project": "default", "gpus": 1.0}]
    assert (why["position"], why["reason"]) == (2, item["reason"])
    assert why["history"][0]["reason"] == "Submitted"
    queue = api.get("/api/v1/queue")
    conform(Queue, queue)
    assert [(entry["position"], entry["name"], entry["gpus"]) for entry in queue["entries"]] == [
        (1, "first", 1.0),
        (2, "second", 1.0),
    ]
    api.call("POST", f"{WORKLOADS}/workspaces/{first}/suspend", 202)
    assert [entry["name"] for entry in api.get("/api/v1/queue")["entries"]] == ["second"]


def test_over_quota_and_elastic_in_numbers(api: Api) -> None:
    api.call("PATCH", "/api/v1/org-unit/projects/default", json={"resources": [{"gpu": {"deserved": 1}}]})
    made = api.submit("wide", gpus=1, elastic=True)
    until(lambda: api.item(made["workloadId"])["allocatedResources"]["gpu"] == 2.0)
    item = api.running(made["workloadId"])
    assert item["elastic"]
    assert item["overQuotaGpus"] == 1.0
    assert item["workloadRequestedResources"]["gpu"]["request"] == 1.0


@pytest.mark.parametrize("kind", ["trainings", "workspaces"])
def test_suspend_resume_delete(api: Api, kind: str) -> None:
    identity = api.submit("a", kind=kind)["workloadId"]
    path = f"{WORKLOADS}/{kind}/{identity}"
    api.running(identity)
    api.call("POST", f"{path}/suspend", 202)
    until(lambda: api.item(identity)["status"] == "Suspended")
    assert api.get(path)["desiredPhase"] == "Stopped"
    api.call("POST", f"{path}/resume", 202)
    api.running(identity)
    api.call("DELETE", path, 202)
    until(lambda: names(api) == [])
    conform(Submitted, api.get(path))


def test_a_typed_path_knows_its_type(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/suspend"), ("POST", "/resume")):
        found = api.call(method, f"{WORKLOADS}/workspaces/{identity}{end}", 404)
        assert found["message"] == "a is a training, not a workspace."
    assert names(api) == ["a"]


def test_what_is_deleted_is_remembered(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    api.running(identity)
    api.call("DELETE", f"{WORKLOADS}/{identity}", 202)
    until(lambda: names(api) == [])
    found = api.get(WORKLOADS, deleted=True)
    conform(WorkloadList, found)
    [item] = found["workloads"]
    assert (item["id"], item["phase"], item["status"]) == (identity, "Deleting", "Terminating")
    assert item["deletedAt"]
    assert api.item(identity) == item
    assert api.get(f"{WORKLOADS}/count", deleted=True) == {"count": 1}
    kinds = [event["reason"] for event in api.get(f"{WORKLOADS}/{identity}/events")["events"]]
    assert kinds[-1] == "Deleted"
    assert api.get(f"{WORKLOADS}/{identity}/pods")["pods"] == []
    api.call("DELETE", f"{WORKLOADS}/{identity}", 404)


def test_where_its_files_are_is_told_also_if_they_move_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a workload that has ended are in the trash before the answer is written."""

    def leaves(engine: VirtualEngine, workload: Workload) -> Kept | None:
        there = workload.desired is not Desired.DELETED
        return Kept(workload.id, workload.name, "default", 0, 5, "/trash/w1") if there else None

    monkeypatch.setattr(VirtualEngine, "leaves", leaves)
    gone = api.submit("w1")["workloadId"]
    api.running(gone)
    told = api.call("DELETE", f"/api/v1/workloads/{gone}", 202)
    assert (told["kept"]["path"], told["kept"]["bytes"]) == ("/trash/w1", 5)
    again = api.submit("w2")["workloadId"]
    assert api.call("DELETE", f"/api/v1/workloads/{again}?purge=true", 202)["kept"] is None


def test_many_at_once(api: Api) -> None:
    ids = [api.submit(name, gpus=None)["workloadId"] for name in ("a", "b")]
    done = api.call("POST", f"{WORKLOADS}/batch", json={"ids": [*ids, "none"], "action": "suspend"})
    conform(BatchDone, done)
    assert done["succeeded"] == ids
    assert [(entry["id"], entry["code"]) for entry in done["failed"]] == [("none", 404)]
    api.call("POST", f"{WORKLOADS}/batch", json={"ids": ids, "action": "delete"})
    until(lambda: names(api) == [])
    api.call("POST", f"{WORKLOADS}/batch", 400, json={"ids": [], "action": "delete"})


@pytest.mark.parametrize("end", ["", "/pods", "/events", "/history", "/why", "/logs"])
def test_workloads_that_are_not(quiet: Api, end: str) -> None:
    found = quiet.get(f"{WORKLOADS}/nothing{end}", 404)
    assert found["message"] == "There is no workload 'nothing'."


def test_the_user_of_a_token_is_the_user_of_its_workloads(api: Api) -> None:
    issued = api.stage.app().state.context.authority.issue("anna").access
    made = api.http.post(
        f"{WORKLOADS}/trainings",
        json={"projectName": "default", "submittedBy": "eve", "spec": {"image": IMAGE}},
        headers={"Authorization": f"Bearer {issued}"},
    ).json()
    assert api.item(made["workloadId"])["submittedBy"] == "anna"
    assert api.get(f"{WORKLOADS}/{made['workloadId']}/events")["events"][0]["who"] == "anna"


def test_many_deletions_are_one_transaction(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [api.submit(f"d{number}", gpus=None)["workloadId"] for number in range(20)]
    loop, asked = api.stage.loop, []
    call = loop.call
    monkeypatch.setattr(loop, "call", lambda run: asked.append(run) or call(run))
    body = {"ids": [*made, "nobody"], "action": "delete"}
    said = api.call("POST", "/api/v1/workloads/batch", 200, json=body)
    assert len(asked) == 1
    assert said["succeeded"] == made
    assert [(entry["id"], entry["code"]) for entry in said["failed"]] == [("nobody", 404)]
    listed = api.get("/api/v1/workloads")["workloads"]
    assert all(item["desiredPhase"] == "Deleted" for item in listed)
