"""Follows the nodes, and the GPUs that pods have by claims, and writes them into the book of nodes."""

import threading
from collections.abc import Callable, Mapping, Sequence

from lightkube import Client
from lightkube.resources.core_v1 import Node as KubeNode

from pliant.engines.kube.apiserver.watching import Follower
from pliant.engines.kube.nodes.claims import Claims
from pliant.engines.kube.nodes.nodebook import NodeBook
from pliant.engines.kube.nodes.nodes import name_of


class Machines:
    def __init__(
        self,
        client: Client,
        book: NodeBook,
        lock: threading.RLock,
        lose: Callable[[str], None],
        labels: Mapping[str, str] | None,
    ) -> None:
        """All users of the book hold `lock`. `lose` is called for a lost node, and removes it there."""
        self._book, self._lock, self._lose = book, lock, lose
        self.nodes = Follower(client, KubeNode, self._listed, self._changed, labels=labels)
        self._claims = Claims(client, self._claimed)

    def open(self) -> None:
        self._claims.open()
        self.nodes.open()

    def close(self) -> None:
        self._claims.close()
        self.nodes.close()

    def join(self) -> None:
        self._claims.join()
        self.nodes.join()

    def _listed(self, nodes: Sequence[KubeNode]) -> None:
        there = {name_of(node) for node in nodes}
        with self._lock:
            for gone in self._book.names() - there:
                self._lose(gone)
        for node in nodes:
            self._changed(True, node)

    def _changed(self, there: bool, node: KubeNode) -> None:
        with self._lock:
            name = name_of(node)
            self._book.node(name, node) if there else self._lose(name)

    def _claimed(self, devices: Mapping[str, frozenset[str]]) -> None:
        with self._lock:
            self._book.claimed(devices)
