"""The shapes of answers about who owns quota and about machines; see pliant.api.responses.models."""

from pliant.api.responses.models import Numbers, Page, Shape


class ResourceQuota(Shape):
    deserved: float | None
    limit: float | None
    overQuotaWeight: float | None


class PoolQuota(Shape):
    nodePool: dict[str, str]
    gpu: ResourceQuota
    cpu: ResourceQuota
    memory: Numbers
    priority: str | None
    reclaimMinRuntimeSeconds: float | None
    preemptMinRuntimeSeconds: float | None


class Quantities(Shape):
    gpu: float
    cpu: float  # millicores
    memory: float  # MB


class QuotaStatus(Shape):
    nodePoolName: str
    allocated: Quantities
    allocatedNonPreemptible: Quantities
    requested: Quantities
    fairShareGpus: float
    pastUseGpuHours: float
    pastUseShare: float


class OrgUnitItem(Shape):
    id: str
    name: str
    description: str
    clusterId: str
    parentId: str
    createdAt: str
    resources: list[PoolQuota]
    schedulingRules: dict[str, int | None]
    defaultNodePools: list[str]
    nodeTypes: Numbers
    status: Numbers
    totalResources: Numbers
    departmentName: str
    fairShareGpus: float
    overQuotaGpus: float
    quotaDerived: bool


class GpuItem(Shape):
    uuid: str
    index: int
    memoryBytes: int
    allocated: float
    releasing: float
    promised: float
    foreign: bool
    workloads: list[str]


class NodeItem(Shape):
    id: str
    name: str
    status: str
    nodePool: str
    clusterUuid: str
    createdAt: str
    updatedAt: str
    gpuInfo: Numbers | None
    conditions: list[Numbers]
    taints: list[Numbers]
    labels: dict[str, str]
    simulated: bool
    draining: bool
    cpuCores: float
    cpuAllocated: float
    memoryBytes: int
    memoryAllocated: int
    gpus: list[GpuItem]


class ClusterItem(Shape):
    uuid: str
    name: str
    version: str
    status: dict[str, str]


class NodePoolItem(Shape):
    id: str
    name: str
    labelKey: str | None
    labelValue: str | None
    isDefault: bool
    phase: str
    placementStrategy: dict[str, str]
    schedulingConfiguration: Numbers
    networkTopologyName: str | None
    minRuntimeSeconds: float | None


class ProjectList(Page):
    projects: list[OrgUnitItem]


class DepartmentList(Page):
    departments: list[OrgUnitItem]


class NodeList(Page):
    nodes: list[NodeItem]


class NodePoolList(Page):
    nodepools: list[NodePoolItem]


class TopologyItem(Shape):
    id: str
    name: str
    clusterId: str
    levels: list[str]
    nodePools: list[str]
    nodes: int  # that carry all of its labels


class TopologyList(Page):
    networkTopologies: list[TopologyItem]


class SettingItem(Shape):
    name: str
    value: str
    default: str
    isDefault: bool
    about: str


class Settings(Shape):
    settings: list[SettingItem]
    faults: list[str]  # rows that contradict the rest and are set aside


class Priorities(Shape):
    priorities: list[Numbers]


class PriorityClassItem(Shape):
    name: str
    value: int
    description: str
    createdAt: str


class PriorityClassList(Shape):
    priorityClasses: list[PriorityClassItem]


class Applied(Shape):
    name: str
    result: str  # created | configured | unchanged


class AppliedList(Shape):
    applied: list[Applied]


class Ranks(Shape):
    ranks: list[Numbers]
