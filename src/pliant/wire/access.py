"""People, programs, keys, rules, roles, security settings, and logins by a provider."""

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
    groups: list[str]  # as the login provider named them last
    email: str | None  # as the login provider named it last


class UserList(Page):
    users: list[UserItem]


class UserRequest(TypedDict, total=False):
    """Body of POST /api/v1/users."""

    email: Required[UserName]
    account: Annotated[str, Length(64, word=True)]
    resetPassword: Literal[True]  # each new user must set a password
    notify: Literal[False]  # only the answer contains its password


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
    clientSecret: NotRequired[str]  # only when it is created


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
    phase: Literal["Ready", "NotReady"]  # NotReady: it has no effect now


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
    tenantId: int  # always 1
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
    name: Annotated[str, Length(64)]  # equal to the id


class RoleRequest(TypedDict, total=False):
    name: Required[RoleName]
    description: Annotated[str, Length(255)]
    enabled: bool | None  # null: true
    permissionSets: Required[Annotated[list[RoleSet], Length(100, least=1)]]


class RoleChange(TypedDict, total=False):
    name: RoleName
    description: Annotated[str, Length(255)]
    enabled: bool | None  # null: unchanged
    permissionSets: Annotated[list[RoleSet], Length(100, least=1)]


class RoleItem(TypedDict):
    id: int
    name: str
    description: str
    enabled: bool
    effectiveEnabled: bool
    custom: bool
    deprecated: bool
    permissionSets: list[RoleSet]  # of a custom role
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
    logoutUrl: str  # address that logs out of the provider too; empty: not known


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


class IdpMappers(TypedDict, total=False):  # claims of the provider that hold the fields of a person
    groups: Required[str]
    email: Required[str]
    uid: str  # the account of this machine as which their jobs run


class Idp(TypedDict):
    """A login provider by Run:ai's names, and with its own name and issuer."""

    alias: str
    type: str
    name: str
    issuer: str
    redirectUri: str  # must be known to the provider
    oidcData: IdpClient
    mappers: IdpMappers


Secretive = Annotated[str, Length(200)]


class LoginRequest(TypedDict, total=False):
    """Body of POST /api/v1/openid/login."""

    holder: Required[
        Annotated[str, Length(64, least=64)]
    ]  # SHA-256, in hex, of the secret that is sent for the tokens
    program: bool  # true: a program, not a page of this server; a page must allow it


class LoginBegun(TypedDict):
    url: str  # at the provider, for a browser
    state: str
    code: str  # the page that allows a program shows it too; empty for a page
    expiresIn: int


class LoginArrived(TypedDict, total=False):
    """Body of POST /api/v1/openid/arrived: a browser came back that has no page's cookie."""

    state: Required[Secretive]
    code: Required[Annotated[str, Length(4000, least=1)]]
    issuer: Secretive  # issuer in the address with which the browser came back, if it names one


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
