"""Builds the pod of a start."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pliant.control.errors import BadRequest
from pliant.engines.kube.apiserver.names import (
    ALLOCATION,
    ATTEMPT,
    CLUSTER,
    FINALIZER,
    GPUS,
    MANAGED_BY,
    WORKLOAD,
    meeting_name,
    pod_name,
)
from pliant.engines.kube.apiserver.seen import GPU_RESOURCE, MAIN
from pliant.engines.kube.pods import mpi
from pliant.engines.kube.pods.volumes import mounts, refused, volumes
from pliant.engines.meeting import allocation, present, variables
from pliant.model.order import Start
from pliant.model.quantity import GPU, format_gpus
from pliant.model.workload import JOB_FOLDER, Launch

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL = re.compile(r"([a-z0-9][-a-z0-9.]{0,251}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Labels of a workload that its pods can have too."""

FOLDER = "/pliant"
"""The attempt's folder in its pod; it is deleted with the pod."""

_TOLD = f"{FOLDER}/told"
PORT = 23456
"""The port at which the tasks meet; each pod has all ports to itself."""

Document = Mapping[str, Any]
"""What a workload has, and what it will lose: docs/reference/attempt.md, allocation.json."""

MOST = 32 * 1024
"""Bytes of a document in a pod; a larger one is cut to the pod's own task. A pod may have 256 KiB."""


def refusal(launch: Launch) -> BadRequest | None:
    """Why no pod could ever run that launch; None if one could."""
    if not launch.image:
        return BadRequest(
            "On a cluster a workload needs an image: it runs in a container.", "Add --image IMAGE."
        )
    return refused(launch.volumes)


def manifest(
    order: Start,
    cluster: str,
    scheduler: str,
    namespace: str,
    project: str,
    secret: str,
    document: Document | None = None,
) -> dict[str, Any]:
    """The pod of that start. `secret` holds the values of its environment variables; empty: it has none.
    `document` tells what its workload has; None: it is made from the order."""
    workload, place, attempt = order.workload, order.placement, order.attempt
    launch = workload.launch_of(attempt.task)
    amounts = {name: amount for name, amount in _requests(order).items() if amount != "0"}
    values = {
        "RUNAI_PROJECT": project,
        "RUNAI_JOB_NAME": workload.name,
        "RUNAI_JOB_UUID": workload.id,
        "RUNAI_NUM_OF_GPUS": format_gpus(place.gpu) if place.gpu % GPU else str(place.gpu // GPU),
        "JOB_NAME": workload.name,
        "JOB_UUID": workload.id,
        "PLIANT_ATTEMPT": str(attempt),
    }
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    env.append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    container: dict[str, Any] = {
        "name": MAIN,
        "image": launch.image,
        "env": env,
        "resources": {
            "requests": amounts,
            "limits": {name: amount for name, amount in amounts.items() if name == GPU_RESOURCE},
        },
        "tty": launch.tty,
        "stdin": launch.stdin,
        **({"command": list(launch.command)} if launch.command else {}),
        **({"args": list(launch.args)} if launch.args else {}),
        **({"workingDir": launch.working_dir} if launch.working_dir not in ("", JOB_FOLDER) else {}),
        **({"envFrom": [{"secretRef": {"name": secret}}]} if secret else {}),
        **mounts(launch.volumes),
    }
    asked = ((name, value) for name, value in workload.labels if _VALUE.fullmatch(value))
    own = {name: value for name, value in asked if _LABEL.fullmatch(name)}
    labels = {**own, MANAGED_BY: "pliant", CLUSTER: cluster, WORKLOAD: workload.id}
    pod = {
        "metadata": {
            "name": pod_name(cluster, attempt, workload.name),
            "namespace": namespace,
            "labels": labels,
            "annotations": {ATTEMPT: str(attempt), GPUS: ",".join(place.uuids)},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": seconds(launch.grace),
            "tolerations": [{"operator": "Exists"}],  # the scheduler itself respects taints
            "containers": [container],
            **volumes(launch.volumes),
        },
    }
    _join(pod, order, document or allocation(order))
    return pod


def note(document: Document, task: str) -> dict[str, str]:
    """The annotation that the kubelet shows as a file in that task's pod, and updates when it changes."""
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > MOST:
        own = [entry for entry in document["tasks"] if entry["id"] == task]
        text = json.dumps({**document, "tasks": own}, separators=(",", ":"))
    return {ALLOCATION: text}


def _join(pod: dict[str, Any], order: Start, document: Document) -> None:
    """Adds the pod's files, variables and host name, by which it finds the pods of its workload."""
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    pod["metadata"]["annotations"] |= note(document, order.attempt.task)
    env = {"PLIANT_ATTEMPT_DIR": FOLDER, "PLIANT_ALLOCATION_FILE": f"{_TOLD}/allocation.json"}
    if order.workload.framework:
        name, task = meeting_name(order.workload.id), order.attempt.task
        spec |= {"hostname": task, "subdomain": name}
        there, host = present(document), lambda each: f"{each}.{name}"
        env |= variables(order.workload, task, there, PORT, host)
        if order.workload.framework == "MPI":
            env |= mpi.join(pod, order.workload, task, there, host)
        main["envFrom"] = [*main.get("envFrom", ()), {"secretRef": {"name": name}}]
    main["env"] += [{"name": key, "value": value} for key, value in env.items()]
    shown = {"path": "allocation.json", "fieldRef": {"fieldPath": f"metadata.annotations['{ALLOCATION}']"}}
    spec["volumes"] = [
        *spec.get("volumes", ()),
        {"name": "pliant-attempt", "emptyDir": {}},
        {"name": "pliant-told", "downwardAPI": {"items": [shown]}},
    ]
    main["volumeMounts"] = [
        *main.get("volumeMounts", ()),
        {"name": "pliant-attempt", "mountPath": FOLDER},
        {"name": "pliant-told", "mountPath": _TOLD, "readOnly": True},
    ]


def _requests(order: Start) -> dict[str, str]:
    place = order.placement
    return {
        "cpu": f"{place.cpu}m" if place.cpu else "0",
        "memory": str(place.memory),
        GPU_RESOURCE: str(sum(share.portion == GPU for share in place.shares)),
    }


def seconds(ms: int) -> int:
    """A grace period in whole seconds, at least 1: with 0 the processes would get no SIGTERM."""
    return max(1, -(-ms // 1000))
