"""Changes of inferences: while they are suspended; unnamed fields keep their values."""

from typing import Any

import pytest

from pliant.model.workload import AttemptId
from pliant.wire.submission import Submitted
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import IMAGE, until

INFERENCES = "/api/v1/workloads/inferences"


def serve(api: Api, **spec: Any) -> str:
    """One that runs; its logs show its variable."""
    said = {"name": "TEST_OUTPUT", "value": "a secret of web\n"}
    body = {"image": IMAGE, "servingPort": {"container": 8000}, "environmentVariables": [said], **spec}
    made = api.call("POST", INFERENCES, 202, json={"name": "web", "projectName": "default", "spec": body})
    identity: str = made["workloadId"]
    api.running(identity)
    return identity


def suspend(api: Api, identity: str) -> None:
    api.call("POST", f"{INFERENCES}/{identity}/suspend", 202)
    until(lambda: api.item(identity)["phase"] == "Stopped")


def resume(api: Api, identity: str, replicas: int) -> None:
    api.call("POST", f"{INFERENCES}/{identity}/resume", 202)
    until(lambda: api.item(identity)["runningPods"] == replicas)


def change(api: Api, identity: str, status: int = 202, **spec: Any) -> Any:
    return api.call("PATCH", f"{INFERENCES}/{identity}", status, json={"spec": spec})


def test_it_starts_as_it_was_changed_and_keeps_the_rest(api: Api) -> None:
    quarter = {"gpuRequestType": "portion", "gpuPortionRequest": 0.25, "gpuDevicesRequest": 1}
    identity = serve(api, compute=quarter, command="serve 'old model'", category="Deploy")
    refused = change(api, identity, 409, image="other")
    assert refused["message"] == "web is Running: only a suspended inference can be changed."
    before = api.get(f"{INFERENCES}/{identity}")["spec"]
    suspend(api, identity)
    made = change(
        api,
        identity,
        command="serve 'new model'",
        compute={"gpuPortionRequest": 0.5},
        autoscaling={"minReplicas": 2},
        priorityClass="low",
        probes={"readiness": {"periodSeconds": 5}},
    )
    conform(Submitted, made)
    assert made["notices"] == ["These fields have no effect here: spec.probes."]
    assert (made["name"], made["workloadId"], made["desiredPhase"]) == ("web", identity, "Stopped")
    now = made["spec"]
    assert now["commandArgv"] == ["serve", "new model"]
    assert (now["compute"]["gpuPortionRequest"], now["compute"]["gpuDevicesRequest"]) == (0.5, 1)
    assert now["autoscaling"] == {"minReplicas": 2, "maxReplicas": 2}
    same = before.keys() - {"command", "commandArgv", "compute", "autoscaling", "priorityClass"}
    assert {name: now[name] for name in same} == {name: before[name] for name in same}
    resume(api, identity, 2)
    assert api.item(identity)["allocatedResources"]["gpu"] == 1.0
    logs = api.http.get(f"/api/v1/workloads/{identity}/logs").text
    assert "a secret of web" in logs, "its variables have the values that they had"
    told = api.get(f"/api/v1/workloads/{identity}/events")["events"]
    assert any(it["reason"] == "Updated" and it["message"].endswith("changed web.") for it in told)
    api.stage.loop.call(lambda draft: api.stage.loop.world.check())


def test_a_replica_that_comes_back_goes_on_counting(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt starts at most once, even if its replica was removed and came back."""
    ordered: list[AttemptId] = []
    start = api.stage.engine.start
    monkeypatch.setattr(api.stage.engine, "start", lambda it: ordered.append(it.attempt) or start(it))
    identity = serve(api, compute={"cpuCoreRequest": 0.1}, autoscaling={"minReplicas": 3, "maxReplicas": 3})
    until(lambda: api.item(identity)["runningPods"] == 3)
    for replicas in (1, 3):
        suspend(api, identity)
        change(api, identity, autoscaling={"minReplicas": replicas})
        resume(api, identity, replicas)
        api.stage.loop.call(lambda draft: api.stage.loop.world.check())
    pods = api.get(f"/api/v1/workloads/{identity}/pods")["pods"]
    assert [(pod["name"], pod["attempt"]) for pod in pods] == [
        ("web-replica-0", 3),
        ("web-replica-1", 2),
        ("web-replica-2", 2),
    ]
    assert len(set(ordered)) == len(ordered) == 7, ordered


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"environmentVariables": []}, "there is no field 'environmentVariables' here; the fields are image"),
        ({"autoscaling": {"minReplicas": 100_000}}, "Invalid number of replicas 100000."),
        ({"priorityClass": "urgent"}, "There is no priority 'urgent'"),
        ({"compute": {"gpuDevicesRequest": -1}}, "spec.compute.gpuDevicesRequest"),
        ({"command": "serve 'it"}, "spec.command cannot be split into words"),
        ({"nodePools": ["nowhere"]}, "There is no node pool"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(api: Api, spec: dict[str, Any], said: str) -> None:
    identity = serve(api)
    suspend(api, identity)
    before = api.get(f"{INFERENCES}/{identity}")
    answer = api.http.request("PATCH", f"{INFERENCES}/{identity}", json={"spec": spec})
    assert answer.status_code in (400, 404) and said in answer.json()["detail"], answer.text
    assert api.get(f"{INFERENCES}/{identity}") == before


def test_a_policy_holds_for_what_is_changed(api: Api) -> None:
    identity = serve(api)
    suspend(api, identity)
    rules = {"compute": {"gpuDevicesRequest": {"max": 1}}}
    policy = {"meta": {"scope": "tenant"}, "policy": {"rules": rules}}
    api.call("PUT", "/api/v2/policy/inferences", json=policy)
    [issue] = change(api, identity, 400, compute={"gpuDevicesRequest": 2})["complianceIssues"]
    assert (issue["field"], issue["rule"]) == ("spec.compute.gpuDevicesRequest", "max")
    change(api, identity, compute={"gpuDevicesRequest": 1})


def test_only_inferences_are_changed(api: Api) -> None:
    training = api.submit("a")["workloadId"]
    assert change(api, training, 404, image="x")["message"] == "a is a training, not an inference."
    change(api, "no-such", 404, image="x")
    answer = api.http.get(
        f"{INFERENCES}/{training}/metrics?metricType=POD_COUNT&start=2026-01-01&end=2026-01-02"
    )
    assert answer.status_code == 404


def test_cores_and_memory_change_while_it_runs(api: Api) -> None:
    identity = serve(api)
    path = f"/api/v1/workloads/{identity}/resources"
    made = api.call("PUT", path, 200, json={"cpuCoreRequest": 0.5, "cpuMemoryRequest": "200M"})
    assert made["id"] == identity
    compute = api.get(f"{INFERENCES}/{identity}")["spec"]["compute"]
    assert (compute["cpuCoreRequest"], compute["cpuMemoryRequest"]) == (0.5, "200M")
    until(lambda: "now." in api.get(f"/api/v1/workloads/{identity}/events")["events"][-1]["message"])
    assert api.item(identity)["phase"] == "Running"
    for wrong in ({}, {"cpuMemoryRequest": "much"}, {"cpuCoreRequest": 0.0001}, {"taskGroup": "x"}):
        api.call("PUT", path, 400, json=wrong)
    api.call("PUT", path, 409, json={"cpuCoreRequest": 100_000})
    api.call("PUT", "/api/v1/workloads/none/resources", 404, json={"cpuCoreRequest": 1})
