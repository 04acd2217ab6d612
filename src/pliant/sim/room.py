"""Checks whether the requests of a trace could ever run on its nodes."""

from collections.abc import Iterable, Sequence

from pliant.model.machine import NODE_TYPE, Node
from pliant.model.workload import Request
from pliant.sim.lines import Line


class Room:
    """The distinct sizes of the nodes, and the GPU models that they have."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        nodes = list(nodes)
        self._sizes = {(len(node.gpus), node.cpu, node.memory) for node in nodes}
        self._models = {gpu.model for node in nodes for gpu in node.gpus}
        self._models |= {value for node in nodes if (value := node.label(NODE_TYPE))}
        self._fits: set[Request] = set()  # requests known to fit

    def check(self, line: Line, request: Request, models: Sequence[str] = ()) -> None:
        """Raise TraceError if the request could run on no node."""
        if unknown := [model for model in models if model not in self._models]:
            raise line.error(f"no node has a GPU of model {unknown[0]}")
        if request in self._fits:
            return
        if not any(
            request.devices <= gpus and request.cpu <= cpu and request.memory <= memory
            for gpus, cpu, memory in self._sizes
        ):
            raise line.error("the pod is larger than any node")
        self._fits.add(request)
