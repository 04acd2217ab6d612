"""A submission: the body of POST /api/v1/workloads/trainings, workspaces, distributed and inferences.

To add a field: CONTRIBUTING.md, "A new field of a submission".
"""

from typing import Annotated, Any, Literal, Required, TypedDict

from pliant.wire.limits import (
    Amount,
    Count,
    Length,
    Looks,
    Name,
    PortNumber,
    Range,
    Seconds,
    Text,
    Unused,
    Word,
)
from pliant.wire.placing import Nearness, NodeAffinity, PodAffinity, PodAntiAffinity, Preferred, Toleration
from pliant.wire.shapes import Cores, GpuMemory, Label, Memory, Moment, Stamp
from pliant.wire.workload import Desired, Phase

_PART = Looks(least=0.001, most=1, step=0.001)
_PORTION = Annotated[Amount, _PART]
_TASKS = Annotated[Count, Looks(least=1, most=10_000)]


class Pair(TypedDict, total=False):
    """A variable, label or annotation."""

    name: Required[Name]
    value: Text
    exclude: bool


class CredentialOf(TypedDict, total=False):
    """A value of a credential that is kept: GET /api/v1/asset/credentials/..."""

    assetId: Required[Name]  # its id, or its name
    key: Required[Name]  # user or password; of a generic secret the name of one of its values


class Variable(Pair, total=False):
    """Of the environment: a plain value, or one of a credential."""

    credential: CredentialOf
    description: Unused
    secret: Unused
    userCredential: Unused
    configMap: Unused
    podFieldRef: Unused


class Compute(TypedDict, total=False):
    """What each task asks for."""

    gpuDevicesRequest: Annotated[Amount, Looks(step=1, other=_PART)]  # or a part of one, such as 0.5
    gpuRequestType: Literal["portion", "memory"]
    gpuPortionRequest: _PORTION
    gpuPortionLimit: _PORTION
    gpuMemoryRequest: GpuMemory
    gpuMemoryLimit: GpuMemory
    cpuCoreRequest: Cores
    cpuCoreLimit: Amount
    cpuMemoryRequest: Memory
    cpuMemoryLimit: Word
    largeShmRequest: bool
    extendedResources: Annotated[list[dict[str, Any]], Looks(words=([],))]


class PortItem(TypedDict, total=False):
    container: PortNumber
    serviceType: Literal["LoadBalancer", "NodePort", "ClusterIP"]
    external: Annotated[int, Range(0, 65_535)]
    exclude: bool
    name: Unused
    toolType: Unused
    toolName: Unused


class UrlItem(TypedDict, total=False):
    container: PortNumber
    url: Word
    exclude: bool
    name: Unused
    toolType: Unused
    toolName: Unused
    authorizationType: Unused
    authorizedUsers: Unused
    authorizedGroups: Unused


class GitVolume(TypedDict, total=False):
    """A repository that is cloned before the task starts."""

    repository: Required[Name]
    branch: Word
    revision: Word
    path: Word  # target; on one machine below the job's folder. Default: the repository's name
    credentialId: Word  # id or name of a stored password
    name: Word
    exclude: bool
    passwordSecret: Unused
    secretKeyOfUser: Unused
    secretKeyOfPassword: Unused
    secretRef: Unused


class HostPathVolume(TypedDict, total=False):
    """A folder or file of the node."""

    path: Required[Name]
    mountPath: Word  # path in the task; on one machine below the job's folder, or equal to `path`
    readOnly: bool  # default: true
    name: Word
    exclude: bool
    mountPropagation: Unused


class NfsVolume(TypedDict, total=False):
    server: Required[Name]
    path: Required[Name]
    mountPath: Word
    readOnly: bool
    name: Word
    exclude: bool


class Storage(TypedDict, total=False):
    git: Annotated[list[GitVolume], Length(20)]
    hostPath: Annotated[list[HostPathVolume], Length(20)]
    nfs: Annotated[list[NfsVolume], Length(20)]
    pvc: Unused
    s3: Unused
    configMapVolume: Unused
    secretVolume: Unused
    emptyDirVolume: Unused
    dataVolume: Unused


class SeenFolder(TypedDict):
    """A folder as the client sees it: in a container its path may mean another one."""

    path: Annotated[str, Length(4096, least=1)]  # absolute
    device: int  # st_dev
    inode: int  # st_ino
    bootId: Word  # of the client's machine


class Captured(TypedDict, total=False):
    """Variables of the submitter's own environment."""

    variables: Required[Annotated[dict[str, Text], Length(10_000)]]
    whole: bool  # true: this is all of it, and the job gets nothing of the server's environment


class DependencyItem(TypedDict, total=False):
    """A job that has to come so far before this one competes for GPUs."""

    on: Required[Name]  # name or number of a job, or name of an array; of the same project
    when: Literal["after", "afterok", "afterany", "afternotok", "aftercorr", "singleton"]  # default: afterok


_RANGE = "[0-9]{1,4}(-[0-9]{1,4}(:[1-9][0-9]?)?)?"
_INDEXES = f"^{_RANGE}(,{_RANGE})*$"


class ArrayItem(TypedDict, total=False):
    """Equal jobs NAME-INDEX that are submitted together."""

    indexes: Required[Annotated[Word, Looks(_INDEXES)]]  # Slurm's grammar: 0-15, 0,6,16-32, 0-15:4
    atOnce: Annotated[int, Range(1, 2**31)]  # default: all


class ChangedSpec(TypedDict, total=False):
    """The part of a spec that can be changed while an inference is suspended."""

    image: Word
    command: Text
    args: Text
    commandArgv: list[Text]  # exact words; win over `command`
    argsArgv: list[Text]
    compute: Compute
    workingDir: Word
    nodePools: list[Word]
    nodeType: Word
    nodeAffinityRequired: NodeAffinity
    priorityClass: Word
    preemptibility: Literal["preemptible", "semi-preemptible", "non-preemptible"]
    category: Word
    probes: Unused
    imagePullPolicy: Unused
    imagePullSecrets: Unused
    createHomeDir: Unused


class Spec(ChangedSpec, total=False):
    """How each task is started, what it asks for, and where and how long it may run."""

    environmentVariables: Annotated[list[Variable], Length(10_000)]
    backoffLimit: Count
    completions: _TASKS
    parallelism: _TASKS
    terminationGracePeriodSeconds: Seconds
    terminateAfterPreemption: bool
    autoDeletionTimeAfterCompletionSeconds: Seconds
    restartPolicy: Literal["Always", "Never", "OnFailure"]
    ports: Annotated[list[PortItem], Length(100)]
    exposedUrls: Annotated[list[UrlItem], Length(100)]
    labels: list[Pair]
    annotations: list[Pair]
    stdin: bool
    tty: bool
    tolerations: Annotated[list[Toleration], Length(100)]
    podAffinity: PodAffinity
    storage: Storage
    security: Unused
    relatedUrls: Unused
    # ours
    submittedFrom: SeenFolder  # that of `workingDir`, or where the job starts without one
    capturedEnvironment: Captured
    nodeAffinityPreferred: Annotated[list[Preferred], Length(100)]
    podAntiAffinity: PodAntiAffinity  # Required: no two of its tasks on nodes of equal label
    topology: Nearness
    beginAt: Moment
    dependencies: Annotated[list[DependencyItem], Length(100)]
    dependencyAny: bool  # one of them is enough
    keepPending: bool  # a failed dependency does not cancel it: it waits for a later job of that name
    array: ArrayItem
    staleGraceSeconds: Annotated[float, Range(-1, 10**9)]  # -1: for ever
    preemptionDelaySeconds: Amount
    maxRuntimeSeconds: Annotated[Amount, Looks(least=1)]
    background: bool  # runs on idle GPUs outside of quota and fair share, first to be evicted
    elastic: bool
    elasticDoubling: bool
    capturedVariables: Unused  # accepted because answers have it


class LevelItem(TypedDict, total=False):
    """Groups and other levels, of which it needs so many."""

    name: Required[Word]
    parent: Word
    minGroups: Count  # default: all
    topology: Nearness


class GroupItem(TypedDict, total=False):
    """Equal tasks. What `spec` does not say is as for the whole."""

    name: Required[Word]
    replicas: Count  # default: 1
    minReplicas: Count
    maxReplicas: Count
    parent: Word
    spec: Spec
    priority: Unused  # accepted because answers have it


class DistributedSpec(Spec, total=False):
    """Of the workers."""

    distributedFramework: Literal["MPI", "PyTorch", "TF", "XGBoost", "JAX", "ElasticDL"]
    numWorkers: _TASKS
    minReplicas: Count
    maxReplicas: Count
    slotsPerWorker: _TASKS
    mpiLauncherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"]
    sshAuthMountPath: Word
    cleanPodPolicy: Literal["None", "All", "Running"]
    # ours, instead of numWorkers and a master
    taskGroups: Annotated[list[GroupItem], Length(1000)]
    subGroups: Annotated[list[LevelItem], Length(1000)]
    minGroups: Count


class ServingPort(TypedDict, total=False):
    container: PortNumber
    protocol: Literal["http", "grpc"]
    authorizationType: Unused
    authorizedUsers: Unused
    authorizedGroups: Unused
    clusterLocalAccessOnly: Unused


class Autoscaling(TypedDict, total=False):
    minReplicas: Count
    maxReplicas: Count
    initialReplicas: Unused
    activationReplicas: Unused
    concurrencyHardLimit: Unused
    metric: Unused
    metricThreshold: Unused
    metricThresholdPercentage: Unused
    scaleToZeroRetentionSeconds: Unused
    scaleDownDelaySeconds: Unused
    initializationTimeoutSeconds: Unused


class InferenceChangeSpec(ChangedSpec, total=False):
    autoscaling: Autoscaling
    servingConfiguration: Unused


class InferenceSpec(Spec, InferenceChangeSpec, total=False):
    servingPort: ServingPort


class InferenceChange(TypedDict):
    """Body of PATCH /api/v1/workloads/inferences/{id}."""

    spec: InferenceChangeSpec


class DataChoice(TypedDict, total=False):
    id: Required[Name]  # or its name
    kind: Literal["git", "hostPath", "host-path", "nfs"]  # default: any of these


class AssetChoice(TypedDict, total=False):
    """Ids or names of what is kept for submissions; what `spec` says itself wins."""

    environment: Word
    compute: Word
    datasources: Annotated[list[DataChoice], Length(20)]


class Identity(TypedDict, total=False):
    """The part of a submission that is the same for all kinds: its name, its owner."""

    name: Label
    useGivenNameAsPrefix: bool
    projectId: Word
    clusterId: Word
    templateId: Word | None
    assets: AssetChoice
    # ours
    projectName: Word
    nameBase: Label  # the name is generated from it ...
    nameStyle: Literal["hex", "index"]  # ... with 12 digits (default), or with the smallest free index
    submittedBy: Annotated[str, Length(128, plain=True)]
    source: Word


class Submission(Identity, total=False):
    """A training or a workspace."""

    spec: Spec


class Distributed(Identity, total=False):
    spec: DistributedSpec
    masterSpecSameAsWorker: bool  # false without masterSpec: no master
    masterSpec: Spec


class Inference(Identity, total=False):
    spec: InferenceSpec


AnySubmission = Submission | Distributed | Inference


class Submitted(TypedDict):
    """Answer to a submission."""

    name: str
    requestedName: str
    workloadId: str
    projectId: str
    departmentId: str
    clusterId: str
    createdBy: str
    createdAt: Stamp
    deletedAt: Stamp | None
    desiredPhase: Desired
    actualPhase: Phase
    spec: dict[str, Any]
    # ours
    projectName: str
    elements: list[str]  # names of the jobs of an array; empty: it is none
    notices: list[str]
