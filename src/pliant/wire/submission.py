"""A submission: the body of POST /api/v1/workloads/trainings, workspaces, distributed and inferences.

To add a field: CONTRIBUTING.md, "A new field of a submission".
"""

from typing import Annotated, Any, Literal, Required, TypedDict

from pliant.wire.limits import Amount, Count, Length, Name, PortNumber, Range, Seconds, Text, Word, exact


class Pair(TypedDict, total=False):
    """A variable, label or annotation."""

    name: Required[Name]
    value: Text
    exclude: bool


@exact
class Compute(TypedDict, total=False):
    """What each task asks for."""

    gpuDevicesRequest: Amount
    gpuRequestType: Literal["portion", "memory"]
    gpuPortionRequest: Amount
    gpuPortionLimit: Amount
    gpuMemoryRequest: Word
    gpuMemoryLimit: Word
    cpuCoreRequest: Amount
    cpuCoreLimit: Amount
    cpuMemoryRequest: Word
    cpuMemoryLimit: Word
    largeShmRequest: bool
    extendedResources: list[dict[str, Any]]


class PortItem(TypedDict, total=False):
    container: PortNumber
    serviceType: Literal["LoadBalancer", "NodePort", "ClusterIP"]
    external: Annotated[int, Range(0, 65_535)]
    exclude: bool


class UrlItem(TypedDict, total=False):
    container: PortNumber
    url: Word
    exclude: bool


@exact
class Expression(TypedDict, total=False):
    key: Required[Word]
    operator: Required[Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]]
    values: Annotated[list[Word], Length(1000)]


@exact
class Alternative(TypedDict, total=False):
    matchExpressions: Annotated[list[Expression], Length(100)]


@exact
class NodeAffinity(TypedDict, total=False):
    nodeSelectorTerms: Annotated[list[Alternative], Length(100)]


@exact
class Preferred(TypedDict, total=False):
    weight: int  # 1 if not said
    matchExpressions: Annotated[list[Expression], Length(100)]


@exact
class Toleration(TypedDict, total=False):
    name: Word
    operator: Literal["Equal", "Exists"]  # Equal if not said
    key: Word
    value: Word
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule", "Any"]
    seconds: Annotated[int, Range(1, 10**10)]
    exclude: bool


@exact
class PodAffinity(TypedDict, total=False):
    type: Literal["Required", "Preferred"]
    key: Word


@exact
class Nearness(TypedDict, total=False):
    name: Word  # not said: one that has the levels
    requiredPlacement: Word  # a level
    preferredPlacement: Word


@exact
class SeenFolder(TypedDict):
    """A folder as the client sees it: in a container its path may mean another one."""

    path: Annotated[str, Length(4096, least=1)]  # absolute
    device: int  # st_dev
    inode: int  # st_ino
    bootId: Word  # of the client's machine


@exact
class Captured(TypedDict, total=False):
    """Variables of the submitter's own environment."""

    variables: Required[Annotated[dict[str, Text], Length(10_000)]]
    whole: bool  # it is all of it: the job gets nothing of the server's environment


class Spec(TypedDict, total=False):
    """How each task is started, what it asks for, and where and how long it may run."""

    image: Word
    command: Text
    args: Text
    compute: Compute
    environmentVariables: Annotated[list[Pair], Length(10_000)]
    nodePools: list[Word]
    nodeType: Word
    priorityClass: Word
    preemptibility: Literal["preemptible", "non-preemptible"]
    category: Word
    backoffLimit: Count
    completions: Count
    parallelism: Count
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
    workingDir: Word
    nodeAffinityRequired: NodeAffinity
    tolerations: Annotated[list[Toleration], Length(100)]
    podAffinity: PodAffinity
    # ours
    submittedFrom: SeenFolder  # `workingDir`, or where the job starts without one
    capturedEnvironment: Captured
    nodeAffinityPreferred: Annotated[list[Preferred], Length(100)]
    podAntiAffinity: PodAffinity  # Required: no two of its tasks on nodes of equal label
    topology: Nearness
    staleGraceSeconds: Annotated[float, Range(-1, 10**9)]  # -1: for ever
    preemptionDelaySeconds: Amount
    maxRuntimeSeconds: Amount
    elastic: bool
    elasticDoubling: bool
    commandArgv: list[Text]  # exact words; win over `command`
    argsArgv: list[Text]


@exact
class LevelItem(TypedDict, total=False):
    """Groups and other levels, of which it needs so many."""

    name: Required[Word]
    parent: Word
    minGroups: Count  # not said: all
    topology: Nearness


@exact
class GroupItem(TypedDict, total=False):
    """Equal tasks. What `spec` does not say is as for the whole."""

    name: Required[Word]
    replicas: Count  # 1 if not said
    minReplicas: Count
    maxReplicas: Count
    parent: Word
    spec: Spec


class DistributedSpec(Spec, total=False):
    """Of the workers."""

    distributedFramework: Literal["MPI", "PyTorch", "TF", "XGBoost", "JAX", "ElasticDL"]
    numWorkers: Count
    minReplicas: Count
    maxReplicas: Count
    slotsPerWorker: Count
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


class Autoscaling(TypedDict, total=False):
    minReplicas: Count
    maxReplicas: Count


class InferenceSpec(Spec, total=False):
    servingPort: ServingPort
    autoscaling: Autoscaling


class Identity(TypedDict, total=False):
    """The part of a submission that is the same for all kinds: its name, its owner."""

    name: Word
    useGivenNameAsPrefix: bool
    projectId: Word
    clusterId: Word
    # ours
    projectName: Word
    nameBase: Word  # a name is generated from it ...
    nameStyle: Literal["hex", "index"]  # ... with 12 digits (if not said), or with the smallest free index
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
