"""Parts of submissions that are kept: environments, compute, data, credentials, templates, policies."""

from typing import Annotated, Any, Literal, Required, TypedDict

from pliant.wire.limits import Length, Looks, Name, RulesOf, Text, Unused, Word
from pliant.wire.server import ComplianceIssue, PolicyOf
from pliant.wire.shapes import Label, Stamp
from pliant.wire.submission import (
    Compute,
    DistributedSpec,
    GitVolume,
    HostPathVolume,
    InferenceSpec,
    NfsVolume,
    Spec,
    Variable,
)
from pliant.wire.workload import Page

ScopeWord = Literal["tenant", "system", "cluster", "department", "project"]
Kinds = Literal["trainings", "workspaces", "distributed", "inferences"]
About = Annotated[str, Length(250)]


class Meta(TypedDict, total=False):
    """For whom it is: without a scope for all; `system` and `cluster` are other words for the tenant."""

    name: Required[Label]
    description: About | None
    scope: ScopeWord
    scopeType: ScopeWord  # the same, by the name that templates use
    scopeId: Word | None  # id or name of the department or project
    departmentId: Word | None
    projectId: Word | None
    clusterId: Word | None  # only this server's cluster
    autoDelete: Unused
    private: Unused
    workloadSupportedTypes: Unused


class Environment(TypedDict, total=False):
    image: Word
    command: Annotated[str, Length(2**16)]
    args: Annotated[str, Length(2**16)]
    environmentVariables: Annotated[list[Variable], Length(10_000)]
    workingDir: Word
    allowPrivilegeEscalation: Unused
    capabilities: Unused
    connections: Unused
    createHomeDir: Unused
    hostIpc: Unused
    hostNetwork: Unused
    imagePullPolicy: Unused
    overrideUidGidInWorkspace: Unused
    probes: Unused
    readOnlyRootFilesystem: Unused
    runAsGid: Unused
    runAsNonRoot: Unused
    runAsUid: Unused
    seccompProfileType: Unused
    stdin: Unused
    supplementalGroups: Unused
    tty: Unused
    uidGidSource: Unused


class EnvironmentRequest(TypedDict):
    meta: Meta
    spec: Environment


class ComputeRequest(TypedDict):
    meta: Meta
    spec: Compute


class Password(TypedDict, total=False):
    """Its values are kept sealed and are never answered."""

    user: Word
    password: Required[Annotated[str, Length(2**16, least=1)]]
    existingSecretName: Unused


class PasswordRequest(TypedDict):
    meta: Meta
    spec: Password


class KeyValue(TypedDict):
    key: Name
    value: Text


class GenericSecret(TypedDict, total=False):
    """Its values are kept sealed and are never answered."""

    keyValuePairs: Required[Annotated[list[KeyValue], Length(100, least=1)]]
    existingSecretName: Unused


class GenericSecretRequest(TypedDict):
    meta: Meta
    spec: GenericSecret


class GitRequest(TypedDict):
    meta: Meta
    spec: GitVolume


class HostPathRequest(TypedDict):
    meta: Meta
    spec: HostPathVolume


class NfsRequest(TypedDict):
    meta: Meta
    spec: NfsVolume


class TemplateRequest(TypedDict):
    """Of trainings or workspaces."""

    meta: Meta
    spec: Spec


class DistributedTemplateRequest(TypedDict):
    meta: Meta
    spec: DistributedSpec


class InferenceTemplateRequest(TypedDict):
    meta: Meta
    spec: InferenceSpec


class AssetChange(TypedDict, total=False):
    """The fields that are sent are set; a spec is replaced as a whole."""

    meta: dict[str, str | None]


class EnvironmentChange(AssetChange, total=False):
    spec: Environment


class ComputeChange(AssetChange, total=False):
    spec: Compute


class TemplateChange(AssetChange, total=False):
    spec: Spec


class DistributedTemplateChange(AssetChange, total=False):
    spec: DistributedSpec


class InferenceTemplateChange(AssetChange, total=False):
    spec: InferenceSpec


class PasswordChange(AssetChange, total=False):
    spec: Password


class GenericSecretChange(AssetChange, total=False):
    spec: GenericSecret


class GitChange(AssetChange, total=False):
    spec: GitVolume


class HostPathChange(AssetChange, total=False):
    spec: HostPathVolume


class NfsChange(AssetChange, total=False):
    spec: NfsVolume


Scoped = Annotated[str, Looks(words=("tenant", "department", "project"))]


class AssetMeta(TypedDict):
    id: str
    name: str
    kind: str
    description: str
    scope: Scoped
    scopeType: Scoped
    scopeId: str | None
    departmentId: str | None
    projectId: str | None
    createdBy: str
    createdAt: Stamp
    updatedAt: Stamp


class Runnable(TypedDict):
    """Whether the policies of a project allow it there."""

    isRunnable: bool
    issue: str | None


class AssetItem(TypedDict):
    meta: AssetMeta
    spec: dict[str, Any]
    runnable: Runnable | None  # if complyToProject was named
    notices: list[str]  # fields that have no effect; in the answer to a create or change


class AssetPage(TypedDict):
    limit: int
    offset: int
    nextOffset: int | None


class AssetList(Page):
    entries: list[AssetItem]
    pagination: AssetPage


class NameAvailable(TypedDict):
    available: bool


class PolicyMeta(TypedDict, total=False):
    scope: ScopeWord
    departmentId: Word | None
    projectId: Word | None
    clusterId: Word | None  # only this server's cluster
    name: Unused


class PolicyBody(TypedDict, total=False):
    """Both have the shape of a workload's spec; a rule stands where a value would stand."""

    defaults: Spec
    rules: Annotated[dict[str, Any], RulesOf(Spec)]


class DistributedPolicyBody(TypedDict, total=False):
    defaults: DistributedSpec
    rules: Annotated[dict[str, Any], RulesOf(DistributedSpec)]


class InferencePolicyBody(TypedDict, total=False):
    defaults: InferenceSpec
    rules: Annotated[dict[str, Any], RulesOf(InferenceSpec)]


class PolicyRequest(TypedDict):
    """Of trainings or workspaces."""

    meta: PolicyMeta
    policy: PolicyBody


class DistributedPolicyRequest(TypedDict):
    meta: PolicyMeta
    policy: DistributedPolicyBody


class InferencePolicyRequest(TypedDict):
    meta: PolicyMeta
    policy: InferencePolicyBody


AnyPolicy = PolicyRequest | DistributedPolicyRequest | InferencePolicyRequest


class PolicyItem(TypedDict):
    """GET /api/v2/policy/{kind}."""

    meta: AssetMeta
    policy: dict[str, Any]
    notices: list[str]  # fields that have no effect; in the answer to a create or change


class PolicyEntry(PolicyItem):
    type: str  # trainings | workspaces | distributed | inferences


class PolicyList(TypedDict):
    """GET /api/v2/policy."""

    policies: list[PolicyEntry]


class EffectiveEntry(TypedDict):
    field: str
    value: Any  # a default, or a rule
    policy: PolicyOf


class EffectivePolicy(TypedDict):
    """GET /api/v1/policies/effective: all policies that concern a project, merged."""

    projectId: str
    workloadType: str
    defaults: list[EffectiveEntry]
    rules: list[EffectiveEntry]


class Refusable(TypedDict):
    id: str
    name: str
    projectName: str
    complianceIssues: list[ComplianceIssue]


class PolicyPreview(TypedDict):
    """Which of today's workloads a policy would have refused."""

    workloads: list[Refusable]
    checked: int
