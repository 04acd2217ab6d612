"""What the scheduler hears of nodes whose GPUs come and go, and of pods that use more than given."""

import pytest
from lightkube.resources.core_v1 import Node as KubeNode
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from pliant.engines.kube.apiserver.names import ATTEMPT, CLUSTER
from pliant.engines.kube.apiserver.seen import seen
from pliant.engines.kube.nodes.claims import EXTENDED, devices_of
from pliant.engines.kube.nodes.nodebook import NodeBook
from pliant.model.fact import NodeSeen
from pliant.model.machine import Placement, Share
from pliant.model.workload import AttemptId

GIB = 2**30
A, B = AttemptId("w-a", "task-0", 1), AttemptId("w-b", "task-0", 1)


class Book:
    """A book of the node n, whose attempts are all known."""

    def __init__(self):
        self.told = []
        self.book = NodeBook(self.told.append, lambda pod: pod.attempt is not None, lambda pod: True, "kube")

    def node(self, gpus):
        can = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        body = {"metadata": {"name": "n"}, "status": {"allocatable": can}}
        self.book.node("n", KubeNode.from_dict(body))

    def place(self, attempt, *indexes, cpu=1000, memory=GIB):
        shares = tuple(Share(f"n/gpu-{index}", 1000, GIB) for index in indexes)
        self.book.place(attempt, Placement("n", shares, cpu, memory))

    def pod(self, name, *containers, attempt=None):
        """Each container: (cores, GPUs)."""
        metadata = {"name": name, "namespace": "default", "uid": name}
        if attempt is not None:
            metadata |= {"labels": {CLUSTER: "us"}, "annotations": {ATTEMPT: str(attempt)}}
        found = []
        for index, (cores, gpus) in enumerate(containers):
            asked = {"cpu": str(cores), "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
            found.append({"name": f"c{index}", "resources": {"requests": asked}})
        spec = {"nodeName": "n", "containers": found}
        body = {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
        self.book.pod(None, seen(Pod.from_dict(body)), there=True)

    @property
    def last(self):
        assert isinstance(self.told[-1], NodeSeen)
        return self.told[-1].node

    def gpus(self):
        return [gpu.index for gpu in self.last.gpus]

    def foreign(self):
        return [gpu.index for gpu in self.last.gpus if gpu.foreign]


@pytest.fixture
def book():
    book = Book()
    book.node(4)
    return book


def test_devices_that_attempts_hold_stay_while_a_device_plugin_starts_again(book):
    """The node reports no GPUs for a while. Its attempts run on, and none is stopped for devices that stay
    away, which are marked `foreign`."""
    book.place(A, 1)
    book.place(B, 3)
    book.node(0)
    assert book.gpus() == book.foreign() == [1, 3]
    book.node(4)
    assert (book.gpus(), book.foreign()) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize(("left", "gpus"), [(3, [0, 1, 3]), (2, [1, 3]), (1, [1, 3])])
def test_a_gpu_that_is_gone_is_one_that_nobody_holds(book, left, gpus):
    book.place(A, 1)
    book.place(B, 3)
    book.node(left)
    assert book.gpus() == gpus and len(book.foreign()) == len(gpus) - left


def test_a_device_that_stayed_for_an_attempt_goes_after_its_end(book):
    book.place(A, 3)
    book.node(0)
    assert book.gpus() == [3]
    book.book.changed(A, Placement("n", (Share("n/gpu-3", 1000, GIB),)), over=True)
    book.book.look("n")
    assert book.gpus() == []


def test_what_a_webhook_adds_to_our_pods_is_not_given_to_others(book):
    """A service mesh adds a container: its cores count as used, even in a pod that we made."""
    book.place(A, 0, cpu=1000, memory=GIB)
    book.pod("plain", (1, 1), attempt=A)
    assert (book.last.cpu, book.last.memory) == (8000, 64 * GIB)
    book.place(B, 1, cpu=1000, memory=GIB)
    book.pod("meshed", (1, 1), (2, 0), attempt=B)
    assert (book.last.cpu, book.last.memory) == (6000, 63 * GIB)
    assert book.foreign() == []


def test_more_gpus_than_an_attempt_was_given_are_counted(book):
    book.place(A, 0)
    book.pod("greedy", (1, 2), attempt=A)
    assert len(book.foreign()) == 1 and 0 not in book.foreign()


def claim(*devices, node="n", driver="gpu.nvidia.com", notes=None, **more):
    results = [
        {"driver": driver, "pool": "n", "device": device, "request": "gpu", **more} for device in devices
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": results}}
    if node != "n":
        allocation["nodeSelector"] = {"nodeSelectorTerms": [term]}
    metadata = {"name": "claim", "namespace": "default", "annotations": notes or {}}
    body = {"metadata": metadata, "spec": {}, "status": {"allocation": allocation}}
    return ResourceClaim.from_dict(body)


@pytest.mark.parametrize(
    ("made", "devices"),
    [
        (claim("gpu-0", "gpu-3"), (("n", "gpu-0"), ("n", "gpu-3"))),
        (claim("gpu-0", node="m"), (("m", "gpu-0"),)),
        (claim("gpu-0-mig-1g.10gb-0", "gpu-0-mig-1g.10gb-1"), (("n", "gpu-0"),)),
        (claim("odd"), (("n", "odd"),)),
        (claim("gpu-0", driver="compute-domain.nvidia.com"), ()),
        (claim("gpu-0", adminAccess=True), ()),
        (claim("gpu-0", notes={EXTENDED: "true"}), ()),
        (ResourceClaim.from_dict({"metadata": {"name": "waits"}, "spec": {}}), ()),
    ],
)
def test_what_a_claim_has(made, devices):
    assert devices_of(made) == devices


def test_gpus_of_claims_are_used_and_none_of_ours_stands_for_them(book):
    book.place(A, 0)
    book.book.claimed({"n": frozenset({"gpu-0", "gpu-1"})})
    assert len(book.foreign()) == 2 and 0 not in book.foreign()
    book.book.claimed({})
    assert book.foreign() == []
