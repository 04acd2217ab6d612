"""The shapes of all answers, as OpenAPI shows them. A test holds them equal to what clients read (wire).

Times are RFC 3339 in UTC with milliseconds; amounts of GPU are numbers of GPUs, of memory text such as 5G.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Numbers = dict[str, Any]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Reason(Shape):
    code: str
    message: str
    numbers: Numbers


class Amount(Shape):
    request: float | None
    limit: float | None


class Memory(Shape):
    request: str | None
    limit: str | None


class RequestedResources(Shape):
    gpuRequestType: Literal["portion", "memory"] | None
    gpu: Amount | None
    gpuMemory: Memory | None
    cpu: Amount | None
    cpuMemory: Memory | None


class AllocatedResources(Shape):
    gpu: float
    gpuMemory: str | None
    cpu: float
    cpuMemory: str | None


class RequestedPods(Shape):
    number: int
    min: int
    max: int
    parallelism: int
    completions: int


class Progress(Shape):
    at: str
    state: str
    step: int
    stepsTotal: int
    epoch: int
    epochs: int
    records: int
    skipped: int
    world: int
    goodput: float
    loss: float | None
    stepMsBySize: dict[str, float]


class ProgressPoint(Shape):
    at: str
    step: int
    world: int
    goodput: float
    loss: float | None


class ProgressHistory(Shape):
    points: list[ProgressPoint]


class GpuShare(Shape):
    workload: str
    pod: str
    gpu: str
    limitBytes: int
    requestBytes: int
    usedBytes: int
    processes: int
    refused: int
    enforcement: str
    why: str
    trouble: str


class WorkloadItem(Shape):
    id: str
    name: str
    type: str
    phase: str
    phaseMessage: str
    phaseReason: str | None
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
    status: str
    jobType: str
    pendingPods: int
    elastic: bool
    node: str
    nodes: list[str]
    nodeType: str
    reason: Reason | None
    queuePosition: int | None
    fraction: str | None
    gpuShares: list[GpuShare]
    overQuotaGpus: float
    progress: Progress | None


class Outcome(Shape):
    phase: str
    exitCode: int | None
    signal: int | None
    outOfMemory: bool
    cancelled: bool
    deleted: bool
    gone: bool
    message: str
    runningSeconds: int
    gpuHours: float


class PodItem(Shape):
    name: str
    status: str
    createdAt: str | None
    completedAt: str | None
    nodeName: str
    containers: list[Numbers]
    allocatedResources: AllocatedResources
    attempt: int
    gpus: list[str]
    exitCode: int | None
    message: str
    failures: int
    retryLimit: int
    retryAt: str | None


class EventItem(Shape):
    createdAt: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    source: str
    involvedObject: dict[str, str]
    id: str
    who: str
    code: str
    numbers: Numbers
    decision: str
    attempt: str


class Problem(Shape):
    """RFC 9457's members and Run:ai's side by side."""

    type: str
    title: str
    status: int
    detail: str
    code: int
    message: str
    details: str
    reason: str


class Submitted(Shape):
    name: str
    requestedName: str | None
    workloadId: str
    projectId: str
    clusterId: str
    createdAt: str
    desiredPhase: str
    actualPhase: str
    spec: Numbers
    projectName: str
    notices: list[str]


class Verdict(Shape):
    verdict: Literal["starts", "waits", "never"]
    reason: Reason | None
    placements: list[Numbers]
    disrupted: list[Numbers]
    notices: list[str]


class Ahead(Shape):
    name: str
    project: str
    gpus: float


class WhyItem(Shape):
    reason: Reason | None
    position: int | None
    ahead: list[Ahead]
    aheadCount: int
    aheadGpus: float
    history: list[EventItem]
    unblock: Numbers | None


class QueueEntry(Shape):
    position: int
    name: str
    project: str
    gpus: float
    reason: Reason | None
    since: str
    remedy: Numbers | None
    like: str | None


class ServerItem(Shape):
    url: str
    version: str
    pid: int
    started: str
    state: str
    epoch: int
    simulated: bool
    cycles: int
    uptime: float
    tasksRunning: int


class Finding(Shape):
    what: str
    holds: bool
    text: str


class Doctor(Shape):
    findings: list[Finding]


# -- envelopes: lists, counts and the answers that clients know without a name ----------------------


class Page(Shape):
    next: int | None = None  # offset of the next page; absent on the last one


class WorkloadList(Page):
    workloads: list[WorkloadItem]


class PodList(Page):
    pods: list[PodItem]


class EventList(Page):
    events: list[EventItem]


class RecordList(Page):
    records: list[Numbers]


class Count(Shape):
    count: int


class Queue(Shape):
    entries: list[QueueEntry]


class BatchDone(Shape):
    id: str
    succeeded: list[str]
    failed: list[Numbers]


class Tokens(Shape):
    accessToken: str
    refreshToken: str
    expiresIn: int


class OAuthTokens(Shape):
    access_token: str
    token_type: str
    expires_in: int
    refresh_token: str


class Whoami(Shape):
    user: str
    id: str


class VersionItem(Shape):
    version: str
    api: str


class Health(Shape):
    status: str


class ExecStarted(Shape):
    id: str


class ExecState(Shape):
    exitCode: int | None


class BackupDone(Shape):
    path: str
