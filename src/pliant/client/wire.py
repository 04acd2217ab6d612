"""What travels between server and clients: Run:ai's field names, and ours where it has none.

Times are RFC 3339 in UTC with milliseconds; amounts of GPU are numbers of GPUs (0.5), of memory bytes as a
string with the unit people wrote. Fields that Run:ai does not have stand under "ours".
"""

from typing import Any, TypedDict

from pliant.client.wire_progress import Progress


class Reason(TypedDict):
    code: str
    message: str
    numbers: dict[str, Any]


class Amount(TypedDict, total=False):
    request: float | None
    limit: float | None


class Memory(TypedDict, total=False):
    request: str | None
    limit: str | None


class RequestedResources(TypedDict, total=False):
    gpuRequestType: str | None  # "portion" | "memory" | None
    gpu: Amount | None
    gpuMemory: Memory | None
    cpu: Amount | None
    cpuMemory: Memory | None


class AllocatedResources(TypedDict, total=False):
    gpu: float  # what its live attempts really occupy; 0 while pending
    gpuMemory: str | None
    cpu: float
    cpuMemory: str | None


class RequestedPods(TypedDict, total=False):
    number: int
    min: int
    max: int
    parallelism: int
    completions: int


class GpuShare(TypedDict):
    """What a living pod may use of one GPU, and what it uses: as its node saw it about a second ago."""

    workload: str
    pod: str
    gpu: str  # uuid
    limitBytes: int
    requestBytes: int  # always there; what is between is lent
    usedBytes: int
    processes: int  # that use it
    refused: int  # allocations beyond a limit, of the pod
    enforcement: str  # enforced by shim | cooperative | scheduled, not enforced
    why: str  # why no better; empty where it is enforced
    trouble: str  # what is wrong: who escaped, what was tampered with; empty: nothing


class WorkloadItem(TypedDict, total=False):
    """An entry of GET /api/v1/workloads and the body of GET /api/v1/workloads/{id}."""

    id: str
    name: str
    type: str  # Workspace | Training | Distributed | Inference
    phase: str
    phaseMessage: str
    phaseReason: str | None  # NonPreemptibleOverQuota | OverLimit | None
    phaseUpdatedAt: str
    desiredPhase: str
    priority: int
    priorityClassName: str
    preemptible: bool
    category: str
    projectId: str
    projectName: str
    departmentId: str
    departmentName: str
    clusterId: str
    namespace: str
    submittedBy: str
    source: str
    createdAt: str
    completedAt: str | None
    deletedAt: str | None
    runningPods: int
    requestedPods: RequestedPods
    workloadRequestedResources: RequestedResources
    podsRequestedResources: RequestedResources
    allocatedResources: AllocatedResources
    requestedNodePools: list[str]
    currentNodePools: list[str]
    images: list[str]
    urls: list[str]
    command: str
    arguments: str
    environmentVariables: dict[str, str]
    labels: dict[str, str]
    totalPendingTimeSeconds: int
    totalRunningTimeSeconds: int
    guaranteedRuntimeEndsAt: str | None
    actionsSupport: dict[str, bool]
    distributedFramework: str | None
    # ours
    status: str  # v1 word: Pending, ContainerCreating, Running, Terminating, Succeeded, Failed, Suspended ...
    jobType: str  # v1 word: Train, Interactive, Interactive-Preemptible, Inference
    pendingPods: int
    elastic: bool
    node: str  # name, "<multiple>" or ""
    nodes: list[str]
    nodeType: str
    reason: Reason | None  # why it waits, or why it last lost something
    queuePosition: int | None
    fraction: str | None  # how a GPU fraction is held, and why no better; what is wrong with it
    gpuShares: list[GpuShare]
    overQuotaGpus: float
    progress: Progress | None  # what its job reported last


class Outcome(TypedDict):
    """Answer to GET /api/v1/workloads/{id}/outcome: how it ended."""

    phase: str
    exitCode: int | None  # None until it has ended; the highest of its tasks; 143 if cancelled or deleted
    signal: int | None  # that ended the task whose exit code this is
    outOfMemory: bool
    cancelled: bool
    deleted: bool
    gone: bool  # deleted, and nothing of it lives any more
    message: str
    runningSeconds: int
    gpuHours: float


class PodItem(TypedDict, total=False):
    """An entry of GET /api/v1/workloads/{id}/pods: one task."""

    name: str  # `<workload>-<group>-<index>`
    status: str
    createdAt: str | None
    completedAt: str | None
    nodeName: str
    containers: list[dict[str, Any]]
    allocatedResources: AllocatedResources
    # ours
    attempt: int
    gpus: list[str]  # uuids
    exitCode: int | None
    message: str
    failures: int  # failed attempts that count against retryLimit
    retryLimit: int
    retryAt: str | None  # it is not started again before


class EventItem(TypedDict, total=False):
    """An entry of GET /api/v1/workloads/{id}/events; the history with its reasons."""

    createdAt: str
    type: str  # Normal | Warning
    reason: str  # kind of event
    message: str
    source: str
    involvedObject: dict[str, str]
    id: str
    # ours
    who: str
    code: str  # code of the typed reason
    numbers: dict[str, Any]
    decision: str
    attempt: str


class ResourceQuota(TypedDict, total=False):
    deserved: float | None
    limit: float | None
    overQuotaWeight: float | None


class PoolQuota(TypedDict, total=False):
    """An entry of `resources` of projects and departments."""

    nodePool: dict[str, str]  # {id, name}
    gpu: ResourceQuota
    cpu: ResourceQuota  # millicores
    memory: dict[str, Any]  # ResourceQuota with `units` MB
    priority: str | None  # rank
    # ours
    reclaimMinRuntimeSeconds: float | None
    preemptMinRuntimeSeconds: float | None


class Quantities(TypedDict):
    gpu: float
    cpu: float
    memory: float


class QuotaStatus(TypedDict):
    nodePoolName: str
    allocated: Quantities
    allocatedNonPreemptible: Quantities
    requested: Quantities
    # ours
    fairShareGpus: float
    pastUseGpuHours: float  # older use counting less
    pastUseShare: float  # of what the pool had in the same time


class OrgUnitItem(TypedDict, total=False):
    """Body of GET /api/v1/org-unit/projects[/{id}] and departments[/{id}]."""

    id: str
    name: str
    description: str
    clusterId: str
    parentId: str
    createdAt: str
    resources: list[PoolQuota]
    schedulingRules: dict[str, int | None]
    defaultNodePools: list[str]
    nodeTypes: dict[str, Any]
    status: dict[str, Any]  # phase, namespace, nodePoolQuotaStatuses, quotaStatus
    totalResources: dict[str, Any]
    # ours
    departmentName: str
    fairShareGpus: float
    overQuotaGpus: float
    quotaDerived: bool


class GpuItem(TypedDict):
    uuid: str
    index: int
    memoryBytes: int
    allocated: float
    releasing: float
    promised: float
    foreign: bool
    workloads: list[str]


class NodeItem(TypedDict, total=False):
    """An entry of GET /api/v1/nodes."""

    id: str
    name: str
    status: str  # Ready | NotReady | Unknown
    nodePool: str
    clusterUuid: str
    createdAt: str
    updatedAt: str
    gpuInfo: dict[str, Any]  # gpuType, gpuCount
    conditions: list[dict[str, Any]]
    taints: list[dict[str, Any]]
    # ours
    labels: dict[str, str]
    simulated: bool
    draining: bool
    cpuCores: float
    cpuAllocated: float
    memoryBytes: int
    memoryAllocated: int
    gpus: list[GpuItem]


class Problem(TypedDict, total=False):
    """Every error: RFC 9457's members and Run:ai's side by side."""

    type: str
    title: str
    status: int
    detail: str
    code: int
    message: str
    details: str
    # ours
    reason: str  # stable word for machines: not-found, name-exists, bad-request, over-quota, conflict, ...


class ClusterItem(TypedDict, total=False):
    """An entry of GET /api/v1/clusters (a bare array)."""

    uuid: str
    name: str
    version: str
    status: dict[str, str]  # state


class NodePoolItem(TypedDict, total=False):
    """An entry of GET /api/v1/node-pools."""

    id: str
    name: str
    labelKey: str | None
    labelValue: str | None
    isDefault: bool
    phase: str
    placementStrategy: dict[str, str]  # cpu, gpu, ours device: binpack | spread
    schedulingConfiguration: dict[str, Any]  # minGuaranteedRuntime "2m" or seconds
    networkTopologyName: str | None
    # ours
    minRuntimeSeconds: float | None


class TopologyItem(TypedDict):
    """An entry of GET /api/v1/network-topologies."""

    id: str
    name: str
    clusterId: str
    levels: list[str]  # node labels, the widest first
    nodePools: list[str]  # names of those whose workloads mean it
    # ours
    nodes: int  # that carry all of its labels


class SettingItem(TypedDict):
    """An entry of GET /api/v1/scheduling-settings. Ours."""

    name: str
    value: str
    default: str
    isDefault: bool
    about: str


class Submitted(TypedDict, total=False):
    """Answer to POST /api/v1/workloads/trainings|workspaces."""

    name: str
    requestedName: str | None
    workloadId: str
    projectId: str
    clusterId: str
    createdAt: str
    desiredPhase: str
    actualPhase: str
    spec: dict[str, Any]
    # ours
    projectName: str
    notices: list[str]


class Verdict(TypedDict, total=False):
    """Answer to a submit with ?dryRun=true. Ours."""

    verdict: str  # starts | waits | never
    reason: Reason | str | None
    placements: list[Any]
    disrupted: list[Any]
    notices: list[str]


class Ahead(TypedDict):
    name: str
    project: str
    gpus: float


class WhyItem(TypedDict, total=False):
    """GET /api/v1/workloads/{id}/why. Ours."""

    reason: Reason | None
    position: int | None
    ahead: list[Ahead]  # the first of them
    aheadCount: int
    aheadGpus: float
    history: list[EventItem]
    unblock: dict[str, Any] | None  # what would let it start, and when it will


class QueueEntry(TypedDict, total=False):
    """An entry of GET /api/v1/queue. Ours."""

    position: int
    name: str
    project: str
    gpus: float
    reason: Reason | str | None
    since: str
    remedy: dict[str, Any] | None  # what would let it start, of the first of its kind
    like: str | None  # the first of its kind, behind which it waits


class Finding(TypedDict):
    """One thing that may hold on a machine or not."""

    what: str
    holds: bool
    text: str  # how, or why not


class Doctor(TypedDict):
    """GET /api/v1/server/doctor. Ours."""

    findings: list[Finding]


class ServerItem(TypedDict, total=False):
    """GET /api/v1/server, and part of it in <state>/server.json. Ours."""

    url: str
    version: str
    pid: int
    started: str
    state: str
    epoch: int
    simulated: bool
    cycles: int
    uptime: float  # seconds
    tasksRunning: int
