"""The nodes of the cluster, what runs on each, and what was last reported of it to the scheduler."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from lightkube.resources.core_v1 import Node as KubeNode

from pliant.control.ports import Sink
from pliant.engines.kube.apiserver.seen import Seen
from pliant.engines.kube.nodes.nodes import gpu_count, node_of, stand_in, uuids
from pliant.model.fact import NodeLost, NodeSeen
from pliant.model.machine import Node, Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.workload import AttemptId

Key = tuple[str, str]
"""Namespace and name of a pod."""


class NodeBook:
    """Not thread-safe."""

    def __init__(
        self, report: Sink, scheduled: Callable[[Seen], bool], ours: Callable[[Seen], bool], engine: str
    ) -> None:
        """`scheduled`: true of the pod of an attempt that the scheduler knows. `ours`: true of this server's
        pods."""
        self._report, self._scheduled, self._ours, self._engine = report, scheduled, ours, engine
        self._nodes: dict[str, KubeNode] = {}
        self._pods: defaultdict[str, dict[Key, Seen]] = defaultdict(dict)  # by node; the live ones
        self._placed: defaultdict[str, dict[AttemptId, Placement]] = defaultdict(dict)
        self._claimed: dict[str, frozenset[str]] = {}  # by node: claimed devices, by the driver's names
        self._foreign: dict[str, frozenset[str]] = {}  # by node: devices that stand for those of other pods
        self._told: dict[str, Node] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def names(self) -> frozenset[str]:
        return frozenset(self._nodes)

    def with_gpus(self) -> list[str]:
        return [name for name, node in self._nodes.items() if gpu_count(node)]

    def gpu_memory(self, name: str) -> dict[str, int]:
        """Bytes by device of that node; {} if the node is gone, 0 where the size is unknown."""
        told = self._told.get(name)
        return {} if told is None else {gpu.uuid: gpu.memory for gpu in told.gpus}

    def place(self, attempt: AttemptId, place: Placement) -> None:
        """Records a placement: none of its devices may stand for those of other pods."""
        self._placed[place.node][attempt] = place
        told = self._told.get(place.node)
        free = told is not None and not self._foreign.get(place.node)
        if told is None or not (free and {gpu.uuid for gpu in told.gpus}.issuperset(place.uuids)):
            self.look(place.node)

    def claimed(self, devices: Mapping[str, frozenset[str]]) -> None:
        """Replaces the claimed devices by node."""
        before, self._claimed = self._claimed, dict(devices)
        for name in before.keys() | devices.keys():
            if before.get(name) != devices.get(name):
                self.look(name)

    def changed(self, attempt: AttemptId, place: Placement, *, over: bool) -> None:
        """Updates the placement of an attempt, or removes it if the attempt is `over`."""
        placed = self._placed[place.node]
        if placed.pop(attempt, None) is not None and not over:
            placed[attempt] = place

    def pod(self, before: Seen | None, pod: Seen, *, there: bool) -> None:
        """Records a pod as seen, or as gone."""
        key = (pod.namespace, pod.name)
        if before is not None:
            self._pods[before.node].pop(key, None)
        if there and pod.node and pod.lives:
            self._pods[pod.node][key] = pod
        changed = before is not None and before.amount != pod.amount and self._beyond(before)
        if pod.node and (changed or not self._scheduled(pod) or self._beyond(pod)):
            self.look(pod.node)

    def _beyond(self, pod: Seen) -> Resources | None:
        """What an attempt's pod takes above its placement, since another client changed it; None: nothing."""
        given = self._placed[pod.node].get(pod.attempt) if pod.attempt is not None else None
        if given is None:
            return None
        whole = sum(share.portion == GPU for share in given.shares) * GPU
        more = pod.amount.minus(Resources(whole, given.cpu, given.memory))
        return Resources(*(max(each, 0) for each in more)) if max(more) > 0 else None

    def node(self, name: str, node: KubeNode | None) -> None:
        """Records a node, or its loss if `node` is None."""
        if node is not None:
            self._nodes[name] = node
            self.look(name)
            return
        self._nodes.pop(name, None)
        self._foreign.pop(name, None)
        if self._told.pop(name, None) is not None:
            self._report(NodeLost(name))

    def look(self, name: str) -> None:
        """Reports the node if it has changed for the scheduler."""
        node = self._nodes.get(name)
        if node is None:
            return
        others, more = list[Seen](), Resources()
        for pod in self._pods[name].values():
            if not self._scheduled(pod):
                others.append(pod)
            elif (beyond := self._beyond(pod)) is not None:
                more = more.plus(beyond)
        ours = {device for place in self._placed[name].values() for device in place.uuids}
        taken = sum(pod.amount.gpu for pod in others if not (pod.holds and self._ours(pod)))
        used = -(-(taken + more.gpu) // GPU) + len(self._claimed.get(name, ()))
        devices = uuids(name, gpu_count(node), ours)
        used += len(devices) - gpu_count(node)  # devices that only their attempts keep are not free
        foreign = stand_in(self._foreign.get(name, ()), devices, ours, used)
        self._foreign[name] = foreign
        now = node_of(node, others, more, devices, foreign, self._engine)
        if self._told.get(name) != now:
            self._told[name] = now
            self._report(NodeSeen(now))
