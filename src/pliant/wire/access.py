"""People, programs, keys, roles, rules, and the audit."""

from typing import Annotated, Literal, NotRequired, Required, TypedDict

from pliant.wire.limits import Count, Length, Looks, Text
from pliant.wire.shapes import RoleName, Stamp, UserName
from pliant.wire.workload import Page

Name = Annotated[str, Length(255, least=2, word=True)]
Password = Annotated[str, Length(255, least=8)]


class UserItem(TypedDict):
    id: str
    username: str
    isLocal: bool
    createdAt: Stamp
    createdBy: str
    updatedAt: Stamp
    lastLogin: Stamp | None
    enabled: bool
    account: str | None
    groups: list[str]  # which the login provider named at the last login
    email: str | None  # the same


class UserList(Page):
    users: list[UserItem]


class UserRequest(TypedDict, total=False):
    """Body of POST /api/v1/users."""

    email: Required[UserName]
    account: Annotated[str, Length(64, word=True)]
    resetPassword: Literal[True]  # there are no other users
    notify: Literal[False]  # its password is told in the answer only


class UserMade(TypedDict):
    id: str
    username: str
    tempPassword: str


class NewPassword(TypedDict):
    password: str


class UserChange(TypedDict, total=False):
    enabled: bool
    account: Annotated[str, Length(64, word=True)]  # empty: none


class OwnPassword(TypedDict):
    currentPassword: str
    newPassword: Password


class ApplicationRequest(TypedDict, total=False):
    name: Required[Annotated[Name, Looks("^[a-z][-_a-z0-9]*[a-z0-9]$")]]
    account: Annotated[str, Length(64, word=True)]


class ApplicationChange(TypedDict, total=False):
    enabled: bool
    account: Annotated[str, Length(64, word=True)]


class ApplicationItem(TypedDict):
    id: str
    name: str
    clientId: str
    createdAt: Stamp
    createdBy: str
    updatedAt: Stamp
    lastLogin: Stamp | None
    enabled: bool
    account: str | None
    clientSecret: NotRequired[str]  # once, when it is made


class ApplicationList(TypedDict):
    next: str | None
    serviceAccounts: list[ApplicationItem]


class Secret(TypedDict):
    clientSecret: str


class KeyRequest(TypedDict, total=False):
    name: Required[Name]
    only: Literal["read", "submit"]
    days: Annotated[Count, Looks(least=1, most=3650)]


class KeyItem(TypedDict):
    id: str
    name: str
    clientId: str
    createdAt: Stamp
    lastLogin: Stamp | None
    expiresAt: Stamp | None
    only: str
    createdBy: str
    clientSecret: NotRequired[str]
    token: NotRequired[str]  # both in one, for a header


class KeyList(TypedDict):
    next: str | None
    accessKeys: list[KeyItem]


class RuleRequest(TypedDict, total=False):
    """Body of POST /api/v1/authorization/access-rules."""

    subjectId: Required[Annotated[str, Length(255, least=1, word=True)]]
    subjectType: Required[Literal["user", "app", "service-account", "group", "unix", "unix-group"]]
    roleId: Count
    roleName: str
    scopeId: Annotated[str, Length(255, word=True)]
    scopeType: Required[Literal["system", "tenant", "cluster", "department", "project"]]
    clusterId: str


class RuleStatus(TypedDict):
    phase: Literal["Ready", "NotReady"]  # not ready: it does nothing now


class RuleItem(TypedDict):
    id: str
    subjectId: str
    subjectType: str
    subjectName: str
    roleId: int
    roleName: str
    scopeId: str
    scopeType: Annotated[str, Looks(words=("tenant", "department", "project"))]
    scopeName: str
    createdAt: Stamp
    updatedAt: Stamp
    deletedAt: Stamp | None
    createdBy: str
    tenantId: int  # there is one
    status: RuleStatus


class RuleSubject(TypedDict):
    subjectId: Annotated[str, Length(255, least=1, word=True)]
    subjectType: Literal["user", "app", "service-account", "group", "unix", "unix-group"]


class RuleScope(TypedDict, total=False):
    scopeId: Annotated[str, Length(255, word=True)]
    scopeType: Required[Literal["system", "tenant", "cluster", "department", "project"]]


class RulesPayload(TypedDict, total=False):
    roleId: Required[Count]
    clusterId: str
    subjects: Required[Annotated[list[RuleSubject], Length(10, least=1)]]
    scopes: Required[Annotated[list[RuleScope], Length(10, least=1)]]


class RulesRequest(TypedDict):
    """One role for each of the subjects at each of the scopes."""

    payload: RulesPayload


class RuleFailed(TypedDict):
    payload: RuleRequest
    code: int
    message: str


class RulesMade(TypedDict):
    succeeded: list[RuleItem]
    failed: list[RuleFailed]


class RulesBatch(TypedDict):
    ids: Annotated[list[Annotated[str, Length(255, least=1)]], Length(100, least=1)]
    action: Literal["delete", "validate_delete"]


class RuleList(Page):
    accessRules: list[RuleItem]


class RolePermission(TypedDict):
    resourceType: str
    actions: list[str]


class RoleSet(TypedDict, total=False):
    id: Required[Annotated[str, Length(64)]]
    name: Annotated[str, Length(64)]  # the same


class RoleRequest(TypedDict, total=False):
    name: Required[RoleName]
    description: Annotated[str, Length(255)]
    enabled: bool | None  # null: true
    permissionSets: Required[Annotated[list[RoleSet], Length(100, least=1)]]


class RoleChange(TypedDict, total=False):
    name: RoleName
    description: Annotated[str, Length(255)]
    enabled: bool | None  # null: stays
    permissionSets: Annotated[list[RoleSet], Length(100, least=1)]


class RoleItem(TypedDict):
    id: int
    name: str
    description: str
    enabled: bool
    effectiveEnabled: bool
    custom: bool
    deprecated: bool
    permissionSets: list[RoleSet]  # of a custom one
    permissions: list[RolePermission]
    kubernetesPermissions: None  # roles give nothing on a cluster itself
    createdAt: Stamp | None  # None: it is built in
    createdBy: str
    updatedAt: Stamp | None


class RoleList(TypedDict):
    next: str | None
    roles: list[RoleItem]


class PermissionSetItem(TypedDict):
    """All rights about one kind of thing, or all that only read it."""

    id: str
    name: str
    description: str
    permissions: list[RolePermission]


class PermissionSets(TypedDict):
    permissionSets: list[PermissionSetItem]


class Permissions(TypedDict):
    permissions: list[RolePermission]


class PermittedScope(TypedDict):
    type: str
    id: str
    own: bool  # for the caller's own things only


class PermittedScopes(TypedDict):
    scopes: list[PermittedScope]


class SecuritySetting(TypedDict):
    key: str
    value: str
    default: str
    about: str


class SecuritySettingList(TypedDict):
    settings: list[SecuritySetting]


class SecuritySettingChange(TypedDict):
    """Body of PUT /api/v1/security/settings/{key}."""

    value: Text | None  # as people write it: 8h, 12; null: the built-in value


class LoginProvider(TypedDict):
    name: str
    issuer: str
    logoutUrl: str  # where one logs out of the provider too; empty: not known


class LoginProviders(TypedDict):
    """GET /api/v1/openid. Ours, as all below /openid."""

    providers: list[LoginProvider]


class NeededClaim(TypedDict):
    """Who has none of the values cannot log in."""

    claim: str
    values: list[str]


class IdpClient(TypedDict, total=False):
    clientId: Required[str]
    clientSecret: Required[str]  # asterisks
    scopes: Required[list[str]]
    mandatoryClaim: NeededClaim


class IdpMappers(TypedDict, total=False):  # what of a person is read from which claim
    groups: Required[str]
    email: Required[str]
    uid: str  # the account of this machine as which their jobs run


class Idp(TypedDict):
    """A login provider by Run:ai's names, and with its own name and issuer."""

    alias: str
    type: str
    name: str
    issuer: str
    redirectUri: str  # that the provider must know
    oidcData: IdpClient
    mappers: IdpMappers


Secretive = Annotated[str, Length(200)]


class LoginRequest(TypedDict, total=False):
    """Body of POST /api/v1/openid/login."""

    holder: Required[
        Annotated[str, Length(64, least=64)]
    ]  # SHA-256, in hex, of a secret that `token` is to show
    program: bool  # it is no page of this server; a page must allow it


class LoginBegun(TypedDict):
    url: str  # at the provider, for a browser
    state: str
    code: str  # which the page that allows a program shows too; empty for a page
    expiresIn: int


class LoginArrived(TypedDict, total=False):
    """Body of POST /api/v1/openid/arrived: a browser came back that has no page's cookie."""

    state: Required[Secretive]
    code: Required[Annotated[str, Length(4000, least=1)]]
    issuer: Secretive  # who the address says has sent the browser back, if it says so


class LoginAsked(TypedDict):
    user: str
    code: str
    ticket: str


class LoginAllowed(TypedDict, total=False):
    """Body of POST /api/v1/openid/allow."""

    state: Required[Secretive]
    ticket: Required[Secretive]


class LoginToken(TypedDict, total=False):
    """Body of POST /api/v1/openid/token."""

    state: Required[Secretive]
    secret: Required[Secretive]
    code: Annotated[str, Length(4000, least=1)]  # with which the browser came back; a program has none
    issuer: Secretive
