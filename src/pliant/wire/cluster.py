"""Clusters, nodes, node pools, bookings, topologies, settings of scheduling, and telemetry."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Length, Looks, Range, Unused, Word
from pliant.wire.shapes import LABEL_KEY, Duration, Label, LabelKey, LabelValue, Moment, PlacedLabel, Stamp
from pliant.wire.workload import Page


class ClusterStatus(TypedDict):
    state: Literal["Connected"]


class ClusterItem(TypedDict):
    """An entry of GET /api/v1/clusters (a bare array)."""

    uuid: str
    name: str
    version: str
    tenantId: int  # always 1
    createdAt: Stamp
    domain: str | None
    status: ClusterStatus


class StrayItem(TypedDict):
    """A process that belongs to no task."""

    pid: int
    user: str
    program: str
    memoryBytes: int


class GpuItem(TypedDict):
    uuid: str
    index: int
    memoryBytes: int
    allocated: float
    releasing: float
    promised: float
    foreign: bool
    strays: list[StrayItem]
    workloads: list[str]


class GpuInfo(TypedDict):
    gpuType: str  # models, separated by commas
    gpuCount: int


class Condition(TypedDict):
    type: str
    reason: str
    message: str


class NodeTaint(TypedDict):
    key: str
    value: str
    effect: Annotated[str, Looks(words=("NoSchedule", "PreferNoSchedule", "NoExecute"))]


class NodeItem(TypedDict):
    """An entry of GET /api/v1/nodes."""

    id: str
    name: str
    status: Literal["Ready", "NotReady"]
    nodePool: str
    clusterUuid: str
    createdAt: Stamp
    updatedAt: Stamp
    gpuInfo: GpuInfo | None  # null: it has none
    conditions: list[Condition]
    taints: list[NodeTaint]
    # ours
    labels: dict[str, str]
    simulated: bool
    draining: bool
    cpuCores: float
    cpuAllocated: float
    memoryBytes: int
    memoryAllocated: int
    maintenanceUntil: Stamp | None  # null: it is not under maintenance
    bookedGpus: int  # by reservations that have begun
    gpus: list[GpuItem]


class NodeList(Page):
    nodes: list[NodeItem]


class TaintItem(TypedDict, total=False):
    key: Required[LabelKey]
    value: LabelValue
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]  # default: NoSchedule
    exclude: bool  # remove it


class NodeRequest(TypedDict, total=False):
    """What is named is set, all else stays."""

    labels: Annotated[dict[str, LabelValue | None], Length(100), Looks(keys=LABEL_KEY)]  # null: remove it
    taints: Annotated[list[TaintItem], Length(100)]


Packing = Literal["binpack", "spread"]


class Strategies(TypedDict, total=False):
    cpu: Packing
    gpu: Packing
    # ours
    device: Packing  # fractions over the GPUs of a node


class PoolScheduling(TypedDict, total=False):
    placementStrategy: Strategies
    minGuaranteedRuntime: Duration  # a duration such as 2m; a number is seconds


class PoolPart(TypedDict, total=False):
    clusterId: Word  # only this server's cluster
    overProvisioningRatio: Unused
    gpuNetworkAccelerationLabelKey: Unused
    gpuNetworkAccelerationDetection: Unused
    gpuResourceOptimization: Unused
    placementStrategy: Strategies
    schedulingConfiguration: PoolScheduling
    networkTopologyId: Word | None  # null: none
    # ours
    networkTopologyName: Word  # '': none
    minRuntimeSeconds: Annotated[float, Range(0, 10**10)]


class PoolRequest(PoolPart, total=False):
    name: Required[Label]
    labelKey: Required[LabelKey]
    labelValue: Required[PlacedLabel]


class PoolChange(PoolPart, total=False):
    """In a change, what is not named stays as it is."""

    name: Word  # only its present name
    labelKey: LabelKey
    labelValue: PlacedLabel


_PACKING = Looks(words=("binpack", "spread"))


class StrategiesItem(TypedDict):
    cpu: Annotated[str, _PACKING]
    gpu: Annotated[str, _PACKING]
    # ours
    device: Annotated[str, _PACKING]


class PoolSchedulingItem(TypedDict):
    placementStrategy: StrategiesItem
    minGuaranteedRuntime: str  # "2m"; "0": none


class NodePoolItem(TypedDict):
    """An entry of GET /api/v1/node-pools."""

    id: str
    name: str
    labelKey: str | None
    labelValue: str | None
    isDefault: bool
    phase: Literal["Ready", "Empty"]
    placementStrategy: StrategiesItem
    schedulingConfiguration: PoolSchedulingItem
    networkTopologyName: str | None
    # ours
    minRuntimeSeconds: float | None
    notices: list[str]  # fields of a change that have no effect; in the answer to it


class NodePoolList(Page):
    nodepools: list[NodePoolItem]


class BookingRequest(TypedDict, total=False):
    """Body of POST /api/v1/bookings: GPUs for a project, or maintenance of nodes."""

    name: Required[Label]
    start: Moment  # left out: now
    end: Required[Moment]
    projectName: Word  # by name or id
    maintenance: bool  # for no project: whole nodes, which `nodes` names
    gpus: Annotated[int, Range(1, 100_000)]
    nodePool: Word  # left out: default
    nodes: Annotated[list[Word], Length(1000)]  # only on these
    comment: Annotated[str, Length(500, plain=True)]


class BookingPlace(TypedDict):
    node: str
    gpus: int
    there: bool  # False: the node is gone or not ready


class BookingItem(TypedDict):
    """An entry of GET /api/v1/bookings. Null: of a project that the reader may not see."""

    id: str
    name: str | None
    kind: str  # reservation | maintenance
    projectId: str | None
    projectName: str | None
    start: Stamp
    end: Stamp
    status: str  # Planned | Active | Ended
    gpus: int
    lackingGpus: int  # of nodes that are gone or not ready
    places: list[BookingPlace]
    comment: str | None
    createdBy: str | None
    createdAt: Stamp


class BookingList(TypedDict):
    bookings: list[BookingItem]


Levels = Annotated[list[LabelKey], Length(20), Looks(entries=1, once=True)]  # node labels, the widest first


class TopologyRequest(TypedDict, total=False):
    name: Required[Label]
    levels: Required[Levels]
    clusterId: Word


class TopologyChange(TypedDict, total=False):
    name: Word  # only its present name
    levels: Required[Levels]
    clusterId: Word


class TopologyItem(TypedDict):
    """An entry of GET /api/v1/network-topologies."""

    id: str
    name: str
    clusterId: str
    levels: list[str]  # node labels, the widest first
    nodePools: list[str]  # names of the pools that use it
    # ours
    nodes: int  # that carry all of its labels


class TopologyList(Page):
    networkTopologies: list[TopologyItem]


class SettingItem(TypedDict):
    name: str
    value: str
    default: str
    isDefault: bool
    about: str


class SettingList(TypedDict):
    """GET /api/v1/scheduling-settings. Ours."""

    settings: list[SettingItem]
    faults: list[str]  # rows that contradict the rest and are set aside


class TelemetryGroup(TypedDict):
    key: str
    value: str
    name: str


class TelemetryValue(TypedDict):
    value: str  # a number
    groups: list[TelemetryGroup]


class Telemetry(TypedDict):
    """How much of something there is now, in the groups that were asked for."""

    type: str
    timestamp: Stamp
    values: list[TelemetryValue]
