"""Wire items as a server sends them; a test changes the fields that it needs."""

from typing import Any


def workload(name: str, **changed: Any) -> dict[str, Any]:
    """A running training with one GPU in team-a, as the server describes it."""
    gpu = changed.pop("gpu", 1.0)
    allocated = changed.pop("allocated", gpu)
    memory = changed.pop("memory", None)
    item = {
        "id": f"id-{name}",
        "name": name,
        "type": "Training",
        "phase": "Running",
        "phaseMessage": "",
        "phaseReason": None,
        "phaseUpdatedAt": "2026-01-01T00:00:00.000Z",
        "desiredPhase": "Running",
        "priority": 40,
        "priorityClassName": "low",
        "preemptible": True,
        "category": "Train",
        "projectId": "2",
        "projectName": "team-a",
        "departmentId": "1",
        "departmentName": "default",
        "clusterId": "11111111-2222-3333-4444-555555555555",
        "namespace": "runai-team-a",
        "submittedBy": "yaron",
        "source": "CLI",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "completedAt": None,
        "deletedAt": None,
        "runningPods": 1,
        "requestedPods": {"number": 1, "min": 1, "max": 1, "parallelism": 1, "completions": 1},
        "workloadRequestedResources": {
            "gpuRequestType": "memory" if memory else None,
            "gpu": None if memory else {"request": gpu, "limit": None},
            "gpuMemory": {"request": memory, "limit": None} if memory else None,
            "cpu": {"request": 1.0, "limit": None},
            "cpuMemory": {"request": "100Mi", "limit": None},
        },
        "allocatedResources": {"gpu": allocated, "gpuMemory": "16Gi", "cpu": 1.0, "cpuMemory": "100Mi"},
        "requestedNodePools": ["default"],
        "currentNodePools": ["default"],
        "images": ["runai.jfrog.io/demo/quickstart"],
        "urls": [],
        "command": "",
        "arguments": "",
        "environmentVariables": {},
        "labels": {},
        "totalPendingTimeSeconds": 3,
        "totalRunningTimeSeconds": 3725,
        "guaranteedRuntimeEndsAt": None,
        "actionsSupport": {"delete": True, "suspend": True},
        "distributedFramework": None,
        "status": "Running",
        "jobType": "Train",
        "pendingPods": 0,
        "elastic": False,
        "resize": None,
        "node": "node-1",
        "nodes": ["node-1"],
        "nodeType": "",
        "reason": None,
        "number": 1,
        "array": None,
        "queuePosition": None,
        "fraction": None,
        "limitsEnforced": False,
        "gpuShares": [],
        "overQuotaGpus": 0.0,
        "progress": None,
    }
    item["podsRequestedResources"] = item["workloadRequestedResources"]
    assert not set(changed) - set(item), f"no such field: {changed}"
    return {**item, **changed}


def pending(name: str, **changed: Any) -> dict[str, Any]:
    """The same, waiting."""
    said = {"code": "no-room", "message": "1 GPU is free, 2 are needed", "numbers": {"free": 1, "needed": 2}}
    waiting = {
        "phase": "Pending",
        "status": "Pending",
        "runningPods": 0,
        "pendingPods": 1,
        "node": "",
        "nodes": [],
    }
    return workload(name, **{"allocated": 0.0, **waiting, "reason": said, "queuePosition": 1, **changed})


def unit(
    name: str, quota: float, allocated: float = 0.0, over: float = 0.0, **changed: Any
) -> dict[str, Any]:
    """A project or department."""
    numbers = {"gpu": allocated, "cpu": 0.0, "memory": 0.0}
    return {
        "id": name,
        "name": name,
        "departmentName": "default",
        "resources": [
            {
                "nodePool": {"id": "1", "name": "default"},
                "gpu": {"deserved": quota, "limit": None, "overQuotaWeight": None},
                "priority": "Medium Low",
            }
        ],
        "schedulingRules": {},
        "nodeTypes": {},
        "status": {
            "phase": "Ready",
            "namespace": f"runai-{name}",
            "nodePoolQuotaStatuses": [
                {
                    "nodePoolName": "default",
                    "allocated": numbers,
                    "allocatedNonPreemptible": numbers,
                    "requested": numbers,
                }
            ],
        },
        "fairShareGpus": quota,
        "overQuotaGpus": over,
        "quotaDerived": False,
        **changed,
    }


def node(name: str, *used: float, **changed: Any) -> dict[str, Any]:
    """A simulated node with one 16Gi GPU per number."""
    return {
        "id": name,
        "name": name,
        "status": "Ready",
        "nodePool": "default",
        "clusterUuid": "11111111-2222-3333-4444-555555555555",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "gpuInfo": {"gpuType": "Simulated-16G", "gpuCount": len(used)},
        "conditions": [],
        "taints": [],
        "labels": {"run.ai/type": "a"},
        "simulated": True,
        "draining": False,
        "cpuCores": 32.0,
        "cpuAllocated": 2.0,
        "memoryBytes": 128 * 2**30,
        "memoryAllocated": 200 * 2**20,
        "gpus": [
            {
                "uuid": f"GPU-{index}",
                "index": index,
                "memoryBytes": 16 * 2**30,
                "allocated": amount,
                "releasing": 0.0,
                "promised": 0.0,
                "foreign": False,
                "strays": [],
                "workloads": ["a2"] if amount else [],
            }
            for index, amount in enumerate(used)
        ],
        **changed,
    }


CLUSTER = {
    "uuid": "11111111-2222-3333-4444-555555555555",
    "name": "default",
    "version": "0.1.0",
    "status": {"state": "Connected"},
}

POD = {
    "name": "a1-main-0",
    "status": "Running",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "nodeName": "node-1",
    "attempt": 1,
    "gpus": ["GPU-0"],
    "exitCode": None,
    "message": "",
    "failures": 0,
    "retryLimit": 6,
    "retryAt": None,
}
OUTCOME = {
    "phase": "Completed",
    "exitCode": 0,
    "signal": None,
    "outOfMemory": False,
    "cancelled": False,
    "deleted": False,
    "gone": False,
    "message": "",
    "runningSeconds": 72,
    "gpuHours": 0.02,
    "maxRssBytes": 650 * 2**20,
}
EVENT = {
    "createdAt": "2026-01-01T00:00:00.000Z",
    "type": "Normal",
    "reason": "Started",
    "message": "placed on node-1, 1 GPU",
    "source": "scheduler",
    "involvedObject": {"kind": "Workload", "name": "a1"},
    "id": "1",
}
