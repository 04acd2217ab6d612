"""Knows which nodes have an agent (pliant.node_agent): it writes the limits of GPU fractions into a folder of
its node, which it shares with the pods that have fractions, and reads there what those use."""

from typing import Any

from pliant.engines.kube.apiserver.names import LEDGER
from pliant.engines.kube.apiserver.seen import Seen

FOLDER = "/run/pliant-fractions"
"""The folder on every node and in its agent. It is fixed: what our pods mount of a node must not depend on
annotations, which users can write."""

USED = "/usr/lib/pliant/pliant-gpu-used"
"""In Pliant's image."""


def folder_of(namespace: str, name: str) -> str:
    """The agent's folder for that pod; the name is unique, since neither part can have an underscore."""
    return f"{FOLDER}/{namespace}_{name}"


class Agents:
    """The agents in the server's namespace: in other namespaces, users could fake one. `see` is called under
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
        """The ready agent of that node."""
        return self._ready.get(node)


def ask(pod: Seen) -> list[str]:
    """The command that an agent runs to tell which limits that pod has read and what it uses."""
    folder = folder_of(pod.namespace, pod.name)
    return [USED, f"{folder}/conf/gpu.conf", f"{folder}/ledger"]


def mounts(namespace: str, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of a pod whose limits its node's agent writes, and mounts of its container. The pod starts only
    after the agent has made the files, so it has its limits before its program runs."""
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
