"""What the pods of one workload have so that each knows what it has, and finds the others."""

import json
from collections.abc import Mapping
from typing import Any

from pliant.engines.kube.names import ALLOCATION, meeting_name
from pliant.engines.meeting import allocation, present, variables
from pliant.model.order import Start

FOLDER = "/pliant"
"""Of an attempt, in its pod: gone with it."""

_TOLD = f"{FOLDER}/told"
PORT = 23456
"""On which the tasks meet: a pod has all ports to itself."""

Document = Mapping[str, Any]
"""What a workload has, and what it will lose: docs/reference/attempt.md, allocation.json."""


def note(document: Document) -> dict[str, str]:
    """The annotation that the kubelet shows in the pod as a file, and again whenever it changes."""
    return {ALLOCATION: json.dumps(document, separators=(",", ":"))}


def join(pod: dict[str, Any], order: Start, document: Document | None) -> None:
    """Give that pod, which is not created yet, its place among those of its workload."""
    told = document or allocation(order)
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    pod["metadata"]["annotations"] |= note(told)
    env = {"PLIANT_ATTEMPT_DIR": FOLDER, "PLIANT_ALLOCATION_FILE": f"{_TOLD}/allocation.json"}
    if order.workload.framework:
        name, task = meeting_name(order.workload.id), order.attempt.task
        spec |= {"hostname": task, "subdomain": name}
        env |= variables(order.workload, task, present(told), PORT, lambda each: f"{each}.{name}")
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
