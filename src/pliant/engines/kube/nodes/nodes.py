"""Makes the scheduler's node from a cluster node: what is left beside the pods of others."""

from collections.abc import Collection, Sequence

from lightkube.resources.core_v1 import Node as KubeNode

from pliant.engines.kube.apiserver.quantities import bytes_of, count_of, millicores_of
from pliant.engines.kube.apiserver.seen import GPU_RESOURCE, Seen, ms_of
from pliant.model.affinity import Effect, Taint
from pliant.model.machine import Gpu, Node
from pliant.model.quantity import Resources

MODEL, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
"""Labels of NVIDIA's GPU feature discovery; the memory is in MiB."""

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node."""


def uuids(name: str, count: int, held: Collection[str] = ()) -> tuple[str, ...]:
    """Devices of a node. The cluster only counts and hands out GPUs, so these names are places. Devices that
    attempts hold stay, whatever the node reports: it reports no GPUs while its device plugin restarts."""
    start = f"{name}/gpu-"
    numbers = {int(uuid[len(start) :]) for uuid in held if uuid.startswith(start)}
    others = [number for number in range(count) if number not in numbers]
    numbers.update(others[: max(count - len(numbers), 0)])
    return tuple(f"{start}{number}" for number in sorted(numbers))


def number_of(uuid: str) -> int:
    return int(uuid.rpartition("-")[2])


def name_of(node: KubeNode) -> str:
    return (node.metadata and node.metadata.name) or ""


def gpu_count(node: KubeNode) -> int:
    can = (node.status and node.status.allocatable) or {}
    return count_of(can.get(GPU_RESOURCE, "0"))


def memory_of(node: KubeNode) -> int:
    """Bytes of memory of each of its GPUs, from its label; 0: unknown."""
    said = ((node.metadata and node.metadata.labels) or {}).get(MEMORY, "")
    return int(said) << 20 if said.isdigit() else 0


def node_of(
    node: KubeNode,
    others: Sequence[Seen],
    more: Resources,
    devices: Sequence[str],
    foreign: Collection[str],
    engine: str,
) -> Node:
    """`others`: pods on the node that are not the scheduler's. `foreign`: the devices that stand for theirs.
    `more`: what the scheduler's own pods take above their placements."""
    assert node.metadata is not None
    name = node.metadata.name or ""
    labels = dict(node.metadata.labels or {})
    can = (node.status and node.status.allocatable) or {}
    taints = [
        Taint(each.key, each.value or "", Effect(each.effect), ms_of(each.timeAdded) or 0)
        for each in (node.spec and node.spec.taints) or []
    ]
    if (
        node.spec is not None
        and node.spec.unschedulable
        and not any(each.key == UNSCHEDULABLE for each in taints)
    ):
        taints.append(Taint(UNSCHEDULABLE))
    memory = memory_of(node)
    most = count_of(can["pods"]) - len(others) if "pods" in can else None
    return Node(
        name,
        tuple(Gpu(uuid, number_of(uuid), memory, labels.get(MODEL, ""), uuid in foreign) for uuid in devices),
        max(millicores_of(can.get("cpu", "0")) - sum(pod.amount.cpu for pod in others) - more.cpu, 0),
        max(bytes_of(can.get("memory", "0")) - sum(pod.amount.memory for pod in others) - more.memory, 0),
        tuple(sorted(labels.items())),
        _ready(node),
        engine=engine,
        taints=tuple(taints),
        max_tasks=most,
    )


def _ready(node: KubeNode) -> bool:
    conditions = (node.status and node.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def stand_in(
    before: Collection[str], devices: Sequence[str], ours: Collection[str], count: int
) -> frozenset[str]:
    """The devices that stand for the `count` that others use: those of `ours` last, and as many of `before`
    as possible, because a decision may rely on the others being free."""
    order = sorted(devices, key=lambda uuid: (uuid not in ours, uuid in before), reverse=True)
    return frozenset(order[:count])
