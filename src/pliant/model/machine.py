"""Machines: nodes, their GPUs, node pools, and the placement of a task on them."""

from dataclasses import dataclass, field
from enum import StrEnum

from pliant.model.affinity import Taint
from pliant.model.quantity import GPU, Resources

NODE_TYPE = "run.ai/type"
"""The label with the type of a node."""

DEFAULT_POOL = "default"


class Strategy(StrEnum):
    """How a pool fills its nodes and devices."""

    PACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `uuid` is its identity everywhere; `index` is only its place on the node."""

    uuid: str
    index: int
    memory: int  # bytes that tasks may share
    model: str = ""
    foreign: bool = False  # used by processes that are not ours: counts as full


@dataclass(frozen=True, slots=True)
class Node:
    """One machine as an engine reports it."""

    name: str
    gpus: tuple[Gpu, ...] = ()
    cpu: int = 0  # millicores
    memory: int = 0  # bytes
    labels: tuple[tuple[str, str], ...] = ()  # sorted by key
    ready: bool = True
    draining: bool = False  # keeps what runs, takes nothing new
    engine: str = "local"
    simulated: bool = False
    taints: tuple[Taint, ...] = ()
    max_tasks: int | None = None  # so many tasks at a time; None: no bound

    def label(self, key: str) -> str | None:
        return next((value for name, value in self.labels if name == key), None)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A labelled set of nodes. The pool `default` has no label and takes what no other pool matches."""

    id: str
    name: str
    label_key: str = ""
    label_value: str = ""
    gpu_strategy: Strategy = Strategy.PACK
    cpu_strategy: Strategy = Strategy.PACK
    min_runtime: int = 0  # ms for which a started preemptible workload is safe
    device_strategy: Strategy = Strategy.PACK  # how fractions fill the devices of a node
    topology: str = ""  # the one of workloads that name none
    origin: str = ""  # as that of a project


OF_PROJECT = "project:"
"""The prefix of an owner that is a project; any other owner is an account."""


# A cycle makes thousands of these two and of Task. So their constructors are written out (mypyc compiles no
# derived one), and they are not frozen (each assignment in a constructor would be a call).
# Still, nothing changes them: tests/house/test_values.py.
@dataclass(slots=True, order=True, init=False, unsafe_hash=True)
class Share:
    """A part of one device. Never changed."""

    gpu: str  # uuid
    portion: int = GPU  # thousandths of the device
    memory: int = 0  # bytes of it; the whole card's for a whole device
    owner: str = ""  # only parts of the same owner share a device; empty: no owner

    def __init__(self, gpu: str, portion: int = GPU, memory: int = 0, owner: str = "") -> None:
        self.gpu = gpu
        self.portion = portion
        self.memory = memory
        self.owner = owner


@dataclass(slots=True, init=False, unsafe_hash=True)
class Placement:
    """Where a task sits: one node, shares of its devices (ordered by index), cores, memory. Never changed."""

    node: str
    shares: tuple[Share, ...] = ()
    cpu: int = 0  # millicores
    memory: int = 0  # bytes

    def __init__(self, node: str, shares: tuple[Share, ...] = (), cpu: int = 0, memory: int = 0) -> None:
        self.node = node
        self.shares = shares
        self.cpu = cpu
        self.memory = memory

    @property
    def gpu(self) -> int:
        """Milli-GPUs."""
        shares = self.shares
        return shares[0].portion if len(shares) == 1 else sum([share.portion for share in shares])

    @property
    def resources(self) -> Resources:
        return Resources(self.gpu, self.cpu, self.memory)

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(share.gpu for share in self.shares)


def larger(one: Placement | None, other: Placement | None) -> Placement | None:
    """The larger of two amounts on one node: for each device, for cores and for memory."""
    if one is None or other is None:
        return one or other
    shares = {share.gpu: share for share in one.shares}
    for share in other.shares:
        if (same := shares.get(share.gpu)) is not None:
            portion, memory = max(share.portion, same.portion), max(share.memory, same.memory)
            share = Share(share.gpu, portion, memory, share.owner)
        shares[share.gpu] = share
    cpu, memory = max(one.cpu, other.cpu), max(one.memory, other.memory)
    return Placement(one.node, tuple(shares.values()), cpu, memory)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one server manages."""

    uuid: str
    name: str = "default"
    created: int = 0  # ms since the epoch
    version: str = ""
    labels: tuple[tuple[str, str], ...] = field(default=())
