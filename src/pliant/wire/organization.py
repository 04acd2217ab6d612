"""Who owns quota: projects, departments, their quotas; priority classes and ranks."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Amount, Bound, Length, Looks, Range, Text, Unused, Word
from pliant.wire.shapes import ClassName, Label, Stamp
from pliant.wire.workload import Page


class Named(TypedDict, total=False):
    id: Word
    name: Word


_NONE = Looks(words=(-1,))
_MILLI = Looks(least=0, step=0.001)
_MILLI_OR_NONE = Looks(least=0, step=0.001, other=_NONE)
_WHOLE_OR_NONE = Looks(least=0, step=1, other=_NONE)
_RANK = r"^([0-9]{1,9}|([Vv]ery[-_ ]?)?([Ll]ow|[Hh]igh)|[Mm]edium([-_ ]?([Ll]ow|[Hh]igh))?)$"


class GpuQuota(TypedDict, total=False):
    deserved: Annotated[Bound, _MILLI]  # GPUs
    limit: Annotated[Bound, _MILLI_OR_NONE] | None  # null or -1: unlimited
    overQuotaWeight: Annotated[Amount, _MILLI] | None  # null: as the deserved quota


class PlainQuota(TypedDict, total=False):
    """Millicores, or memory in `units`."""

    deserved: Annotated[Bound, _WHOLE_OR_NONE] | None  # null or -1: unlimited
    limit: Annotated[Bound, _WHOLE_OR_NONE] | None
    overQuotaWeight: Amount  # accepted and not used: weights concern GPUs
    units: Literal["Mib", "MB", "GB"]  # default: MB


MinRuntime = Annotated[float, Range(0, 10**10), _MILLI]


class QuotaRequest(TypedDict, total=False):
    nodePool: Named  # default: the pool `default`
    gpu: GpuQuota
    cpu: PlainQuota
    memory: PlainQuota
    rank: Annotated[Word, Looks(_RANK)]
    priority: Annotated[Word, Looks(_RANK)]  # its older name
    # ours
    reclaimMinRuntimeSeconds: MinRuntime | None  # null: as the level above, then the pool
    preemptMinRuntimeSeconds: MinRuntime | None


TimeLimit = Annotated[int, Range(1, 10**10)] | None


class Rules(TypedDict, total=False):
    interactiveJobTimeLimitSeconds: TimeLimit
    interactiveJobMaxIdleDurationSeconds: TimeLimit
    interactiveJobPreemptIdleDurationSeconds: TimeLimit
    trainingJobMaxIdleDurationSeconds: TimeLimit
    trainingJobTimeLimitSeconds: TimeLimit


class NodeTypes(TypedDict, total=False):
    training: list[Word]
    workspace: list[Word]
    names: Unused


class UnitPart(TypedDict, total=False):
    """The settable fields of a project or department; in a change, a field that is not sent stays."""

    description: Text
    parentId: Word
    clusterId: Word  # only this server's cluster
    requestedNamespace: Word | None  # null, or the one that follows from the name
    enforceRunaiScheduler: Annotated[bool, Looks(words=(True,))]
    resources: list[QuotaRequest]
    schedulingRules: Rules
    defaultNodePools: list[Word]
    nodeTypes: NodeTypes
    # ours
    departmentName: Word


class UnitRequest(UnitPart, total=False):
    """A project or department."""

    name: Required[Label]


class UnitChange(UnitPart, total=False):
    """The same of one that is there."""

    name: Word  # only its present name


class QuotaSheetRow(TypedDict, total=False):
    id: Required[Word]  # or the name
    resources: Required[Annotated[list[QuotaRequest], Length(1000, least=1)]]
    etag: Word  # of the version that was read: refused if it has changed since


class QuotaSheet(TypedDict):
    """Quotas of several projects, or of several departments: all are changed, or none."""

    entries: Annotated[list[QuotaSheetRow], Length(1000, least=1)]


class ResourceQuota(TypedDict):
    deserved: float | None
    limit: float | None
    overQuotaWeight: float | None


class GpuQuotaItem(TypedDict):
    deserved: float
    limit: float | None
    overQuotaWeight: float | None


class MemoryQuota(ResourceQuota):
    units: Literal["MB"]


class PoolQuota(TypedDict):
    """An entry of `resources` of projects and departments."""

    nodePool: "Above"
    gpu: GpuQuotaItem
    cpu: ResourceQuota  # millicores
    memory: MemoryQuota
    rank: str  # without spaces: MediumLow
    priority: str | None  # the same by its older name
    # ours
    reclaimMinRuntimeSeconds: float | None
    preemptMinRuntimeSeconds: float | None


class Quantities(TypedDict):
    gpu: float
    cpu: float  # millicores
    memory: float  # MB


class QuotaUse(TypedDict):
    allocated: Quantities
    allocatedNonPreemptible: Quantities
    requested: Quantities


class QuotaStatus(QuotaUse):
    nodePoolName: str
    nodePoolId: str
    # ours
    fairShareGpus: float
    pastUseGpuHours: float  # older use counting less
    pastUseShare: float  # of what the pool had in the same time


class Overpromise(TypedDict):
    """Quotas that add up to more than there is, its own among them."""

    nodePoolName: str
    departmentName: str | None  # whose quota they exceed; null: they exceed the nodes of the pool
    promisedGpus: float
    gpus: float  # what there is


class UnitStatus(TypedDict):
    phase: Literal["Ready"]
    namespace: str | None  # of a project
    nodePoolQuotaStatuses: list[QuotaStatus]
    quotaStatus: QuotaUse
    overpromised: list[Overpromise]  # ours


class Above(TypedDict):
    id: str
    name: str


class RulesItem(TypedDict):
    """Seconds; null: no limit."""

    interactiveJobTimeLimitSeconds: int | None
    interactiveJobMaxIdleDurationSeconds: int | None
    interactiveJobPreemptIdleDurationSeconds: int | None
    trainingJobMaxIdleDurationSeconds: int | None
    trainingJobTimeLimitSeconds: int | None


class NodeTypesItem(TypedDict):
    training: list[str]
    workspace: list[str]


class Totals(TypedDict):
    """Over all pools; null: unlimited."""

    gpuQuota: float
    cpuQuota: float | None  # millicores
    memoryQuota: float | None  # MB


class OrgUnitItem(TypedDict):
    """Body of GET /api/v1/org-unit/projects[/{id}] and departments[/{id}]."""

    id: str
    name: str
    description: str
    clusterId: str
    parentId: str
    parent: Above | None  # null: it is at the top
    requestedNamespace: str | None
    enforceRunaiScheduler: bool  # always true
    createdAt: Stamp
    resources: list[PoolQuota]
    schedulingRules: RulesItem
    defaultNodePools: list[str]
    nodeTypes: NodeTypesItem
    status: UnitStatus
    totalResources: Totals
    # ours
    departmentName: str
    fairShareGpus: float
    overQuotaGpus: float
    quotaDerived: bool


class ProjectList(Page):
    projects: list[OrgUnitItem]


class DepartmentList(Page):
    departments: list[OrgUnitItem]


class Rank(TypedDict):
    name: str
    value: int
    isDefault: bool


class Ranks(TypedDict):
    ranks: list[Rank]


class OlderRanks(TypedDict):
    """GET /api/v1/org-unit/priorities."""

    priorities: list[Rank]


class Priority(TypedDict):
    id: str
    name: str
    value: int
    source: Literal["system", "user"]


class Priorities(TypedDict):
    """GET /api/v1/workload-priorities."""

    priorities: list[Priority]


class PriorityClassRequest(TypedDict, total=False):
    name: Required[ClassName]
    value: Required[Annotated[int, Range(-(2**31), 2**31 - 1), Looks(most=10**9)]]
    description: Text


class PriorityClassesRequest(TypedDict):
    priorityClasses: Annotated[list[PriorityClassRequest], Length(1000, least=1)]


class PriorityClassItem(TypedDict):
    name: str
    value: int
    description: str
    createdAt: Stamp


class PriorityClassList(TypedDict):
    priorityClasses: list[PriorityClassItem]


class Applied(TypedDict):
    name: str
    result: str  # created | configured | unchanged


class AppliedList(TypedDict):
    applied: list[Applied]


class Category(TypedDict):
    id: str
    name: str
    description: str


class Categories(TypedDict):
    categories: list[Category]


class WorkloadType(TypedDict):
    id: str
    name: str
    group: str
    categoryId: str
    categoryName: str
    priorityId: str
    priorityName: str


class WorkloadTypes(TypedDict):
    types: list[WorkloadType]
