"""Lends free memory of a shared GPU to pods that may exceed their request, and takes it back before another
pod starts. The limit of a running pod changes with its annotation. A command, run in its node's agent or else
in the pod, tells whether the pod has read the limit, and what it uses."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pliant.control.fractions import Sharing
from pliant.engines.kube.apiserver.cluster import Cluster
from pliant.engines.kube.apiserver.names import GPU_CONF, LEDGER
from pliant.engines.kube.apiserver.seen import Seen
from pliant.engines.kube.fractions.agents import Agents, ask
from pliant.engines.kube.pods.session import begin, output

log = logging.getLogger(__name__)

INSIDE = "/opt/pliant"
ASK = [f"{INSIDE}/pliant-gpu-used", "/etc/pliant/gpu.conf", LEDGER]

GRACE = 1
"""Grace period in seconds of a pod that must leave its GPU. Not 0: the cluster would forget the pod before
its node has the device back."""

AWAY = "the agent of its node is not ready; look with `kubectl get pods -l pliant/node-agent -o wide`"

BACK = 60.0
"""Seconds in which a pod must give back lent memory; its node needs 1 to 2 s to pass on the new limit."""


class Shared(NamedTuple):
    """The users of a shared device."""

    pods: tuple[Seen, ...]  # the live ones
    coming: int  # attempts whose pods are still to come
    memory: int  # bytes of the device that those will get

    def __bool__(self) -> bool:
        return bool(self.pods or self.coming)


@dataclass(slots=True)
class _Known:
    """What the watch does not tell of a pod, or not yet."""

    device: str
    written: str = ""  # its annotation as last written; the watch may show an older one
    kept: str = ""  # the limits that it was last seen to keep
    asked: tuple[str, float] | None = ("", 0.0)  # (limits that it must keep, since, monotonic s); None: its
    # node's agent is away


class Lent:
    def __init__(
        self,
        cluster: Cluster,
        sharing: Sharing,
        shared: Callable[[str], Shared],
        memory: Callable[[str, str], int],
        agents: Agents,
    ) -> None:
        """`shared` and `memory` are those of Parts."""
        self._cluster, self._sharing, self._shared, self._memory = cluster, sharing, shared, memory
        self._agents = agents
        self._known: dict[str, _Known] = {}  # by uid
        self._lock = threading.Lock()  # over it, and while limits are written

    def share_out(self, node: str, device: str, uuid: str) -> None:
        """Writes the current limit of each running pod on that device."""
        usable = self._memory(node, device)
        with self._lock:
            pods, _, coming = self._shared(device)
            uids = {pod.uid for pod in pods}
            for uid in [uid for uid, it in self._known.items() if it.device == device and uid not in uids]:
                del self._known[uid]
            running = {pod.attempt: pod for pod in pods if pod.attempt is not None and pod.since is not None}
            texts = {
                pod.attempt: self._text(pod) for pod in pods if pod.attempt is not None and self._sound(pod)
            }
            if not usable or not running:
                return
            for attempt, text in self._sharing.limits(texts, uuid, usable - coming).items():
                pod = running.get(attempt)
                if pod is not None:  # a pod that has not begun has what it requested
                    self._cluster.annotate(pod, {GPU_CONF: text})
                    self._known.setdefault(pod.uid, _Known(device)).written = text

    def _text(self, pod: Seen) -> str:
        """The annotation that the pod has, or will have once the watch has caught up."""
        known = self._known.get(pod.uid)
        return (known and known.written) or pod.conf

    def _sound(self, pod: Seen) -> bool:
        """True if its annotation can be read. Anyone who may change pods can break it; the pod then ends."""
        try:
            self._sharing.lends(pod.conf)
        except ValueError as error:
            if not pod.deleting:
                log.warning("ends pod %s/%s: its annotation %s: %s", pod.namespace, pod.name, GPU_CONF, error)
                self._cluster.evict(pod, GRACE)
            return False
        return True

    def given_back(self, device: str) -> bool:
        """True if all pods on that device keep to their limits. Evicts a pod that takes too long."""
        back = [self._keeps(pod, device) for pod in self._shared(device).pods if pod.since is not None]
        return all(back)

    def _keeps(self, pod: Seen, device: str) -> bool:
        with self._lock:
            text = self._text(pod)
            if not self._sound(pod):
                return False
            known = self._known.setdefault(pod.uid, _Known(device))
            if known.kept == text or not self._sharing.lends(text):
                return True
            agent = self._agents.of(pod.node) if pod.kept else None
            if pod.kept and agent is None:
                if known.asked is not None:
                    log.warning("pod %s/%s may keep what was lent to it: %s", pod.namespace, pod.name, AWAY)
                known.asked = None  # the time starts when an agent is ready to ask it
                return False
            if known.asked is None or known.asked[0] != text:
                known.asked = (text, time.monotonic())
            since = known.asked[1]
        if self._shows(pod, text, agent):
            known.kept = text
            return True
        if time.monotonic() - since > BACK and not pod.deleting:
            log.warning("ends pod %s/%s: it keeps GPU memory that was lent to it", pod.namespace, pod.name)
            self._cluster.evict(pod, GRACE)
        return False

    def _shows(self, pod: Seen, text: str, agent: Seen | None) -> bool:
        if pod.attempt is None:
            return False
        where, command = (pod, ASK) if agent is None else (agent, ask(pod))
        try:
            said = output(begin(self._cluster.client, where, pod.attempt, command))
            return self._sharing.keeps_to(text, said)
        except ValueError as error:
            log.info("pod %s/%s does not tell what it uses: %s", pod.namespace, pod.name, error)
            return False
