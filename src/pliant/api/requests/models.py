"""What clients send, as far as it is read. Run:ai's clients send much more: that is let through and named."""

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, le=2**31)]
Seconds = Annotated[int, Field(ge=0, le=10**10)]
Amount = Annotated[float, Field(ge=0, le=10**9)]
Bound = Annotated[float, Field(ge=-1, le=10**12)]  # -1: unlimited
Text = Annotated[str, Field(max_length=2**20, pattern=r"^[^\x00]*$")]
Word = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")]


class Body(BaseModel):
    """Fields that are not known are kept in `model_extra`; numbers will do where text is asked for."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True, allow_inf_nan=False)


class Strict(Body):
    """A misspelt name here would silently change what is asked for, so it is refused."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in given:
                if name not in cls.model_fields:
                    near = difflib.get_close_matches(str(name), cls.model_fields, 1)
                    hint = (
                        f"did you mean {near[0]}?"
                        if near
                        else f"the fields are {', '.join(cls.model_fields)}."
                    )
                    raise ValueError(f"there is no field {str(name)[:60]!r} here; {hint}")
        return given


class Pair(Body):
    name: Annotated[Word, Field(min_length=1)]
    value: Text | None = None
    exclude: bool | None = None


class Compute(Strict):
    """Of one task."""

    gpuDevicesRequest: Amount | None = None
    gpuRequestType: Literal["portion", "memory"] | None = None
    gpuPortionRequest: Amount | None = None
    gpuPortionLimit: Amount | None = None
    gpuMemoryRequest: Word | None = None
    gpuMemoryLimit: Word | None = None
    cpuCoreRequest: Amount | None = None
    cpuCoreLimit: Amount | None = None
    cpuMemoryRequest: Word | None = None
    cpuMemoryLimit: Word | None = None
    largeShmRequest: bool | None = None
    extendedResources: list[dict[str, Any]] | None = None


Number = Annotated[int, Field(ge=1, le=65_535)]


class PortItem(Body):
    container: Number | None = None
    serviceType: Literal["LoadBalancer", "NodePort", "ClusterIP"] | None = None
    external: Annotated[int, Field(ge=0, le=65_535)] | None = None
    exclude: bool | None = None


class UrlItem(Body):
    container: Number | None = None
    url: Word | None = None
    exclude: bool | None = None


class Expression(Strict):
    key: Word
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[list[Word], Field(max_length=1000)] | None = None


class Alternative(Strict):
    matchExpressions: Annotated[list[Expression], Field(max_length=100)] | None = None


class NodeAffinity(Strict):
    nodeSelectorTerms: Annotated[list[Alternative], Field(max_length=100)] | None = None


class Preferred(Alternative):
    weight: int = 1


class Toleration(Strict):
    name: Word | None = None
    operator: Literal["Equal", "Exists"] | None = None  # Equal if not said
    key: Word | None = None
    value: Word | None = None
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule", "Any"] | None = None
    seconds: Annotated[int, Field(ge=1, le=10**10)] | None = None
    exclude: bool | None = None


class PodAffinity(Strict):
    type: Literal["Required", "Preferred"] | None = None
    key: Word | None = None


class TopologyAsk(Strict):
    name: Word | None = None  # none: one that has the levels
    requiredPlacement: Word | None = None  # a level
    preferredPlacement: Word | None = None


class Spec(Body):
    image: Word | None = None
    command: Text | None = None
    args: Text | None = None
    compute: Compute | None = None
    environmentVariables: Annotated[list[Pair], Field(max_length=10_000)] | None = None
    nodePools: list[Word] | None = None
    nodeType: Word | None = None
    priorityClass: Word | None = None
    preemptibility: Literal["preemptible", "non-preemptible"] | None = None
    category: Word | None = None
    backoffLimit: Count | None = None
    completions: Count | None = None
    parallelism: Count | None = None
    terminationGracePeriodSeconds: Seconds | None = None
    terminateAfterPreemption: bool | None = None
    autoDeletionTimeAfterCompletionSeconds: Seconds | None = None
    restartPolicy: Literal["Always", "Never", "OnFailure"] | None = None
    ports: Annotated[list[PortItem], Field(max_length=100)] | None = None
    exposedUrls: Annotated[list[UrlItem], Field(max_length=100)] | None = None
    labels: list[Pair] | None = None
    annotations: list[Pair] | None = None
    stdin: bool | None = None
    tty: bool | None = None
    workingDir: Word | None = None
    nodeAffinityRequired: NodeAffinity | None = None
    tolerations: Annotated[list[Toleration], Field(max_length=100)] | None = None
    podAffinity: PodAffinity | None = None
    # ours
    nodeAffinityPreferred: Annotated[list[Preferred], Field(max_length=100)] | None = None
    podAntiAffinity: PodAffinity | None = None  # Required: no two of its tasks on nodes of equal label
    topology: TopologyAsk | None = None
    staleGraceSeconds: Annotated[float, Field(ge=-1, le=10**9)] | None = None  # -1: for ever
    preemptionDelaySeconds: Annotated[float, Field(ge=0, le=10**9)] | None = None
    maxRuntimeSeconds: Annotated[float, Field(ge=0, le=10**9)] | None = None
    elastic: bool = False
    elasticDoubling: bool = False
    commandArgv: list[Text] | None = None  # exact words; win over `command`
    argsArgv: list[Text] | None = None


class Submit(Body):
    """A training or a workspace; with more of it, what the other kinds are submitted by."""

    name: Word | None = None
    useGivenNameAsPrefix: bool = False
    projectId: Word | None = None
    clusterId: Word | None = None
    spec: Spec = Field(default_factory=Spec)
    # ours
    projectName: Word | None = None
    nameBase: Word | None = None  # a name is generated from it ...
    nameStyle: Literal["hex", "index"] = "hex"  # ... with 12 digits, or with the smallest free index
    submittedBy: Annotated[str, Field(max_length=128, pattern=r"^[^\x00-\x1f]*$")] | None = None
    source: Word | None = None


class LevelItem(Strict):
    """Groups and other levels, of which it needs so many."""

    name: Word
    parent: Word = ""
    minGroups: Count | None = None  # none: all
    topology: TopologyAsk | None = None


class GroupItem(Strict):
    """Equal tasks. What `spec` does not say is as for the whole."""

    name: Word
    replicas: Count = 1
    minReplicas: Count | None = None
    maxReplicas: Count | None = None
    parent: Word = ""
    spec: Spec = Field(default_factory=Spec)


class DistributedSpec(Spec):
    """Of the workers."""

    distributedFramework: Literal["MPI", "PyTorch", "TF", "XGBoost", "JAX", "ElasticDL"] | None = None
    numWorkers: Count | None = None
    minReplicas: Count | None = None
    maxReplicas: Count | None = None
    slotsPerWorker: Count | None = None
    mpiLauncherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] | None = None
    sshAuthMountPath: Word | None = None
    cleanPodPolicy: Literal["None", "All", "Running"] | None = None
    # ours, instead of numWorkers and a master
    taskGroups: Annotated[list[GroupItem], Field(max_length=1000)] | None = None
    subGroups: Annotated[list[LevelItem], Field(max_length=1000)] | None = None
    minGroups: Count | None = None


class Distributed(Submit):
    spec: DistributedSpec = Field(default_factory=DistributedSpec)
    masterSpecSameAsWorker: bool | None = None  # false without masterSpec: no master
    masterSpec: Spec | None = None


class ServingPort(Body):
    container: Number | None = None
    protocol: Literal["http", "grpc"] | None = None


class Autoscaling(Body):
    minReplicas: Count | None = None
    maxReplicas: Count | None = None


class InferenceSpec(Spec):
    servingPort: ServingPort | None = None
    autoscaling: Autoscaling | None = None


class Inference(Submit):
    spec: InferenceSpec = Field(default_factory=InferenceSpec)


class Batch(Body):
    ids: Annotated[list[Word], Field(min_length=1, max_length=100)]
    action: Literal["cancel", "delete", "suspend", "resume"]


class Command(Body):
    """To run inside a task."""

    command: Annotated[list[Text], Field(min_length=1, max_length=10_000)]
    tty: bool = False
    stdin: bool = False
    rows: Annotated[int, Field(ge=1, le=10_000)] = 24
    columns: Annotated[int, Field(ge=1, le=10_000)] = 80
    pod: Word = ""


class Screen(Body):
    rows: Annotated[int, Field(ge=1, le=10_000)]
    columns: Annotated[int, Field(ge=1, le=10_000)]


# -- who owns quota, and machines -------------------------------------------------------------------


class Named(Body):
    id: Word | None = None
    name: Word | None = None


class GpuQuota(Strict):
    deserved: Bound | None = None  # GPUs
    limit: Bound | None = None  # null or -1: unlimited
    overQuotaWeight: Amount | None = None


class PlainQuota(Strict):
    """Millicores, or memory in `units`."""

    deserved: Bound | None = None  # null or -1: unlimited
    limit: Bound | None = None
    overQuotaWeight: Amount | None = None  # taken and not used: weights are about GPUs
    units: Literal["Mib", "MB", "GB"] = "MB"


Held = Annotated[float, Field(ge=0, le=10**10)]


class PoolQuota(Strict):
    nodePool: Named | None = None  # none: the pool `default`
    gpu: GpuQuota | None = None
    cpu: PlainQuota | None = None
    memory: PlainQuota | None = None
    priority: Word | None = None  # a rank
    # ours
    reclaimMinRuntimeSeconds: Held | None = None  # null: as the level above, then the pool
    preemptMinRuntimeSeconds: Held | None = None


Rule = Annotated[int, Field(ge=1, le=10**10)] | None


class Rules(Body):
    interactiveJobTimeLimitSeconds: Rule = None
    interactiveJobMaxIdleDurationSeconds: Rule = None
    interactiveJobPreemptIdleDurationSeconds: Rule = None
    trainingJobMaxIdleDurationSeconds: Rule = None
    trainingJobTimeLimitSeconds: Rule = None


class NodeTypes(Body):
    training: list[Word] | None = None
    workspace: list[Word] | None = None


class Unit(Body):
    """A project or department. In a change, what is not named stays as it is."""

    name: Word | None = None
    description: Text | None = None
    parentId: Word | None = None
    resources: list[PoolQuota] | None = None
    schedulingRules: Rules | None = None
    defaultNodePools: list[Word] | None = None
    nodeTypes: NodeTypes | None = None
    # ours
    departmentName: Word | None = None


class TopologyBody(Body):
    name: Word | None = None
    levels: Annotated[list[Word], Field(max_length=20)] | None = None  # node labels, the widest first
    clusterId: Word | None = None


class PriorityClassBody(Body):
    name: Word | None = None
    value: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    description: Text | None = None


class PriorityClassesBody(Body):
    priorityClasses: Annotated[list[PriorityClassBody], Field(min_length=1, max_length=1000)]


class TaintItem(Body):
    key: Annotated[Word, Field(min_length=1)]
    value: Word | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    exclude: bool | None = None  # take it away


class NodeChange(Body):
    """What is named is set, all else stays."""

    labels: Annotated[dict[Word, Word | None], Field(max_length=100)] | None = None  # null: take it away
    taints: Annotated[list[TaintItem], Field(max_length=100)] | None = None


class Strategies(Body):
    cpu: Literal["binpack", "spread"] | None = None
    gpu: Literal["binpack", "spread"] | None = None
    device: Literal["binpack", "spread"] | None = None  # ours: fractions over the GPUs of a node


class PoolScheduling(Body):
    placementStrategy: Strategies | None = None
    minGuaranteedRuntime: Word | None = None  # a duration such as 2m; a number is seconds


class Pool(Body):
    name: Word | None = None
    labelKey: Word | None = None
    labelValue: Word | None = None
    placementStrategy: Strategies | None = None
    schedulingConfiguration: PoolScheduling | None = None
    networkTopologyId: Word | None = None
    # ours
    networkTopologyName: Word | None = None  # '': none
    minRuntimeSeconds: Annotated[float, Field(ge=0, le=10**10)] | None = None
