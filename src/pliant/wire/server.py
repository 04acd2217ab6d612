"""The server itself: errors, the caller's identity, tokens, health, doctor."""

from typing import Annotated, Literal, NotRequired, Required, TypedDict

from pliant.wire.limits import Length, Looks
from pliant.wire.shapes import ABSOLUTE


class FieldProblem(TypedDict):
    field: str  # its path in the body, such as spec.compute.gpuDevicesRequest; a parameter by its name
    message: str


class PolicyOf(TypedDict):
    id: str
    scope: str
    scopeId: str | None


class ComplianceIssue(TypedDict):
    field: str
    details: str
    rule: str
    policy: PolicyOf


class Problem(TypedDict):
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
    fields: list[FieldProblem]  # the fields that are wrong, so that a form can mark them; may be empty
    complianceIssues: NotRequired[list[ComplianceIssue]]  # what policies do not allow


class ServerItem(TypedDict):
    """GET /api/v1/server, and part of it in <state>/server.json. Ours."""

    url: str
    version: str
    pid: int
    started: str
    state: str
    epoch: int
    role: str  # leader | standby
    standby: str | None  # URL of the standby server
    simulated: bool
    cycles: int
    uptime: float  # seconds
    tasksRunning: int


class Finding(TypedDict):
    """One thing that may hold on a machine or not."""

    what: str
    holds: bool
    text: str  # how, or why not


class Doctor(TypedDict):
    """GET /api/v1/server/doctor. Ours."""

    findings: list[Finding]


class TokenRequest(TypedDict, total=False):
    """Body of POST /api/v1/token."""

    grantType: Required[Literal["client_credentials", "app_token", "password", "refresh_token"]]
    clientID: str
    clientSecret: str
    appID: str
    appSecret: str
    username: str
    password: str
    refreshToken: str


class Tokens(TypedDict):
    accessToken: str
    refreshToken: str
    expiresIn: int


class OAuthTokens(TypedDict):
    access_token: str
    token_type: str
    expires_in: int
    refresh_token: str


class GivenRole(TypedDict):
    """What one access rule gives."""

    role: str
    scopeType: str  # tenant | department | project
    scopeId: str  # empty: the tenant


class Whoami(TypedDict):
    user: str
    id: str
    # ours
    subject: str  # as access rules name it
    account: str | None  # of the machine, as which its jobs run
    roles: list[GivenRole]
    mustChangePassword: bool  # nothing else is allowed before


class VersionItem(TypedDict):
    version: str
    api: str


class ProofItem(TypedDict):
    proof: str  # wire.proof


class Health(TypedDict):
    status: str  # ok | degraded | stopping
    detail: NotRequired[str]  # why it is degraded


class ShutdownRequest(TypedDict, total=False):
    stopTasks: bool  # default: false, they go on running


class BackupRequest(TypedDict):
    path: Annotated[str, Length(4096, least=1), Looks(ABSOLUTE)]  # on the server's machine


class BackupDone(TypedDict):
    path: str
