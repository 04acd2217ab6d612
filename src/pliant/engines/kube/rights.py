"""Lists the rights that server and node agents need on a cluster, and checks whether an account has them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from httpx2 import HTTPError
from lightkube import ApiError, Client
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.resources.core_v1 import Node

from pliant.control.fractions import Finding
from pliant.engines.kube.apiserver.cluster import made, status_of
from pliant.engines.kube.apiserver.connection import Unreachable
from pliant.engines.kube.nodes.nodes import MEMORY, MODEL, gpu_count
from pliant.engines.kube.others.offers import PLUGINS, UPSTREAM
from pliant.engines.kube.others.origins import COUNTS
from pliant.engines.kube.resources.kinds import GROUP, VERSION

OLDEST = (1, 29)
"""Oldest supported version of the API server: older ones may not support CEL rules of custom resources."""


KINDS = ("departments", "projects", "nodepools", "workloads")


class Right(NamedTuple):
    group: str  # empty: the core group
    resource: str  # with its subresource, e.g. pods/log
    verbs: tuple[str, ...]
    why: str


RIGHTS = (
    Right("", "nodes", ("list", "watch"), "what there is"),
    Right("", "pods", ("list", "watch", "get", "create", "patch"), "tasks, and pods that name its scheduler"),
    Right("", "pods/binding", ("create",), "placement"),
    Right("", "pods/eviction", ("create",), "stopping, with disruption budgets kept"),
    Right("", "pods/status", ("patch",), "why a pod waits"),
    Right("", "pods/resize", ("patch",), "cores and memory of pods that run"),
    Right("", "pods/log", ("get",), "pliant logs"),
    Right("", "pods/exec", ("get", "create"), "pliant exec, reports of jobs, memory that is lent"),
    Right("", "pods/portforward", ("get", "create"), "pliant port-forward"),
    Right("", "namespaces", ("get", "create"), "those of projects"),
    Right("", "secrets", ("list", "get", "create", "update", "delete"), "values of environment variables"),
    Right("", "services", ("create", "delete"), "how pods of one workload find one another"),
    Right("", "events", ("create",), "what is wrong with an object"),
    Right("coordination.k8s.io", "leases", ("get", "create", "update"), "which server leads"),
    Right("scheduling.k8s.io", "priorityclasses", ("list", "watch"), "values of priorities"),
    *(Right(group, f"{kind.lower()}s", ("get",), f"how many pods a {kind} wants") for group, kind in COUNTS),
    *(Right(group, "podgroups", ("get",), "how many pods start together") for group in (PLUGINS, UPSTREAM)),
    Right("resource.k8s.io", "resourceclaims", ("list", "watch"), "GPUs that pods have by claims"),
    Right("apps", "statefulsets", ("get",), "which LeaderWorkerSet a pod belongs to"),
    *(
        Right(GROUP, kind, ("list", "watch", "create", "patch", "delete"), "custom resources")
        for kind in KINDS
    ),
    *(Right(GROUP, f"{kind}/status", ("patch",), "custom resources") for kind in KINDS),
)

AGENT_RIGHTS = (
    Right("", "pods", ("list", "watch"), "which pods are on its node, and their limits"),
    Right("", "events", ("create",), "what is wrong with a pod or the node"),
)
"""Rights of the node agent, which has an account of its own."""


def examine(client: Client) -> list[Finding]:
    """Findings about the API server, the rights, the custom resources and the nodes. Raises Unreachable."""
    try:
        return list(_findings(client))
    except HTTPError as error:
        raise Unreachable(f"the cluster does not answer: {error}. Try `kubectl get nodes`.") from error


def _findings(client: Client) -> Iterator[Finding]:
    yield _version(client)
    for right in RIGHTS:
        lacks = [verb for verb in right.verbs if not _may(client, right, verb)]
        name = f"{right.resource}{'.' + right.group if right.group else ''}"
        said = f"may not {', '.join(lacks)} {name} ({right.why}): give the account the chart's ClusterRole"
        yield Finding(f"right {name}", not lacks, said if lacks else right.why)
    yield from _kinds(client)
    yield from _nodes(client)


def _version(client: Client) -> Finding:
    answer = client._client._client.get("/version")
    answer.raise_for_status()
    told = answer.json()
    number = tuple(int("".join(filter(str.isdigit, told[part])) or 0) for part in ("major", "minor"))
    least = ".".join(map(str, OLDEST))
    text = f"{told['gitVersion']}; {least} or newer is needed"
    return Finding("API server", number >= OLDEST, text)


def _may(client: Client, right: Right, verb: str) -> bool:
    resource, _, part = right.resource.partition("/")
    asked: dict[str, Any] = {"group": right.group, "resource": resource, "verb": verb}
    asked |= {"subresource": part} if part else {}
    review = client.create(made(SelfSubjectAccessReview, {"spec": {"resourceAttributes": asked}}))
    return review.status is not None and bool(review.status.allowed)


def _kinds(client: Client) -> Iterator[Finding]:
    answer = client._client._client.get(f"/apis/{GROUP}/{VERSION}")
    told = answer.json() if answer.status_code == 200 else {}  # a missing group is answered in plain text
    there = {each["name"] for each in told.get("resources", ())}
    for kind in KINDS:
        found = kind in there
        text = VERSION if found else "not installed: pliant cluster crds | kubectl apply -f -"
        yield Finding(f"resource {kind}.{GROUP}", found, text)


def _nodes(client: Client) -> Iterator[Finding]:
    """Counts the GPUs, and names nodes without GPU labels: no job can ask for those by model or memory."""
    try:
        nodes = list(client.list(Node))
    except ApiError as error:
        if status_of(error) != 403:
            raise
        yield Finding("nodes with GPUs", False, "not known: the account may not list nodes")
        return
    gpus = [node for node in nodes if gpu_count(node)]
    yield Finding(
        "nodes with GPUs",
        bool(gpus),
        f"{len(gpus)} of {len(nodes)} nodes have {sum(map(gpu_count, gpus))} GPUs"
        if gpus
        else "none: install NVIDIA's device plugin",
    )
    bare = []
    for node in gpus:
        labels = (node.metadata and node.metadata.labels) or {}
        if MODEL not in labels or MEMORY not in labels:
            bare.append((node.metadata and node.metadata.name) or "")
    if bare:
        said = (
            f"{', '.join(sorted(bare)[:5])} lack {MODEL} or {MEMORY}: install NVIDIA's GPU feature discovery"
        )
        yield Finding("labels of GPUs", False, said)
