"""The nodes of the cluster, what stands on each, and what the scheduler was told of it last."""

from collections import defaultdict
from collections.abc import Callable

from lightkube.resources.core_v1 import Node as KubeNode

from pliant.control.ports import Sink
from pliant.engines.kube.nodes import gpu_count, node_of, stand_in, uuids
from pliant.engines.kube.pods import Seen
from pliant.model.fact import NodeLost, NodeSeen
from pliant.model.machine import Node
from pliant.model.workload import AttemptId

Key = tuple[str, str]
"""Namespace and name of a pod."""


class NodeBook:
    """Not for two threads at once."""

    def __init__(
        self, report: Sink, scheduled: Callable[[Seen], bool], ours: Callable[[Seen], bool], engine: str
    ) -> None:
        """`scheduled` tells whether a pod is an attempt that the scheduler knows, `ours` whether it is this
        server's."""
        self._report, self._scheduled, self._ours, self._engine = report, scheduled, ours, engine
        self._nodes: dict[str, KubeNode] = {}
        self._pods: defaultdict[str, dict[Key, Seen]] = defaultdict(dict)  # by node; those that live
        self._placed: defaultdict[str, dict[AttemptId, tuple[str, ...]]] = defaultdict(dict)  # devices
        self._foreign: dict[str, frozenset[str]] = {}  # devices that stand for those of other pods
        self._told: dict[str, Node] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def names(self) -> frozenset[str]:
        return frozenset(self._nodes)

    def with_gpus(self) -> list[str]:
        return [name for name, node in self._nodes.items() if gpu_count(node)]

    def gpu_memory(self, name: str) -> dict[str, int]:
        """Bytes by device of that node; of none if it is gone, 0 where nobody has said."""
        told = self._told.get(name)
        return {} if told is None else {gpu.uuid: gpu.memory for gpu in told.gpus}

    def place(self, attempt: AttemptId, node: str, devices: tuple[str, ...]) -> None:
        """The scheduler has given these to that attempt: no other pod's stand-in may be among them."""
        self._placed[node][attempt] = devices
        self.look(node)

    def ended(self, attempt: AttemptId, node: str) -> None:
        self._placed[node].pop(attempt, None)

    def pod(self, before: Seen | None, pod: Seen, *, there: bool) -> None:
        """It was seen, or seen to be gone."""
        key = (pod.namespace, pod.name)
        if before is not None:
            self._pods[before.node].pop(key, None)
        if there and pod.node and pod.lives:
            self._pods[pod.node][key] = pod
        if pod.node and not self._scheduled(pod):
            self.look(pod.node)

    def node(self, name: str, node: KubeNode | None) -> None:
        """None: it is gone."""
        if node is not None:
            self._nodes[name] = node
            self.look(name)
            return
        self._nodes.pop(name, None)
        self._foreign.pop(name, None)
        if self._told.pop(name, None) is not None:
            self._report(NodeLost(name))

    def look(self, name: str) -> None:
        """Report it if it has changed for the scheduler."""
        node = self._nodes.get(name)
        if node is None:
            return
        others = [pod for pod in self._pods[name].values() if not self._scheduled(pod)]
        ours = {device for devices in self._placed[name].values() for device in devices}
        used = -(-sum(pod.amount.gpu for pod in others if not (pod.holds and self._ours(pod))) // 1000)
        foreign = stand_in(self._foreign.get(name, ()), uuids(name, gpu_count(node)), ours, used)
        self._foreign[name] = foreign
        now = node_of(node, others, foreign, self._engine)
        if self._told.get(name) != now:
            self._told[name] = now
            self._report(NodeSeen(now))
