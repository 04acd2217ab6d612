"""Renders what a workload asked for."""

import shlex
from collections.abc import Sequence
from typing import Any

from pliant.api.requests.fields import OF_LAUNCH, OF_WORKLOAD, told
from pliant.api.requests.placement import placing_told
from pliant.api.requests.volumes import storage_told
from pliant.api.responses.amounts import gpus, quantity
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.control.board.view import Board
from pliant.model.hold import Element
from pliant.model.workload import Kind, TaskGroup, Workload
from pliant.wire import workload as wire
from pliant.wire.submission import Submitted

Item = dict[str, Any]

MASKED = "***"
"""Shown for the value of every environment variable: only the running task has it."""

HIDDEN: Item = {
    **dict.fromkeys(("command", "args", "servingPort", "workingDir", "submittedFrom"), None),
    **{name: [] for name in ("commandArgv", "argsArgv", "environmentVariables", "capturedVariables")},
    **{name: [] for name in ("ports", "exposedUrls")},
    "storage": {},
}
"""Shown to a caller who may not know what runs in a job."""


def preemptibility(workload: Workload) -> str:
    """The preemptibility, as a submission spells it."""
    if workload.preemptible:
        return "preemptible"
    return "semi-preemptible" if workload.semi_preemptible else "non-preemptible"


def spec_of(workload: Workload) -> Item:
    """The spec of a workload, in the form in which it can be submitted again."""
    launch, group = workload.launch, workload.groups[-1]  # of a distributed workload: its workers
    request = group.request
    compute: Item = {
        "cpuCoreRequest": request.cpu / 1000,
        "cpuMemoryRequest": quantity(request.memory),
    }
    if request.devices:
        compute["gpuDevicesRequest"] = request.devices
    if request.gpu_memory:
        compute |= {"gpuRequestType": "memory", "gpuMemoryRequest": quantity(request.gpu_memory)}
        if request.gpu_memory_limit:
            compute["gpuMemoryLimit"] = quantity(request.gpu_memory_limit)
    elif request.devices:
        compute |= {"gpuRequestType": "portion", "gpuPortionRequest": gpus(request.portion)}
        if request.portion_limit:
            compute["gpuPortionLimit"] = gpus(request.portion_limit)
    distributed: Item = {}
    if workload.framework:
        distributed = {
            "distributedFramework": workload.framework,
            "numWorkers": group.wanted,
            "minReplicas": group.min,
            "maxReplicas": group.max,
            "slotsPerWorker": workload.slots,
        }
    if workload.kind is Kind.DISTRIBUTED:
        distributed |= {
            "taskGroups": [_group(each) for each in workload.groups],
            "subGroups": [
                {"name": level.name, "parent": level.parent, "minGroups": level.min}
                for level in workload.subgroups
            ],
            "minGroups": workload.min_groups,
        }
    if workload.kind is Kind.INFERENCE:
        serving = [{"container": port.container} for port in workload.ports if port.service == "Serving"]
        distributed = {
            "servingPort": serving[0] if serving else None,
            "autoscaling": {"minReplicas": group.wanted, "maxReplicas": group.max},
        }
    return {
        **distributed,
        "image": launch.image,
        "command": shlex.join(launch.command) or None,
        "args": shlex.join(launch.args) or None,
        "commandArgv": list(launch.command),
        "argsArgv": list(launch.args),
        "compute": compute,
        "environmentVariables": [{"name": name, "value": MASKED} for name in launch.variables],
        "capturedVariables": list(launch.captured),
        "nodePools": list(workload.pools),
        "priorityClass": workload.priority_class,
        "preemptibility": preemptibility(workload),
        "category": workload.category,
        "ports": [
            {"container": port.container, "serviceType": port.service, "external": port.external or None}
            for port in workload.ports
            if port.service not in ("URL", "Serving")
        ],
        "exposedUrls": [{"container": port.container} for port in workload.ports if port.service == "URL"],
        "completions": group.wanted if group.at_once else None,
        "parallelism": group.at_once or None,
        **_start(workload),
        "backoffLimit": workload.backoff_limit,
        "restartPolicy": "Always" if workload.restart else "Never",
        **told(OF_LAUNCH, launch),
        "storage": storage_told(launch.volumes),
        **told(OF_WORKLOAD, workload),
        **placing_told(workload),
        "elastic": group.elastic,
    }


def _start(workload: Workload) -> Item:
    element = workload.element
    return {
        "beginAt": stamp_or_none(workload.begin),
        "dependencies": [{"on": one.name, "when": one.when.value} for one in workload.after],
        "dependencyAny": workload.after_any,
        "keepPending": workload.keep_pending,
        "array": {"indexes": str(element.index), "atOnce": element.at_once or None} if element else None,
    }


def _group(group: TaskGroup) -> Item:
    return {
        "name": group.name,
        "replicas": group.wanted,
        "minReplicas": group.min,
        "maxReplicas": group.max,
        "parent": group.parent,
        "priority": group.priority,
    }


def array_place(element: Element | None) -> wire.ArrayPlace | None:
    if element is None:
        return None
    return {
        "id": element.array,
        "name": element.name,
        "index": element.index,
        "count": element.count,
        "atOnce": element.at_once or None,
    }


def submitted(
    workload: Workload,
    board: Board,
    notices: Sequence[str] = (),
    asked: str | None = None,
    elements: Sequence[str] = (),
    *,
    inside: bool = True,
) -> Submitted:
    """`inside`: the caller may know what runs in the job."""
    spec = spec_of(workload)
    if not inside:
        spec |= {name: value for name, value in HIDDEN.items() if name in spec}
    project = board.projects.get(workload.project)
    return {
        "name": workload.element.name if workload.element is not None else workload.name,
        "requestedName": asked or workload.name,
        "workloadId": workload.id,
        "projectId": workload.project,
        "departmentId": getattr(project.queue, "department", "") if project is not None else "",
        "clusterId": board.cluster_id,
        "createdBy": workload.user,
        "createdAt": stamp(workload.created),
        "deletedAt": stamp_or_none(workload.deleted),
        "desiredPhase": workload.desired.value,
        "actualPhase": workload.phase.value,
        "spec": spec,
        "projectName": project.queue.name if project is not None else "",
        "elements": list(elements),
        "notices": list(notices),
    }
