"""Nodes with an agent (pliant.node_agent): it writes the limits of parts of GPUs into a folder of its node,
which it shares with the pods that have them, and sees there what those use."""

from typing import Any

from pliant.engines.kube.apiserver.names import LEDGER
from pliant.engines.kube.apiserver.seen import Seen

FOLDER = "/run/pliant-fractions"
"""On every node, and under the same name in its agent. Fixed: what a pod of ours mounts of its node must not
depend on what somebody writes on a pod."""

USED = "/usr/lib/pliant/pliant-gpu-used"
"""In the image of Pliant."""


def folder_of(namespace: str, name: str) -> str:
    """What the agent keeps for that pod; no name of either kind has an underscore."""
    return f"{FOLDER}/{namespace}_{name}"


class Agents:
    """Those in the server's namespace: in another one anybody could pretend to be one. `see` is called under
    the engine's lock."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._ready: dict[str, Seen] = {}  # by node

    def see(self, pod: Seen, *, there: bool) -> None:
        if there and pod.agent and pod.namespace == self._namespace and not pod.deleting:
            self._ready[pod.node] = pod
        elif (before := self._ready.get(pod.node)) is not None and before.uid == pod.uid:
            del self._ready[pod.node]

    def of(self, node: str) -> Seen | None:
        """The one that is ready there."""
        return self._ready.get(node)


def ask(pod: Seen) -> list[str]:
    """The command by which an agent tells what that pod has heard and uses."""
    folder = folder_of(pod.namespace, pod.name)
    return [USED, f"{folder}/conf/gpu.conf", f"{folder}/ledger"]


def mounts(namespace: str, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of a pod whose limits its node's agent writes, and mounts of its container. The pod begins once
    the agent has made them: it has its limits before its program runs."""
    folder = folder_of(namespace, name)
    volumes: list[dict[str, Any]] = [
        {"name": "pliant-limits", "hostPath": {"path": f"{folder}/conf", "type": "Directory"}},
        {"name": "pliant-ledger", "hostPath": {"path": f"{folder}/ledger", "type": "File"}},
    ]
    inside: list[dict[str, Any]] = [
        {"name": "pliant-limits", "mountPath": "/etc/pliant", "readOnly": True},
        {"name": "pliant-ledger", "mountPath": LEDGER},
    ]
    return volumes, inside
