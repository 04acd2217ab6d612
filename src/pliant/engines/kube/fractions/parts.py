"""GPU fractions on a cluster, which hands out whole GPUs only: a pod of ours holds the device for its users,
and each user's pod is given the device and its limit."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightkube import Client

from pliant.control.fractions import Enforcement, How, Sharing, TaskUse
from pliant.engines.kube.apiserver.cluster import Cluster, Refused, missing
from pliant.engines.kube.apiserver.names import (
    AGENT,
    CLUSTER,
    DEVICES,
    GPU_CONF,
    HOLDS,
    LEDGER,
    MANAGED_BY,
    holder_name,
)
from pliant.engines.kube.apiserver.seen import GPU_RESOURCE, MAIN, Seen
from pliant.engines.kube.fractions.agents import Agents, mounts
from pliant.engines.kube.fractions.lent import GRACE, INSIDE, Lent, Shared
from pliant.model.machine import Placement
from pliant.model.order import Start
from pliant.model.quantity import GPU

PROGRAMS, LIBRARY = "/usr/lib/pliant", "libpliant-gpu.so"
"""In Pliant's image: deploy/image/Containerfile puts it there."""

PRELOAD = "pliant/preload"
"""Annotation of a pod with a GPU fraction: the content of its /etc/ld.so.preload."""

HOLD = """\
echo "devices=$NVIDIA_VISIBLE_DEVICES"; nvidia-smi -L 2>/dev/null; echo held
trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"""
"""Command of the pod that holds a device; it prints which one it got."""

BRING = f"cp {PROGRAMS}/* {INSIDE}/"
OPEN = f" && : > {LEDGER} && chmod 666 {LEDGER}"
"""Any account in the pod may write to the ledger."""

BUDGET = 1.0
"""Seconds between two tries of an eviction that a disruption budget forbids."""

_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

HELD = Enforcement(
    How.COOPERATIVE,
    "a library in the pod keeps the limit; programs that bypass it are not detected on a cluster",
)
WATCHED = Enforcement(
    How.COOPERATIVE,
    "a library in the pod keeps the limit; the agent of its node reports programs that bypass it",
)


def use_of(pod: Seen | None) -> TaskUse:
    return TaskUse(WATCHED if pod is not None and pod.kept else HELD, ())


def in_parts(place: Placement) -> bool:
    return any(share.portion != GPU for share in place.shares)


class Parts:
    """The pods that hold devices. `see` is called under the engine's lock."""

    def __init__(
        self,
        cluster: Cluster,
        sharing: Sharing | None,
        shared: Callable[[str], Shared],
        memory: Callable[[str, str], int],
    ) -> None:
        """Without `sharing` no pod gets a fraction. `shared`: the users of a device. `memory`: bytes of a
        device of a node, 0 if unknown."""
        self._cluster, self._sharing, self._shared, self._memory = cluster, sharing, shared, memory
        self._agents = Agents(cluster.client.namespace)
        self._lent = None if sharing is None else Lent(cluster, sharing, shared, memory, self._agents)
        self._holders: dict[str, Seen] = {}  # by device
        self._lock = threading.Lock()
        self._ending: set[str] = set()  # uids of holders that are ending

    def see(self, pod: Seen, *, there: bool) -> bool:
        """True if it is ours and holds a device."""
        self._agents.see(pod, there=there)
        if not pod.holds or pod.cluster != self._cluster.name:
            return False
        before = self._holders.get(pod.holds)
        if there:
            self._holders[pod.holds] = pod
        elif before is not None and before.uid == pod.uid:
            del self._holders[pod.holds]
            self._ending.discard(pod.uid)
        return True

    def kept(self, nodes: Sequence[str]) -> bool:
        """True if `nodes` is not empty and each of them has an agent."""
        return bool(nodes) and all(self._agents.of(node) is not None for node in nodes)

    def devices(self) -> Sequence[str]:
        return list(self._holders)

    def tend(self, device: str) -> float | None:
        """Shares out the device, or ends an unused holder; returns seconds until the next try."""
        holder = self._holders.get(device)
        if holder is None or holder.deleting:
            return None
        with self._lock:  # later users see that it is ending, earlier ones are counted
            used = holder.lives and holder.uid not in self._ending and bool(self._shared(device))
            if not used:
                self._ending.add(holder.uid)
        if used:
            if self._lent is not None and holder.devices:
                self._lent.share_out(holder.node, device, holder.devices[0])
            return None
        return None if self._cluster.evict(holder, GRACE if holder.lives else 0) else BUDGET

    def in_the_way(self, place: Placement) -> bool:
        """True if a device to be given as a whole is still held for fractions of it."""
        return not in_parts(place) and any(uuid in self._holders for uuid in place.uuids)

    def lost(self, place: Placement, pod: Seen) -> bool:
        """True if a device of which that pod has a fraction is not held for it any more."""
        holders = [self._holders.get(uuid) for uuid in place.uuids] if in_parts(place) else []
        held = {each.devices[0] for each in holders if each is not None and each.lives and each.devices}
        return bool(holders) and not held.issuperset(pod.devices)

    def given(self, order: Start) -> Mapping[str, str] | None:
        """UUIDs by device; None while not all are held, or lent memory is not back. Raises Refused."""
        if self._sharing is None:
            raise Refused(
                "a part of a GPU needs the image of Pliant: pliant down, then pliant up --share-image IMAGE"
            )
        place = order.placement
        found = {uuid: self._hold(self._sharing, place.node, uuid) for uuid in place.uuids}
        if "" in found.values():
            return None
        assert self._lent is not None
        for device, uuid in found.items():
            self._lent.share_out(place.node, device, uuid)
        back = [self._lent.given_back(device) for device in found]  # a list: all are asked at once
        return found if all(back) else None

    def _hold(self, sharing: Sharing, node: str, device: str) -> str:
        """The device's UUID; empty: it is not held yet. Raises Refused."""
        holder = self._holders.get(device)
        with self._lock:
            ending = holder is not None and holder.uid in self._ending
        if holder is None:
            self._cluster.create(self._holder(sharing.image, node, device))
        elif not holder.lives:
            self.tend(device)
            why = (holder.end and holder.end.error) or "it ended"
            raise Refused(f"pod {holder.name} cannot hold a GPU of {node} for its parts: {why}", later=True)
        elif holder.stuck:
            raise Refused(f"pod {holder.name} cannot hold a GPU of {node}: {holder.stuck}", later=True)
        elif ending or holder.deleting:
            return ""
        elif holder.devices:
            return holder.devices[0]
        elif holder.since is not None:
            self._name(holder)
        return ""

    def _name(self, holder: Seen) -> None:
        """Annotates the holder with the UUID of its device; the watch then shows it. Raises Refused."""
        client: Client = self._cluster.client
        lines = missing(lambda: list(client.log(holder.name, namespace=holder.namespace, container=MAIN)))
        told = _UUID.search("".join(lines or ()))
        if told is not None:
            self._cluster.annotate(holder, {DEVICES: told[0]})
        elif lines and lines[-1].strip() == "held":
            raise Refused(f"pod {holder.name} says no UUID of a GPU: kubectl logs {holder.name}", later=True)

    def _holder(self, image: str, node: str, device: str) -> dict[str, Any]:
        asked = {"cpu": "0", "memory": "0", GPU_RESOURCE: "1"}  # must fit on a node that is full of jobs
        container = {
            "name": MAIN,
            "image": image,
            "command": ["sh", "-c", HOLD],
            "resources": {"requests": asked, "limits": {"memory": "16Mi", GPU_RESOURCE: "1"}},
            "securityContext": {"allowPrivilegeEscalation": False},
        }
        metadata = {
            "name": holder_name(self._cluster.name, device),
            "namespace": self._cluster.client.namespace,
            "labels": {MANAGED_BY: "pliant", CLUSTER: self._cluster.name},
            "annotations": {HOLDS: device},
        }
        spec = {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        return {"metadata": metadata, "spec": spec}

    def notes(self, order: Start, given: Mapping[str, str]) -> Mapping[str, str]:
        """Annotations of a pod of others that the webhook gave the library. Raises Refused."""
        conf, uuids = self._conf(order, given), ",".join(given.values())
        return {GPU_CONF: conf, PRELOAD: f"{INSIDE}/{LIBRARY}\n", DEVICES: uuids}

    def _conf(self, order: Start, given: Mapping[str, str]) -> str:
        assert self._sharing is not None
        try:
            memory = {device: self._memory(order.placement.node, device) for device in given}
            return self._sharing.conf(order, given, memory, LEDGER)
        except ValueError as error:
            raise Refused(f"no part of a GPU of node {order.placement.node}: {error}") from error

    def dress(self, pod: dict[str, Any], order: Start, given: Mapping[str, str]) -> None:
        """Gives a pod that is not created yet its devices, its limits and the library. Raises Refused."""
        assert self._sharing is not None
        conf = self._conf(order, given)
        uuids, spec, main = ",".join(given.values()), pod["spec"], pod["spec"]["containers"][0]
        inside = f"{INSIDE}/{LIBRARY}"
        pod["metadata"]["annotations"] |= {GPU_CONF: conf, PRELOAD: f"{inside}\n", DEVICES: uuids}
        main["env"] += [{"name": "NVIDIA_VISIBLE_DEVICES", "value": uuids}]
        kept = self._agents.of(order.placement.node) is not None
        library = {"name": "pliant-library", "mountPath": INSIDE}
        files = [("ld.so.preload", PRELOAD)]
        volumes: list[dict[str, Any]] = [{"name": "pliant-library", "emptyDir": {}}]
        brought: list[dict[str, Any]] = [library]
        if kept:
            pod["metadata"]["annotations"][AGENT] = "true"
            more, own = mounts(pod["metadata"]["namespace"], pod["metadata"]["name"])
            volumes += more
        else:
            ledger = {"name": "pliant-ledger", "mountPath": "/run/pliant"}
            own = [ledger, {"name": "pliant-gpu", "mountPath": "/etc/pliant", "readOnly": True}]
            volumes.append({"name": "pliant-ledger", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}})
            brought.append(ledger)
            files.append(("gpu.conf", GPU_CONF))
        main["volumeMounts"] = [
            *main.get("volumeMounts", ()),
            {**library, "readOnly": True},
            *own,
            {
                "name": "pliant-gpu",
                "mountPath": "/etc/ld.so.preload",
                "subPath": "ld.so.preload",
                "readOnly": True,
            },
        ]
        spec["initContainers"] = [
            {
                "name": "pliant-library",
                "image": self._sharing.image,
                "command": ["sh", "-c", BRING if kept else BRING + OPEN],
                "resources": main["resources"],  # runs before it, so the pod's sum does not grow
                "volumeMounts": brought,
                "securityContext": {"allowPrivilegeEscalation": False},
            }
        ]
        items = [
            {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{note}']"}}
            for path, note in files
        ]
        volumes.append({"name": "pliant-gpu", "downwardAPI": {"items": items}})
        spec["volumes"] = [*spec.get("volumes", ()), *volumes]
