"""Which fields of a body exclude or need one another, for the description."""

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.wire import (
    access,
    assets,
    cluster,
    notices,
    placing,
    questions,
    submission,
    supposing,
    usage,
    workload,
)
from pliant.wire.shapes import ABSOLUTE, MAIL


@dataclass(frozen=True, slots=True)
class AtLeastOne:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotBoth:
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Both:
    """Both fields are set, or neither."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Needs:
    """If `name` is set, one of `one` is set. `a.b` is the field b of the field a, here and above."""

    name: str
    one: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class With:
    """If `name` has one of these values (None: it is not set), all of `all` are set, one of `one` if it names
    any, none of `none`, and the fields of `looks` match their patterns."""

    name: str
    values: tuple[str | bool | None, ...]
    all: tuple[str, ...] = ()
    one: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    looks: tuple[tuple[str, str], ...] = ()  # (field, pattern)


Together = AtLeastOne | NotBoth | Both | Needs | With

_SPECS = (
    submission.Spec,
    submission.DistributedSpec,
    submission.InferenceSpec,
)
_SUBMISSIONS = (submission.Submission, submission.Distributed, submission.Inference)

WORKERS = ("numWorkers", "minReplicas", "maxReplicas")
"""Fields of equal workers; taskGroups excludes them."""

_TENANT = ("tenant", "system", "cluster")
_VAGUE = (None, "NoSchedule", "PreferNoSchedule", "Any")

TOGETHER: Sequence[tuple[tuple[type, ...], tuple[Together, ...]]] = (
    (_SUBMISSIONS, (AtLeastOne(("projectId", "projectName")),)),
    (
        (submission.Distributed,),
        (
            *(NotBoth("spec.taskGroups", f"spec.{name}") for name in WORKERS),
            NotBoth("spec.taskGroups", "masterSpec"),
            Needs("spec.subGroups", ("spec.taskGroups", "templateId")),
            Needs("spec.minGroups", ("spec.taskGroups", "templateId")),
            With("masterSpecSameAsWorker", (True,), none=("spec.taskGroups",)),
        ),
    ),
    (
        _SPECS,
        (
            NotBoth("podAffinity", "topology"),
            With("background", (True,), looks=(("preemptibility", "^preemptible$"),)),
        ),
    ),
    (
        (submission.Compute,),
        (
            NotBoth("gpuMemoryRequest", "gpuPortionRequest"),
            With("gpuRequestType", ("memory",), all=("gpuMemoryRequest",)),
            With("gpuRequestType", ("portion",), none=("gpuMemoryRequest",)),
        ),
    ),
    (
        (placing.Toleration,),
        (
            With("operator", (None, "Equal"), all=("key",)),
            With("operator", ("Exists",), none=("value",)),
            With("effect", _VAGUE, none=("seconds",)),
        ),
    ),
    (
        (placing.Expression,),
        (
            With("operator", ("In", "NotIn", "Gt", "Lt"), all=("values",)),
            With("operator", ("Exists", "DoesNotExist"), none=("values",)),
        ),
    ),
    ((placing.Alternative, placing.Preferred), (AtLeastOne(("matchExpressions",)),)),
    ((cluster.NodeRequest,), (AtLeastOne(("labels", "taints")),)),
    (
        (cluster.BookingRequest,),
        (
            With("maintenance", (True,), all=("nodes",), none=("projectName", "gpus")),
            With("maintenance", (None, False), all=("projectName", "gpus")),
        ),
    ),
    ((workload.Fitting,), (AtLeastOne(("cpuCoreRequest", "cpuMemoryRequest")),)),
    ((usage.LimitRequest,), (AtLeastOne(("gpus", "pending", "gpuHours")),)),
    ((access.RuleRequest,), (AtLeastOne(("roleId", "roleName")),)),
    (
        (questions.DrainSome,),
        (AtLeastOne(("nodes", "label")), NotBoth("nodes", "label"), Needs("value", ("label",))),
    ),
    (
        (supposing.SupposedDrain, supposing.SupposedLoss),
        (AtLeastOne(("node", "label")), NotBoth("node", "label"), Needs("value", ("label",))),
    ),
    (
        (supposing.SupposedQuota,),
        (AtLeastOne(("project", "department")), NotBoth("project", "department")),
    ),
    (
        (assets.Meta, assets.PolicyMeta),
        (
            NotBoth("departmentId", "projectId"),
            With("scope", ("project",), none=("departmentId",)),
            With("scope", ("department",), none=("projectId",)),
            With("scope", _TENANT, none=("departmentId", "projectId")),
        ),
    ),
    (
        (assets.PolicyMeta,),
        (
            With("scope", ("project",), all=("projectId",)),
            With("scope", ("department",), all=("departmentId",)),
        ),
    ),
    (
        (assets.Meta,),
        (
            NotBoth("scope", "scopeType"),
            Needs("scopeId", ("scope", "scopeType")),
            NotBoth("scopeId", "departmentId"),
            NotBoth("scopeId", "projectId"),
            With("scope", ("project",), one=("scopeId", "projectId")),
            With("scope", ("department",), one=("scopeId", "departmentId")),
            With("scope", _TENANT, none=("scopeId",)),
            With("scopeType", ("project",), one=("scopeId", "projectId"), none=("departmentId",)),
            With("scopeType", ("department",), one=("scopeId", "departmentId"), none=("projectId",)),
            With("scopeType", _TENANT, none=("scopeId", "departmentId", "projectId")),
        ),
    ),
    (
        (notices.NotificationRequest,),
        (
            With("kind", ("mail",), looks=(("address", MAIL),)),
            With("kind", ("webhook",), looks=(("address", ABSOLUTE),)),
        ),
    ),
    (
        (notices.MailServerRequest,),
        (Both("login", "passwordFile"), With("security", ("none",), none=("login",))),
    ),
    (
        (notices.EmailConfig,),
        (
            Both("username", "passwordFile"),
            With("authType", ("auth_none",), none=("username",)),
            With("smtpTlsEnabled", (False,), none=("username",)),
        ),
    ),
)
