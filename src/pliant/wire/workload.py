"""Workloads: lists, pods, progress, outcomes; and requests that change them."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from pliant.wire.limits import Length, Looks, Word
from pliant.wire.shapes import Cores, Memory, Stamp

_PHASES = (
    "Creating",
    "Initializing",
    "Resuming",
    "Pending",
    "Running",
    "Updating",
    "Degraded",
    "Stopping",
    "Stopped",
    "Terminating",
    "Deleting",
    "Completed",
    "Failed",
    "Unknown",
)
Phase = Annotated[str, Looks(words=_PHASES)]
Desired = Annotated[str, Looks(words=("Running", "Stopped", "Deleted"))]
PhaseReason = Annotated[str, Looks(words=("NonPreemptibleOverQuota", "OverLimit"))]
_KINDS = ("Workspace", "Training", "Distributed", "Inference")


class Page(TypedDict):
    next: NotRequired[int]  # offset of the next page; absent on the last one


class Counted(TypedDict):
    count: int


class NamedItem(TypedDict):
    """Whom a reason names; left out for those who may not know."""

    field: str  # of the reason's numbers
    kind: Literal["workload", "project", "department"]
    id: str
    name: str


class Reason(TypedDict):
    code: str
    message: str
    numbers: dict[str, Any]
    names: list[NamedItem]


class AmountPair(TypedDict):
    request: float | None
    limit: float | None


class MemoryPair(TypedDict):
    request: str | None
    limit: str | None


class RequestedResources(TypedDict):
    gpuRequestType: Literal["portion", "memory"] | None
    gpu: AmountPair | None
    gpuMemory: MemoryPair | None
    cpu: AmountPair | None
    cpuMemory: MemoryPair | None


class AllocatedResources(TypedDict):
    gpu: float  # what its live attempts really occupy; 0 while pending
    gpuMemory: str | None
    cpu: float
    cpuMemory: str | None


class RequestedPods(TypedDict):
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
    requestBytes: int  # always there; what is between it and the limit is lent
    usedBytes: int
    processes: int  # that use it
    refused: int  # allocations of the pod beyond a limit
    enforcement: str  # enforced by shim | cooperative | scheduled, not enforced
    why: str  # why not better; empty where it is enforced
    trouble: str  # what is wrong, such as a process that escaped, or tampering; empty: nothing


class ProgressPoint(TypedDict):
    at: Stamp
    step: int
    world: int
    goodput: float
    loss: float | None


class Progress(TypedDict):
    """How far a training job says that it is."""

    at: Stamp
    state: str  # waiting, training, parked, finished, failed
    step: int  # updates of the model that are done
    stepsTotal: int  # 0: unknown
    epoch: int
    epochs: int
    records: int
    skipped: int
    world: int  # workers that train now
    goodput: float  # records per second in steps that count
    loss: float | None
    stepMsBySize: dict[str, float]  # by number of workers


class ProgressHistory(TypedDict):
    """GET /api/v1/workloads/{id}/progress: oldest first."""

    points: list[ProgressPoint]


class Protected(TypedDict):
    """Until when a minimum runtime protects a workload, and whose setting that is."""

    endsAt: Stamp
    level: Literal["pool", "project", "department"]
    name: str


class Protection(TypedDict):
    """From whom: other projects, and higher priorities of its own."""

    reclaim: Protected | None
    preemption: Protected | None


class ArrayPlace(TypedDict):
    """The place of a job in the array that it belongs to."""

    id: str
    name: str  # of the array
    index: int
    count: int  # jobs of the array
    atOnce: int | None  # that may run at the same time; null: all


class Endpoint(TypedDict):
    """Where a workload can be reached."""

    name: str
    toolType: str
    connectionType: str
    url: str
    containerPort: int


class PhaseCondition(TypedDict):
    type: str
    status: str
    message: str
    reason: str
    lastTransitionTime: Stamp | None


class ActionsSupport(TypedDict):
    """What can be asked of it now."""

    delete: bool
    suspend: bool


class WorkloadItem(TypedDict):
    """An entry of GET /api/v1/workloads and the body of GET /api/v1/workloads/{id}."""

    id: str
    name: str
    type: Annotated[str, Looks(words=_KINDS)]
    phase: Phase
    phaseMessage: str
    phaseReason: PhaseReason | None
    phaseUpdatedAt: Stamp
    desiredPhase: Desired
    priority: int
    priorityClassName: str
    preemptible: bool
    preemptibility: str  # preemptible | semi-preemptible | non-preemptible
    background: bool
    category: str
    projectId: str
    projectName: str
    departmentId: str
    departmentName: str
    clusterId: str
    namespace: str
    submittedBy: str
    source: str
    createdAt: Stamp
    completedAt: Stamp | None
    deletedAt: Stamp | None
    runningPods: int
    requestedPods: RequestedPods
    workloadRequestedResources: RequestedResources
    podsRequestedResources: RequestedResources
    allocatedResources: AllocatedResources
    requestedNodePools: list[str]
    currentNodePools: list[str]
    images: list[str]
    urls: list[str]
    endpoints: list[Endpoint]  # the same with their ports
    tenantId: int  # always 1
    updatedAt: Stamp
    k8sPhase: str  # equal to `phase`
    k8sPhaseUpdatedAt: Stamp
    conditions: list[PhaseCondition]  # always empty
    command: str
    arguments: str
    environmentVariables: dict[str, str]
    labels: dict[str, str]
    totalPendingTimeSeconds: int
    totalRunningTimeSeconds: int
    guaranteedRuntimeEndsAt: Stamp | None  # until then no other workload may evict it
    actionsSupport: ActionsSupport
    distributedFramework: str | None
    # ours
    protection: Protection | None
    status: str  # v1 word: Pending, ContainerCreating, Running, Terminating, Succeeded, Failed, Suspended ...
    jobType: str  # v1 word: Train, Interactive, Interactive-Preemptible, Inference
    pendingPods: int
    elastic: bool
    resize: Literal["live", "restart"] | None  # how its task gets other GPUs; None: their number is fixed
    node: str  # name, "<multiple>" or ""
    nodes: list[str]
    nodeType: str
    reason: Reason | None  # why it waits, or why it last lost something
    number: int  # order of submission; unique
    array: ArrayPlace | None
    queuePosition: int | None
    fraction: str | None  # how GPU fractions are enforced, why not better, and what is wrong
    gpuShares: list[GpuShare]
    limitsEnforced: bool  # the kernel holds its tasks to their main memory and their share of the cores
    overQuotaGpus: float
    progress: Progress | None  # what its job reported last


class WorkloadList(Page):
    workloads: list[WorkloadItem]


class Outcome(TypedDict):
    """Answer to GET /api/v1/workloads/{id}/outcome: how it ended."""

    phase: str
    exitCode: int | None  # None until it has ended; the highest of its tasks; 143 if cancelled or deleted
    signal: int | None  # that ended the task whose exit code this is
    outOfMemory: bool
    cancelled: bool
    deleted: bool
    gone: bool  # deleted, and no process of it is alive
    message: str
    runningSeconds: int
    gpuHours: float
    maxRssBytes: int | None  # of its largest process; null: not known


class ContainerItem(TypedDict):
    name: str
    image: str
    startedAt: Stamp | None


class PodItem(TypedDict):
    """An entry of GET /api/v1/workloads/{id}/pods: one task."""

    name: str  # `<workload>-<group>-<index>`
    id: str
    workloadId: str
    workloadName: str
    projectId: str
    projectName: str
    clusterId: str
    tenantId: int
    priorityClassName: str
    k8sPhase: str
    k8sPhaseUpdatedAt: Stamp  # of its task: when it ended, started or was ordered
    updatedAt: Stamp
    status: str
    createdAt: Stamp | None
    completedAt: Stamp | None
    nodeName: str
    containers: list[ContainerItem]
    allocatedResources: AllocatedResources
    # ours
    attempt: int
    gpus: list[str]  # uuids
    exitCode: int | None
    message: str
    failures: int  # failed attempts that count against retryLimit
    retryLimit: int
    retryAt: Stamp | None  # it is not started again before


class PodList(Page):
    pods: list[PodItem]


class WorkloadLoad(TypedDict):
    """What its tasks use now; null where it is not measured."""

    id: str
    cpuCores: float | None  # over the last moments
    memoryBytes: int | None  # resident
    gpuPercent: float | None  # percentage of time in which its own GPUs were busy; not of shared ones
    gpuMemoryBytes: int | None


class WorkloadLoads(TypedDict):
    timestamp: Stamp
    workloads: list[WorkloadLoad]


class Batch(TypedDict):
    """Body of POST /api/v1/workloads/batch."""

    ids: Annotated[list[Word], Length(100, least=1)]
    action: Literal["cancel", "delete", "suspend", "resume"]


class Sharing(TypedDict):
    """Those who may read the log and the files of a workload besides its owner."""

    sharedWith: Annotated[list[Word], Length(64)]  # project | user:NAME


class Fitting(TypedDict, total=False):
    """What each task gets from now on; what is left out stays."""

    cpuCoreRequest: Cores
    cpuMemoryRequest: Memory
    taskGroup: Word  # of a workload with several; empty: all of them


class BatchFailed(TypedDict):
    id: str
    code: int  # HTTP status of the same request for this workload alone
    message: str


class BatchDone(TypedDict):
    id: str
    succeeded: list[str]
    failed: list[BatchFailed]


class Signalled(TypedDict):
    """Of POST /api/v1/workloads/{id}/signal."""

    tasks: int  # that got it
