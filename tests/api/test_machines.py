"""Nodes, node pools, the cluster."""

from typing import Any

import pytest

from pliant.wire.cluster import ClusterItem, NodeList, NodePoolItem, NodePoolList
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import CLUSTER

POOLS = "/api/v1/node-pools"


def test_the_cluster_is_a_bare_list_of_one(quiet: Api) -> None:
    [cluster] = quiet.get("/api/v1/clusters")
    conform(ClusterItem, cluster)
    assert (cluster["uuid"], cluster["status"]) == (CLUSTER, {"state": "Connected"})


def test_nodes_and_what_they_hold(api: Api) -> None:
    api.running(api.submit("a", gpus=0.5)["workloadId"])
    found = api.get("/api/v1/nodes")
    conform(NodeList, found)
    [node] = found["nodes"]
    assert node == api.get("/api/v1/nodes/node-0") | {"updatedAt": node["updatedAt"]}
    assert (node["status"], node["nodePool"], node["clusterUuid"]) == ("Ready", "default", CLUSTER)
    assert node["gpuInfo"] == {"gpuType": "Simulated", "gpuCount": 2}
    assert [(gpu["allocated"], gpu["workloads"]) for gpu in node["gpus"]] == [(0.5, ["a"]), (0.0, [])]
    assert (node["cpuCores"], node["cpuAllocated"]) == (32.0, 1.0)
    assert api.get("/api/v1/nodes", filterBy="status==NotReady") == {"nodes": []}
    api.get("/api/v1/nodes/none", 404)


def test_a_cordoned_node_takes_nothing_new(api: Api) -> None:
    node = api.call("POST", "/api/v1/nodes/node-0/cordon")
    assert node["draining"]
    assert node["taints"][0]["effect"] == "NoSchedule"
    waits = api.submit("a")["workloadId"]
    assert api.item(waits)["phase"] == "Pending"
    assert not api.call("POST", "/api/v1/nodes/node-0/uncordon")["draining"]
    api.running(waits)
    api.call("POST", "/api/v1/nodes/none/cordon", 404)


def test_a_pool_from_its_making_to_its_end(api: Api) -> None:
    pool = api.call(
        "POST",
        POOLS,
        201,
        json={
            "name": "fast",
            "labelKey": "run.ai/type",
            "labelValue": "a",
            "clusterId": CLUSTER,
            "placementStrategy": {"gpu": "spread", "cpu": "binpack"},
            "schedulingConfiguration": {"minGuaranteedRuntime": "2m"},
        },
    )
    conform(NodePoolItem, pool)
    assert pool["placementStrategy"] == {"gpu": "spread", "cpu": "binpack", "device": "binpack"}
    assert (pool["minRuntimeSeconds"], pool["phase"], pool["isDefault"]) == (120.0, "Empty", False)
    assert pool["schedulingConfiguration"]["minGuaranteedRuntime"] == "2m0s"
    for key in (pool["id"], "fast"):
        assert api.get(f"{POOLS}/{key}") == pool
    changed = api.call("PATCH", f"{POOLS}/fast", json={"minRuntimeSeconds": 0.5})
    assert (changed["minRuntimeSeconds"], changed["placementStrategy"]) == (0.5, pool["placementStrategy"])
    changed = api.call(
        "PUT", f"{POOLS}/{pool['id']}", json={"schedulingConfiguration": {"minGuaranteedRuntime": "90"}}
    )
    assert changed["minRuntimeSeconds"] == 90.0
    found = api.get(POOLS)
    conform(NodePoolList, found)
    assert sorted(item["name"] for item in found["nodepools"]) == ["default", "fast"]
    project = api.get("/api/v1/org-unit/projects/default")
    assert [entry["nodePool"]["name"] for entry in project["resources"]] == ["default", "fast"]
    api.call("DELETE", f"{POOLS}/fast", 204)
    api.get(f"{POOLS}/fast", 404)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_name_stays(api: Api, method: str) -> None:
    path = f"{POOLS}/default"
    found = api.call(method, path, 400, json={"name": "other", "minRuntimeSeconds": 3})
    assert found["message"] == "The name of a node pool cannot be changed."
    assert found["fields"][0]["field"] == "name"
    assert api.get(path)["minRuntimeSeconds"] in (None, 0)
    assert api.call(method, path, json={"name": "default", "minRuntimeSeconds": 3})["name"] == "default"


def test_a_label_belongs_to_one_pool(api: Api) -> None:
    body = {"labelKey": "gpu", "labelValue": "h100", "clusterId": CLUSTER}
    api.call("POST", POOLS, 201, json={"name": "fast", **body})
    found = api.call("POST", POOLS, 409, json={"name": "faster", **body})
    assert found["message"] == "Pool fast has the nodes with gpu=h100 already."
    api.call("POST", POOLS, 201, json={"name": "faster", **body, "labelValue": "h200"})
    api.call("PUT", f"{POOLS}/faster", 409, json={"labelValue": "h100"})
    api.call("PATCH", f"{POOLS}/fast", json={"minRuntimeSeconds": 1})


def test_a_new_pool_does_not_begin_with_the_quotas_of_an_old_one(api: Api) -> None:
    body = {"name": "fast", "labelKey": "gpu", "labelValue": "h100", "clusterId": CLUSTER}
    api.call("POST", POOLS, 201, json=body)
    for kind in ("projects", "departments"):
        entry = {"nodePool": {"name": "fast"}, "gpu": {"deserved": 3}}
        path = f"/api/v1/org-unit/{kind}/default"
        api.call("PATCH", path, json={"resources": [entry]})
        api.call("DELETE", f"{POOLS}/fast", 204)
        api.call("POST", POOLS, 201, json=body)
        quota = {pool["nodePool"]["name"]: pool["gpu"]["deserved"] for pool in api.get(path)["resources"]}
        assert quota["fast"] == 0


def test_a_pool_is_named_by_its_id_too(api: Api) -> None:
    label = {"labelKey": "k", "labelValue": "v"}
    pool = api.call("POST", POOLS, 201, json={"name": "fast", **label})
    made = api.submit("a", nodePools=[pool["id"]])
    assert made["spec"]["nodePools"] == ["fast"]
    body = {"resources": [{"nodePool": {"id": pool["id"]}, "gpu": {"deserved": 1}}]}
    project = api.call("PATCH", "/api/v1/org-unit/projects/default", json=body)
    assert {entry["nodePool"]["name"]: entry["gpu"]["deserved"] for entry in project["resources"]}[
        "fast"
    ] == 1


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"labelKey": "a", "labelValue": "b"}, 400, "name must be given."),
        ({"name": "fast"}, 400, "labelKey must be given."),
        ({"name": "default", "labelKey": "a", "labelValue": "b"}, 409, "A node pool named 'default'"),
        (
            {"name": "x", "labelKey": "a", "labelValue": "b", "placementStrategy": {"gpu": "random"}},
            400,
            "placementStrategy.gpu must be 'binpack' or 'spread'",
        ),
        (
            {
                "name": "x",
                "labelKey": "a",
                "labelValue": "b",
                "schedulingConfiguration": {"minGuaranteedRuntime": "soon"},
            },
            400,
            "schedulingConfiguration.minGuaranteedRuntime: 'soon' is not a duration",
        ),
    ],
)
def test_refused(quiet: Api, body: dict[str, Any], status: int, message: str) -> None:
    assert quiet.call("POST", POOLS, status, json=body)["message"].startswith(message)
    assert len(quiet.get(POOLS)["nodepools"]) == 1


def test_the_default_pool_stays(api: Api) -> None:
    api.call("DELETE", f"{POOLS}/default", 409)
    api.call("PATCH", f"{POOLS}/default", 409, json={"labelKey": "a", "labelValue": "b"})
    assert api.call("PATCH", f"{POOLS}/default", json={"minRuntimeSeconds": 3})["minRuntimeSeconds"] == 3.0
