"""What can be submitted, what it becomes, and what is refused."""

import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from inline_snapshot import snapshot

from pliant.control.ports import Batch, Remembered
from pliant.model.workload import Task, Workload
from pliant.wire.questions import Verdict
from pliant.wire.submission import Submitted
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import CLUSTER, IMAGE, TOKEN, Stage, stage, until

TRAININGS = "/api/v1/workloads/trainings"


def post(api: Api, body: dict[str, Any], status: int = 202, **options: Any) -> Any:
    return api.call("POST", TRAININGS, status, json=body, **options)


def refusal(api: Api, spec: dict[str, Any], **top: Any) -> str:
    body = {"name": "x", "projectName": "default", **top, "spec": {"image": IMAGE, **spec}}
    answer = api.http.post(TRAININGS, json=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert api.get("/api/v1/workloads/count") == {"count": 0}
    return f"{answer.status_code} {answer.json()['detail']}"


def test_how_much_of_it_others_may_take(api: Api) -> None:
    assert "always preemptible" in refusal(api, {"background": True, "preemptibility": "non-preemptible"})
    assert "always preemptible" in refusal(api, {"background": True, "priorityClass": "build"})
    for said in ("preemptible", "semi-preemptible", "non-preemptible"):
        spec = {"image": IMAGE, "preemptibility": said, "background": said == "preemptible"}
        made = post(api, {"name": f"x-{said}", "projectName": "default", "spec": spec})
        item = api.get(f"/api/v1/workloads/{made['workloadId']}")
        assert made["spec"]["preemptibility"] == item["preemptibility"] == said
        assert item["preemptible"] is (said == "preemptible") is item["background"]


# -- the bodies of the walk-throughs, as they are printed -------------------------------------------


def test_the_over_quota_body(api: Api) -> None:
    project = api.get("/api/v1/org-unit/projects/default")["id"]
    made = post(
        api,
        {
            "name": "a1",
            "projectId": project,
            "clusterId": CLUSTER,
            "spec": {"image": "runai.jfrog.io/demo/quickstart", "compute": {"gpuDevicesRequest": 1}},
        },
    )
    conform(Submitted, made)
    assert (made["name"], made["projectName"], made["notices"]) == ("a1", "default", [])
    item = api.running(made["workloadId"])
    assert item["allocatedResources"]["gpu"] == 1.0
    assert item["preemptible"]


def test_the_fractions_body(api: Api) -> None:
    project = api.get("/api/v1/org-unit/projects/default")["id"]
    for name in ("frac05", "frac05-2"):
        post(
            api,
            {
                "name": name,
                "projectId": project,
                "clusterId": CLUSTER,
                "spec": {
                    "image": "runai.jfrog.io/demo/quickstart",
                    "compute": {"gpuRequestType": "portion", "gpuPortionRequest": 0.5},
                },
            },
        )
    items = [api.running(item["id"]) for item in api.get("/api/v1/workloads")["workloads"]]
    assert [item["allocatedResources"]["gpu"] for item in items] == [0.5, 0.5]
    assert [item["workloadRequestedResources"]["gpu"]["request"] for item in items] == [0.5, 0.5]
    assert [item["allocatedResources"]["gpuMemory"] for item in items] == ["8Gi", "8Gi"]
    assert [item["fraction"] for item in items] == ["scheduled, not enforced"] * 2
    uuids = [api.get(f"/api/v1/workloads/{item['id']}/pods")["pods"][0]["gpus"] for item in items]
    assert uuids[0] == uuids[1]


# -- names -----------------------------------------------------------------------------------------


def test_generated_names(api: Api) -> None:
    spec = {"image": IMAGE}
    plain = post(api, {"projectName": "default", "spec": spec})["name"]
    assert plain.startswith("training-")
    assert len(plain) == len("training-") + 12
    prefixed = {"name": "mine", "useGivenNameAsPrefix": True, "projectName": "default", "spec": spec}
    made = post(api, prefixed)
    assert made["name"].startswith("mine-")
    assert made["requestedName"] == "mine"
    by_index = {"nameBase": "job", "nameStyle": "index", "projectName": "default", "spec": spec}
    made = [post(api, by_index) for _ in range(3)]
    assert [answer["name"] for answer in made] == ["job-0", "job-1", "job-2"]
    api.call("DELETE", f"/api/v1/workloads/{made[1]['workloadId']}", 202)
    assert post(api, by_index)["name"] == "job-1"


def test_a_name_is_free_once_its_workload_is_deleted(api: Api) -> None:
    first = api.submit("a")
    assert (
        "already exists in project default"
        in api.call(
            "POST", TRAININGS, 409, json={"name": "a", "projectName": "default", "spec": {"image": IMAGE}}
        )["message"]
    )
    api.call("DELETE", f"{TRAININGS}/{first['workloadId']}", 202)
    assert api.submit("a")["workloadId"] != first["workloadId"]


# -- everything that can be asked for ----------------------------------------------------------------


def test_all_fields_arrive(api: Api) -> None:
    made = post(
        api,
        {
            "name": "all",
            "projectName": "default",
            "submittedBy": "anna",
            "source": "CLI",
            "spec": {
                "image": "ubuntu",
                "command": "python -m 'a b'",
                "args": "--lr 0.1",
                "compute": {
                    "gpuDevicesRequest": 1,
                    "gpuRequestType": "memory",
                    "gpuMemoryRequest": "5G",
                    "gpuMemoryLimit": "6G",
                    "cpuCoreRequest": 0.1,
                    "cpuMemoryRequest": "123M",
                },
                "environmentVariables": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "2", "exclude": True},
                    {"name": "A", "value": "3"},
                ],
                "nodePools": ["default"],
                "priorityClass": "very-high",
                "preemptibility": "preemptible",
                "category": "Special",
                "backoffLimit": 2,
                "terminationGracePeriodSeconds": 7,
                "terminateAfterPreemption": True,
                "autoDeletionTimeAfterCompletionSeconds": 60,
                "restartPolicy": "Always",
                "labels": [{"name": "team", "value": "x"}],
                "annotations": [{"name": "note", "value": "y"}],
                "stdin": True,
                "tty": True,
                "workingDir": "/tmp",
            },
        },
    )
    assert made["spec"] == snapshot(
        {
            "beginAt": None,
            "dependencies": [],
            "dependencyAny": False,
            "keepPending": False,
            "array": None,
            "image": "ubuntu",
            "command": "python -m 'a b'",
            "args": "--lr 0.1",
            "commandArgv": ["python", "-m", "a b"],
            "argsArgv": ["--lr", "0.1"],
            "compute": {
                "cpuCoreRequest": 0.1,
                "cpuMemoryRequest": "123M",
                "gpuDevicesRequest": 1,
                "gpuRequestType": "memory",
                "gpuMemoryRequest": "5G",
                "gpuMemoryLimit": "6G",
            },
            "environmentVariables": [{"name": "A", "value": "***"}],
            "capturedVariables": [],
            "nodePools": ["default"],
            "nodeType": None,
            "priorityClass": "very-high",
            "preemptibility": "preemptible",
            "category": "Special",
            "ports": [],
            "exposedUrls": [],
            "completions": None,
            "parallelism": None,
            "backoffLimit": 2,
            "terminationGracePeriodSeconds": 7,
            "terminateAfterPreemption": True,
            "autoDeletionTimeAfterCompletionSeconds": 60,
            "restartPolicy": "Always",
            "labels": [{"name": "team", "value": "x"}],
            "annotations": [{"name": "note", "value": "y"}],
            "stdin": True,
            "tty": True,
            "submittedFrom": None,
            "workingDir": "/tmp",
            "nodeAffinityRequired": None,
            "nodeAffinityPreferred": [],
            "tolerations": [],
            "podAntiAffinity": None,
            "topology": None,
            "storage": None,
            "staleGraceSeconds": None,
            "preemptionDelaySeconds": 0.0,
            "maxRuntimeSeconds": None,
            "elastic": False,
            "elasticDoubling": False,
            "background": False,
        }
    )
    item = api.item(made["workloadId"])
    assert (item["submittedBy"], item["source"], item["priority"]) == ("anna", "CLI", 150)
    assert item["workloadRequestedResources"]["gpuMemory"] == {"request": "5G", "limit": "6G"}
    assert item["workloadRequestedResources"]["gpu"] is None


def test_what_was_answered_can_be_asked_for_again(api: Api) -> None:
    first = api.submit("a", gpus=2, elastic=True, command="sleep 'a b'", environmentVariables=[])
    body = {"name": "b", "projectId": first["projectId"], "spec": first["spec"]}
    assert post(api, body)["spec"] == first["spec"]


def test_exact_words_win(api: Api) -> None:
    spec = {"command": "sh -c", "commandArgv": ["sh", "-c", "echo 'x"], "args": "a b", "argsArgv": ["a b"]}
    made = api.submit("a", **spec)["spec"]
    assert (made["commandArgv"], made["argsArgv"]) == (["sh", "-c", "echo 'x"], ["a b"])


def test_a_workspace_is_not_preemptible(api: Api) -> None:
    made = api.submit("w", kind="workspaces")
    item = api.item(made["workloadId"])
    assert (item["type"], item["jobType"], item["preemptible"]) == ("Workspace", "Interactive", False)


# -- notices ----------------------------------------------------------------------------------------


def test_fields_without_effect_are_named(api: Api) -> None:
    made = api.submit(
        "a",
        gpus=None,
        probes={"readiness": {}},
        storage={},
        imagePullPolicy="Always",
        compute={"largeShmRequest": True, "cpuCoreLimit": 2},
    )
    assert made["notices"] == snapshot(
        [
            "These fields have no effect here: spec.compute.cpuCoreLimit, "
            "spec.compute.largeShmRequest, spec.probes."
        ]
    )


def test_what_can_never_run_is_said_at_once_and_in_one_transaction(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[Batch] = []
    commit = api.stage.store.commit

    def counted(epoch: int, batch: Batch) -> None:
        committed.append(batch)
        commit(epoch, batch)

    monkeypatch.setattr(api.stage.store, "commit", counted)
    body = {
        "name": "huge",
        "projectName": "default",
        "spec": {"image": IMAGE, "compute": {"gpuDevicesRequest": 9}},
    }
    made = post(api, body, headers={"Idempotency-Key": "k"})
    reason = api.item(made["workloadId"])["reason"]
    assert reason["code"] == "never-fits"
    assert made["notices"] == [reason["message"]]
    assert post(api, body, headers={"Idempotency-Key": "k"}) == made
    [batch] = committed
    assert {type(row) for row in batch.put} == {Workload, Task, Remembered}


def test_zero_gpus_are_none(api: Api) -> None:
    """Clients that are made for Run:ai send it for a workload without GPUs."""
    item = api.running(api.submit("a", gpus=0)["workloadId"])
    assert item["allocatedResources"]["gpu"] == 0


# -- what is refused, and changes nothing ----------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"image": ""},
            snapshot("400 -i, --image must be set. Name an image, or a command: submit NAME -- COMMAND..."),
        ),
        (
            {"compute": {"gpuDevicesRequest": -1}},
            snapshot("400 spec.compute.gpuDevicesRequest must be at least 0, not -1."),
        ),
        (
            {"compute": {"gpuDevicesRequest": 1.5}},
            snapshot(
                "400 1.5 GPUs cannot be requested: only whole GPUs or a fraction of one. Use a whole "
                "number, or less than 1."
            ),
        ),
        (
            {"compute": {"gpuPortionRequest": 0.1234}},
            snapshot("400 spec.compute.gpuPortionRequest is 0.1234: at most three decimals are possible."),
        ),
        (
            {"compute": {"gpuPortionRequest": 1.2}},
            snapshot("400 1.2 is not a portion of a GPU. Give a number above 0 and up to 1."),
        ),
        (
            {"compute": {"gpuMemoryRequest": "50M"}},
            snapshot("400 50M of GPU memory is too little to run anything. Request at least 100M."),
        ),
        (
            {"compute": {"cpuMemoryRequest": "9ki"}},
            snapshot(
                "400 spec.compute.cpuMemoryRequest: '9ki' is not an amount of memory such as 500M, 5G or 5Gi."
            ),
        ),
        (
            {"compute": {"gpuMemoryRequest": "lots"}},
            snapshot(
                "400 spec.compute.gpuMemoryRequest: 'lots' is not an amount of memory such as 500M, "
                "5G or 5Gi."
            ),
        ),
        (
            {"compute": {"gpuMemoryRequest": "9" * 30 + "E"}},
            snapshot(
                "400 spec.compute.gpuMemoryRequest: 999999999999999999999999999999E is larger than any "
                "machine."
            ),
        ),
        (
            {"compute": {"gpuMemoryRequest": "5G", "gpuPortionRequest": 0.5}},
            snapshot("400 A portion and an amount of GPU memory are both requested. Choose one of them."),
        ),
        (
            {"compute": {"gpuMemoryRequest": "5G", "gpuDevicesRequest": 2}},
            snapshot(
                "400 Several GPUs can be shared by portion only. Ask for a portion of each, or for "
                "memory of one GPU."
            ),
        ),
        (
            {"compute": {"gpuPortionRequest": 0.5, "gpuPortionLimit": 0.2}},
            snapshot("400 The limit on portion is below the request. Raise the limit or leave it out."),
        ),
        (
            {"parallelism": 3, "completions": 2},
            snapshot(
                "400 A parallelism of 3 is above 2 completions. Set completions, or a lower parallelism."
            ),
        ),
        (
            {"completions": 2, "elastic": True, "compute": {"gpuDevicesRequest": 1}},
            snapshot("400 An elastic workload has one run. Leave out completions and parallelism."),
        ),
        (
            {"compute": {"gpuRequestType": "memory", "gpuDevicesRequest": 1}},
            snapshot(
                "400 spec.compute.gpuRequestType is memory, but gpuMemoryRequest is missing. "
                "Set gpuMemoryRequest."
            ),
        ),
        (
            {"compute": {"gpuRequestType": "portion", "gpuMemoryRequest": "5G"}},
            snapshot(
                "400 spec.compute.gpuRequestType is portion, but gpuMemoryRequest is set. Leave out "
                "gpuMemoryRequest."
            ),
        ),
        (
            {"compute": {"extendedResources": [{"resource": "x/y", "quantity": "1"}]}},
            snapshot("400 spec.compute.extendedResources is not supported. Leave it out."),
        ),
        (
            {"command": "echo 'x"},
            snapshot(
                "400 spec.command cannot be split into words: No closing quotation. Close every "
                "quote, or send commandArgv and argsArgv."
            ),
        ),
        (
            {"environmentVariables": [{"name": "A", "value": "***"}]},
            snapshot(
                "400 The value of the environment variable 'A' is hidden (***). Give the value itself: no "
                "output of Pliant shows it."
            ),
        ),
        (
            {"environmentVariables": [{"name": "A", "secret": {"name": "s", "key": "k"}}]},
            snapshot(
                "400 The environment variable 'A' has no value. Only plain values are supported, "
                "not secrets, config maps or fields."
            ),
        ),
        (
            {"priorityClass": "urgent"},
            snapshot(
                "400 There is no priority 'urgent'. Choose one of very-low, low, train, medium-low, "
                "interactive-preemptible, medium, medium-high, build, inference, high, very-high; "
                "or create it: pliant priorityclass create NAME --value N."
            ),
        ),
        (
            {"nodePools": ["fast"]},
            snapshot("404 There is no node pool 'fast'. See the pools with: pliant nodepool list"),
        ),
        (
            {"elastic": True, "compute": {"gpuPortionRequest": 0.5}},
            snapshot("400 A fraction of a GPU cannot be elastic. Request whole GPUs, or omit --elastic."),
        ),
    ],
)
def test_refused(quiet: Api, spec: dict[str, Any], expected: str) -> None:
    assert refusal(quiet, spec) == expected


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (
            {"projectName": None},
            snapshot("400 projectName is missing. Set projectId (its id or name) or projectName."),
        ),
        (
            {"projectName": "nobody"},
            snapshot("404 There is no project 'nobody'. See the projects with: pliant project list"),
        ),
        (
            {"clusterId": "elsewhere"},
            snapshot(
                "404 There is no cluster 'elsewhere'. This one is "
                "11111111-2222-3333-4444-555555555555; or leave it out."
            ),
        ),
        (
            {"name": "No_Label"},
            snapshot(
                "400 'No_Label' cannot be the name of a workload. Use 1 to 63 lower-case letters, "
                "digits and '-'; first a letter, last a letter or digit."
            ),
        ),
        (
            {"nameBase": "-x"},
            snapshot(
                "400 '-x' cannot be the name of a workload's prefix. Use 1 to 63 lower-case letters, "
                "digits and '-'; first a letter, last a letter or digit."
            ),
        ),
    ],
)
def test_refused_above_the_spec(quiet: Api, top: dict[str, Any], expected: str) -> None:
    assert refusal(quiet, {}, **top) == expected


# -- one answer for one key -------------------------------------------------------------------------


BODY = {"projectName": "default", "spec": {"image": IMAGE}}


def keyed(key: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": key}}


def test_the_same_key_makes_one_workload(api: Api) -> None:
    first = post(api, BODY, **keyed("k1"))
    assert post(api, BODY, **keyed("k1")) == first
    assert post(api, BODY, **keyed("k2"))["workloadId"] != first["workloadId"]
    other = {**BODY, "name": "other"}
    assert "used for another submission" in post(api, other, 409, **keyed("k1"))["message"]
    assert (
        "used for another"
        in api.call("POST", "/api/v1/workloads/workspaces", 409, json=BODY, **keyed("k1"))["message"]
    )
    assert api.get("/api/v1/workloads/count") == {"count": 2}


def test_a_refused_submission_uses_no_key_up(api: Api) -> None:
    post(api, {**BODY, "name": "Bad"}, 400, **keyed("k"))
    post(api, {**BODY, "name": "good"}, 202, **keyed("k"))


@pytest.mark.parametrize("key", ["x" * 256, "a b"])
def test_keys_that_are_none(quiet: Api, key: str) -> None:
    assert "Idempotency-Key" in post(quiet, BODY, 400, **keyed(key))["message"]


def test_the_answer_outlives_the_server(tmp_path: Path) -> None:
    owner = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "k"}

    def once(on: Stage) -> tuple[int, bytes]:
        with TestClient(on.app()) as http:
            answer = http.post(TRAININGS, json=BODY, headers=owner)
            assert len(on.service.board.workloads) == 1
            return answer.status_code, answer.content

    with stage(tmp_path) as before:
        first = once(before)
        machines = before.machines
    with stage(tmp_path, machines=machines) as after:
        assert once(after) == first


def test_many_at_once_with_one_key_make_one_workload(api: Api) -> None:
    answers: list[bytes] = []
    start = threading.Barrier(8)

    def send() -> None:
        start.wait(60)
        answers.append(api.http.post(TRAININGS, json=BODY, **keyed("k")).content)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert api.get("/api/v1/workloads/count") == {"count": 1}


# -- dry runs ---------------------------------------------------------------------------------------


def rehearse(api: Api, gpus: float, project: str = "default", **spec: Any) -> Any:
    body = {
        "projectName": project,
        "spec": {"image": IMAGE, "compute": {"gpuDevicesRequest": gpus}, **spec},
    }
    before = api.get("/api/v1/workloads")
    found = api.call("POST", TRAININGS, json=body, params={"dryRun": True})
    conform(Verdict, found)
    assert api.get("/api/v1/workloads")["workloads"] == before["workloads"] or before["workloads"]
    assert api.get("/api/v1/workloads/count")["count"] == len(before["workloads"])
    api.stage.loop.call(lambda draft: api.stage.loop.world.check())
    return found


def test_a_dry_run_that_would_start(api: Api) -> None:
    found = rehearse(api, 2)
    assert found["verdict"] == "starts"
    assert found["reason"]["code"] == "placed"
    [place] = found["placements"]
    assert (place["node"], place["gpu"], place["gpus"]) == ("node-0", 2.0, ["GPU-0-0", "GPU-0-1"])
    assert found["disrupted"] == []
    assert rehearse(api, 2, elastic=True)["reason"]["code"] == "placed"  # not the reason why it grows later


def test_a_dry_run_that_would_wait_or_never_run(api: Api) -> None:
    api.running(api.submit("busy", gpus=2, kind="workspaces")["workloadId"])
    waits = rehearse(api, 1)
    assert (waits["verdict"], waits["placements"]) == ("waits", [])
    assert waits["reason"]["message"]
    never = rehearse(api, 9)
    assert (never["verdict"], never["reason"]["code"]) == ("never", "never-fits")


def test_a_dry_run_that_would_take_from_others(api: Api) -> None:
    api.running(api.submit("stretchy", gpus=1, elastic=True)["workloadId"])
    found = rehearse(api, 1)
    assert found["verdict"] == "starts"
    [taken] = found["disrupted"]
    assert (taken["name"], taken["gpuBefore"], taken["gpuAfter"]) == ("stretchy", 2.0, 1.0)


def test_several_runs(api: Api) -> None:
    env = [{"name": "PLIANT_VIRTUAL_SECONDS", "value": "0.05"}]
    made = api.submit("hpo", completions=5, parallelism=2, environmentVariables=env)
    assert (made["spec"]["completions"], made["spec"]["parallelism"]) == (5, 2)
    identity = made["workloadId"]
    until(lambda: api.item(identity)["phase"] == "Completed")
    item = api.item(identity)
    assert item["requestedPods"] == {"number": 2, "min": 2, "max": 2, "parallelism": 2, "completions": 5}
    assert (item["workloadRequestedResources"]["gpu"]["request"], item["elastic"]) == (2.0, False)
    pods = api.get(f"/api/v1/workloads/{identity}/pods")["pods"]
    assert [pod["status"] for pod in pods] == ["Succeeded"] * 5


def test_several_runs_that_cannot_be(quiet: Api) -> None:
    assert "A parallelism of 3 is above 2 completions" in refusal(quiet, {"completions": 2, "parallelism": 3})


# -- ports and services ----------------------------------------------------------------------------

INFERENCES = "/api/v1/workloads/inferences"


def test_addresses_are_told_while_it_runs(api: Api) -> None:
    ports = [{"container": 8888, "serviceType": "NodePort"}, {"container": 9000, "serviceType": "ClusterIP"}]
    made = api.submit("w", kind="workspaces", ports=ports, exposedUrls=[{"container": 8080}])
    assert made["notices"] == []
    assert api.running(made["workloadId"])["urls"] == ["http://localhost:8888", "http://localhost:8080"]
    assert [entry["container"] for entry in made["spec"]["ports"]] == [8888, 9000]
    api.call("POST", f"/api/v1/workloads/workspaces/{made['workloadId']}/suspend", 202)
    until(lambda: api.item(made["workloadId"])["urls"] == [])


def test_what_a_port_cannot_be_is_said(api: Api) -> None:
    ports = [{"container": 80, "serviceType": "NodePort", "external": 30080}]
    made = api.submit(
        "w", kind="workspaces", ports=ports, exposedUrls=[{"container": 81, "url": "https://x"}]
    )
    assert [notice.split(":")[0] for notice in made["notices"]] == [
        "Port 30080 is not opened",
        "Addresses of exposedUrls cannot be chosen",
    ]


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ([{"container": 80}, {"container": 80}], "Port 80 is named twice"),
        ([{"container": 0}], "spec.ports"),
        ([{"container": 65_536}], "spec.ports"),
    ],
)
def test_ports_that_cannot_be(quiet: Api, ports: list[dict[str, int]], said: str) -> None:
    assert said in refusal(quiet, {"ports": ports})


def test_replicas(api: Api) -> None:
    compute = {"gpuRequestType": "portion", "gpuPortionRequest": 0.25, "gpuDevicesRequest": 1}
    spec = {
        "image": IMAGE,
        "compute": compute,
        "servingPort": {"container": 8000},
        "autoscaling": {"minReplicas": 4, "maxReplicas": 4},
    }
    project = {"name": "serve", "resources": [{"gpu": {"deserved": 1}}]}
    api.call("POST", "/api/v1/org-unit/projects", 201, json=project)
    made = api.call("POST", INFERENCES, 202, json={"name": "i", "projectName": "serve", "spec": spec})
    assert made["notices"] == []
    until(lambda: api.item(made["workloadId"])["runningPods"] == 4)
    item = api.item(made["workloadId"])
    shown = {name: item[name] for name in ("type", "jobType", "preemptible", "priorityClassName", "phase")}
    assert shown == {
        "type": "Inference",
        "jobType": "Inference",
        "preemptible": False,
        "priorityClassName": "very-high",
        "phase": "Running",
    }
    assert item["allocatedResources"]["gpu"] == 1.0
    assert item["urls"] == [f"http://localhost:{port}" for port in range(8000, 8004)]
    assert len({pod["gpus"][0] for pod in api.get(f"/api/v1/workloads/{item['id']}/pods")["pods"]}) == 1


def test_a_replica_that_ends_is_started_again(api: Api) -> None:
    env = [{"name": "PLIANT_VIRTUAL_SECONDS", "value": "0.05"}]
    body = {"name": "i", "projectName": "default", "spec": {"image": IMAGE, "environmentVariables": env}}
    made = api.call("POST", INFERENCES, 202, json=body)

    def attempt() -> int:
        pods = api.get(f"/api/v1/workloads/{made['workloadId']}/pods")["pods"]
        return int(pods[0]["attempt"])

    until(lambda: attempt() >= 3)
    assert api.item(made["workloadId"])["phase"] not in ("Completed", "Failed")


@pytest.mark.parametrize(
    ("scaling", "number", "told"),
    [
        ({"minReplicas": 0, "maxReplicas": 2, "metric": "concurrency", "metricThreshold": 3}, 1, True),
        ({"minReplicas": 2, "maxReplicas": 2}, 2, False),
        ({"maxReplicas": 3}, 1, True),
    ],
)
def test_that_there_is_no_autoscaling_is_said(
    api: Api, scaling: dict[str, Any], number: int, told: bool
) -> None:
    spec = {"image": IMAGE, "autoscaling": scaling}
    made = api.call("POST", INFERENCES, 202, json={"name": "i", "projectName": "default", "spec": spec})
    assert any("There is no autoscaling yet" in notice for notice in made["notices"]) is told
    assert api.item(made["workloadId"])["requestedPods"]["number"] == number
