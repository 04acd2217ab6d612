"""Counts the GPUs that pods have by claims of dynamic resource allocation (DRA); others allocate those."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from lightkube import Client
from lightkube.models.resource_v1 import AllocationResult
from lightkube.resources.resource_v1 import ResourceClaim

from pliant.engines.kube.apiserver.watching import Follower

DRIVER = "gpu.nvidia.com"

EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim made for a pod that asks for nvidia.com/gpu: the pod's request is what counts."""

_WHOLE = re.compile(r"gpu-\d+")
"""The driver's name of a whole GPU; a part of it is called gpu-0-mig-..."""

Key = tuple[str, str]
"""Namespace and name."""


class Claims:
    """`told` gets each node's claimed devices, by the driver's names, whenever they change."""

    def __init__(self, client: Client, told: Callable[[Mapping[str, frozenset[str]]], None]) -> None:
        self._told = told
        self._devices: dict[Key, tuple[tuple[str, str], ...]] = {}  # (node, device) of claims that have any
        self._watch = Follower(client, ResourceClaim, self._listed, self._changed, namespace="*")
        self._watch.optional = True
        self.close, self.join = self._watch.close, self._watch.join

    def open(self) -> None:
        """Starts the watch; a cluster without claims, or without the right to read them, is no error."""
        self._watch.open()

    def _listed(self, claims: Sequence[ResourceClaim]) -> None:
        self._devices = {_key(each): found for each in claims if (found := devices_of(each))}
        self._tell()

    def _changed(self, there: bool, claim: ResourceClaim) -> None:
        before, found = self._devices.pop(_key(claim), ()), devices_of(claim) if there else ()
        if found:
            self._devices[_key(claim)] = found
        if found != before:
            self._tell()

    def _tell(self) -> None:
        by_node = defaultdict[str, set[str]](set)
        for found in self._devices.values():
            for node, device in found:
                by_node[node].add(device)
        self._told({node: frozenset(devices) for node, devices in by_node.items()})


def _key(claim: ResourceClaim) -> Key:
    metadata = claim.metadata
    assert metadata is not None
    return metadata.namespace or "", metadata.name or ""


def devices_of(claim: ResourceClaim) -> tuple[tuple[str, str], ...]:
    """(node, GPU) of each allocated device; a claim of a part of a GPU counts as the whole GPU."""
    notes = (claim.metadata and claim.metadata.annotations) or {}
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is None or allocation.devices is None or notes.get(EXTENDED) == "true":
        return ()
    found = {
        (node, whole[0] if (whole := _WHOLE.match(each.device)) else each.device)
        for each in allocation.devices.results or ()
        if each.driver == DRIVER and not each.adminAccess
        for node in (_node_of(allocation) or each.pool,)
    }
    return tuple(sorted(found))


def _node_of(allocation: AllocationResult) -> str:
    """The node that alone can reach the allocated devices; empty: the claim does not say."""
    terms = allocation.nodeSelector.nodeSelectorTerms if allocation.nodeSelector is not None else []
    fields: Iterable[str] = (
        value
        for term in terms
        for each in term.matchFields or ()
        if each.key == "metadata.name" and each.operator == "In"
        for value in each.values or ()
    )
    return next(iter(fields), "")
