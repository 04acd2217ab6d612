"""Identities: people, programs, their keys and sessions, and the rules that give them roles."""

from dataclasses import dataclass

from pliant.model.rights import SETS, TENANT, Grant, Place

USER, APPLICATION, UNIX, UNIX_GROUP = "user", "service-account", "unix", "unix-group"
"""Types of subjects: of this server's own users, programs, accounts of the machine, groups of the machine."""

NO_UID = -1

OWNER_GONE = "owner-gone"
"""In the error of an attempt whose account is no longer on the machine: a retry is useless."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the machine."""

    uid: int
    name: str


@dataclass(frozen=True, slots=True)
class User:
    """A person known to this server by a password, or by what an OpenID Connect provider says."""

    id: str
    name: str  # unique; how the person logs in
    password: str  # Argon2 hash; empty: cannot log in by password
    must_change: bool = False  # a new password must be set before anything else
    enabled: bool = True
    account: Account | None = None  # its jobs run as this; bound by an administrator
    generation: int = 0  # tokens of an older generation are invalid
    created: int = 0  # ms since the epoch
    created_by: str = ""
    last_login: int | None = None  # ms
    updated: int = 0  # ms; 0: not since it was created
    groups: tuple[str, ...] = ()  # as the login provider listed them last
    told: int = 0  # ms; when it listed them
    again: str = ""  # sealed: what is needed to ask the provider again; empty: impossible
    email: str = ""  # from the login provider; empty: none


@dataclass(frozen=True, slots=True)
class Application:
    """A program with an identity of its own."""

    id: str
    name: str  # unique
    client: str  # its client id; unique
    secret: str  # SHA-256 of the token that it makes with the client id
    enabled: bool = True
    account: Account | None = None
    generation: int = 0
    created: int = 0
    created_by: str = ""
    last_login: int | None = None
    updated: int = 0


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A secret by which a person's programs act with the person's rights."""

    id: str
    name: str
    client: str  # its client id; unique
    secret: str  # SHA-256 of the token that it makes with the client id
    owner: str  # subject, as `subject_of`
    owner_name: str
    only: str = ""  # read | submit; empty: all that the owner may
    generation: int = 0
    created: int = 0
    expires: int | None = None  # ms; None: never
    last_login: int | None = None


@dataclass(frozen=True, slots=True)
class CustomRole:
    """A role that an administrator made; those that are built in are in pliant.model.rights."""

    id: int  # above those of the built-in roles; never used again
    name: str  # unique among all roles, in any case
    about: str = ""
    sets: tuple[str, ...] = ()  # ids of permission sets
    enabled: bool = True  # False: its rules give no rights
    created: int = 0
    created_by: str = ""
    updated: int = 0

    @property
    def rights(self) -> frozenset[str]:
        return frozenset(right for name in self.sets if name in SETS for right in SETS[name].rights)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Gives a role to a subject at a scope."""

    id: str
    subject: str  # `<type>:<id>`, as `subject_of`
    role: int
    scope: Place = TENANT
    uid: int = NO_UID  # of a Unix account: a reused uid inherits nothing
    created: int = 0
    created_by: str = ""

    @property
    def grant(self) -> Grant:
        return Grant(self.role, self.scope)


@dataclass(frozen=True, slots=True)
class LoginSession:
    """The session of a refresh token. Each use gives a new token; a second use of one ends the session."""

    id: str
    subject: str
    uses: int = 0
    created: int = 0
    expires: int = 0  # ms
    source: str = ""  # address, as far as it is known


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session of the web console that was ended: its cookie stays refused."""

    id: str
    expires: int  # ms; from then on no cookie of it is valid


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenID Connect provider that identifies people. docs/reference/openid.md explains each field."""

    name: str
    issuer: str
    client: str  # the id of this server at the provider
    secret: str  # path of the file that holds the client's secret; read at each use
    address: str  # of this server's console, as browsers reach it
    scopes: tuple[str, ...] = ("openid", "profile")
    groups: str = "groups"  # claim that lists a person's groups
    email: str = "email"  # claim with a person's mail address
    uid: str = ""  # claim with the uid of a person's account on this machine; empty: none
    allowed: tuple[str, ...] = ()  # groups, one of which is required; empty: none is
    roles: tuple[tuple[str, int, str], ...] = ()  # group, id of a role, name of a project (empty: everywhere)

    @property
    def back(self) -> str:
        """Where the provider sends browsers."""
        return f"{self.address}/console/openid/back"

    @property
    def by(self) -> str:
        """The creator of what came from this provider."""
        return f"openid {self.issuer}"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one person may have in one project, or in all of them together; None: no limit."""

    subject: str  # name of the person, as in their jobs; empty: every person without a limit by name
    project: str  # id; empty: in all together
    running: int | None = None  # milli-GPUs at once
    waiting: int | None = None  # workloads that wait
    gpu_ms: int | None = None  # milli-GPU-ms within 30 days


def subject_of(kind: str, identity: str) -> str:
    return f"{kind}:{identity}"
