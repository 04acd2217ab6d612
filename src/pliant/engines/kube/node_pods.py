"""Follows the pods of one node for its agent, and writes events about them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from httpx2 import HTTPError
from lightkube import ApiError
from lightkube.resources.core_v1 import Pod

from pliant.engines.kube.apiserver.cluster import Cluster
from pliant.engines.kube.apiserver.connection import Connection, Unreachable
from pliant.engines.kube.apiserver.seen import Seen, seen
from pliant.engines.kube.apiserver.watching import Follower
from pliant.engines.kube.others.offers import project_of

log = logging.getLogger(__name__)

LONGEST = 100  # characters of an environment value: users may write anything there


@dataclass(frozen=True, slots=True)
class NodePod:
    namespace: str
    name: str
    uid: str
    ours: bool  # a server of ours started it
    over: bool
    conf: str  # the limits that the agent is to write; empty: none
    project: str
    workload: str


def _pod(pod: Pod) -> NodePod:
    found = seen(pod)
    assert pod.spec is not None
    main = next(each for each in pod.spec.containers if each.name == found.main)
    env = {each.name: (each.value or "")[:LONGEST] for each in main.env or ()}
    return NodePod(
        found.namespace,
        found.name,
        found.uid,
        bool(found.cluster),
        found.over or found.confirmed,
        found.conf if found.kept and found.cluster else "",
        *(_of_others(pod, found) if found.found else _told(env)),
    )


def _told(env: Mapping[str, str]) -> tuple[str, str]:
    return env.get("RUNAI_PROJECT", ""), env.get("RUNAI_JOB_NAME", "")


def _of_others(pod: Pod, found: Seen) -> tuple[str, str]:
    """Project, by the namespace, and workload, by the controller, of a pod that we did not make."""
    owners = (pod.metadata and pod.metadata.ownerReferences) or []
    return project_of(found.namespace), next((each.name for each in owners if each.controller), found.name)


class NodePods:
    """`replaced` gets all pods after each list, `changed` each change as (whether the pod exists, pod)."""

    def __init__(
        self,
        connection: Connection,
        node: str,
        replaced: Callable[[Sequence[NodePod]], None],
        changed: Callable[[bool, NodePod], None],
    ) -> None:
        self._node, self._cluster = node, Cluster(connection.client, "")
        self._follow = partial(
            Follower,
            connection.client,
            Pod,
            lambda pods: replaced([_pod(pod) for pod in pods]),
            lambda there, pod: changed(there, _pod(pod)),
            namespace="*",
            fields={"spec.nodeName": node},
        )

    def open(self) -> None:
        """Returns when all pods were reported once. Raises Unreachable."""
        try:
            self._follow().open()
        except (ApiError, HTTPError) as error:
            raise Unreachable(f"the pods of node {self._node} are not known: {error}") from error

    def warn(self, pod: NodePod | None, reason: str, text: str) -> None:
        """Writes an event of that pod, or of the node if `pod` is None."""
        metadata = {"name": self._node, "uid": self._node}
        if pod is not None:
            metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        about = {"apiVersion": "v1", "kind": "Node" if pod is None else "Pod", "metadata": metadata}
        try:
            self._cluster.event(about, reason, text)
        except (ApiError, HTTPError) as error:
            log.warning("the event %s of %s could not be written: %s", reason, metadata["name"], error)
