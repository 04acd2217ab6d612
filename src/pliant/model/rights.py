"""Who may do what: one table of permissions and roles, which the API's guard, lists and documentation read.

An administrator makes further roles from permission sets: each of their rights holds where it holds for a
system administrator, within the scope of the rule.

A role is given to a subject at a scope: the whole tenant, a department or a project; all rules of a subject
add up. A cell says where a right of the role holds:

T  in the whole tenant, by a rule for the tenant only
A  by a rule of the role at any scope; names of what the reader may not see are left out
S  within the scope of the rule and below it
H  within the scope, for the reader's own objects and for those that their owner has shared
O  within the scope, for the reader's own objects only
-  nowhere
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LETTERS = "-OHSAT"


@dataclass(frozen=True, slots=True)
class Permission:
    """The right to do something with one kind of thing."""

    resource: str
    action: str

    def __str__(self) -> str:
        return f"{self.resource}:{self.action}"

    @property
    def reads(self) -> bool:
        """True if nothing is changed by it."""
        return self.action == "read"


@dataclass(frozen=True, slots=True)
class Role:
    """A name for rights. Its id never changes."""

    id: int
    name: str
    about: str
    aliases: tuple[str, ...] = ()


SYSTEM = Role(
    1, "System administrator", "Everything, in the whole tenant.", ("admin", "system-administrator")
)
DEPARTMENT = Role(2, "Department administrator", "All of a department.", ("department-administrator",))
PROJECT = Role(3, "Project administrator", "All of a project but its quota.", ("project-administrator",))
EDITOR = Role(4, "Editor", "Projects, quotas and work.", ("editor",))
PRACTITIONER = Role(
    5,
    "AI practitioner",
    "Submits work and looks after it.",
    ("ai-practitioner", "researcher", "L1 researcher"),
)
DATA = Role(
    6, "Data & storage administrator", "Data sources and storage.", ("data-and-storage-administrator",)
)
DEPARTMENT_VIEWER = Role(7, "Department viewer", "Sees a department.", ("department-viewer",))
VIEWER = Role(8, "Viewer", "Sees, and changes nothing.", ("viewer",))
ROLES = (SYSTEM, DEPARTMENT, PROJECT, EDITOR, PRACTITIONER, DATA, DEPARTMENT_VIEWER, VIEWER)
"""The built-in roles, in the order of the table's columns."""

VIEWERS = frozenset({DEPARTMENT_VIEWER.id, VIEWER.id})
"""Roles that anyone who may write access rules may give, at or below the scope of the own rule."""

TABLE: Mapping[str, str] = {
    # work                    1234 5678
    "workloads:read": "SSSSSSSS",
    "workloads:create": "SSSSS---",
    "workloads:update": "SSSSS---",
    "workloads:delete": "SSSSS---",
    "workloads:logs": "SSSSS---",
    "workloads:files": "SSSSS---",
    "workloads:exec": "SOSOO---",
    "workloads:environment": "SOSOO---",
    "workloads:share": "OOOOO---",
    "queue:read": "AAAAAAAA",
    "what-if:read": "AAAAA--A",
    # what work is made of
    "assets:read": "SSSSSSSS",
    "assets:write": "SSSSS---",
    "data-sources:read": "SSSSSSSS",
    "data-sources:write": "SSSSSS--",
    "policies:read": "SSSSS-SS",
    "policies:write": "SSSS----",
    # who owns quota
    "projects:read": "SSSSSSSS",
    "projects:create": "SS-S----",
    "projects:update": "SSSS----",
    "projects:quota": "SS-S----",
    "projects:delete": "SS-S----",
    "departments:read": "SSSSSSSS",
    "departments:create": "T--T----",
    "departments:update": "T--T----",
    "departments:delete": "T--T----",
    "limits:read": "SSSSO-SS",
    "limits:write": "T-------",
    "reports:read": "AAAAA-AA",
    "usage:read": "SSSSO-SS",
    # machines and settings
    "clusters:read": "AAAAAAAA",
    "nodes:read": "AA-A---A",
    "nodes:update": "T-------",
    "nodepools:read": "AAAAAAAA",
    "nodepools:write": "T-------",
    "bookings:read": "AAAAAAAA",
    "bookings:write": "SSSS----",
    "topologies:read": "AA-A---A",
    "topologies:write": "T-------",
    "priorities:read": "AAAAAAAA",
    "priorities:write": "T-------",
    "settings:read": "AAAAAAAA",
    "settings:update": "T-------",
    "security-settings:read": "AAAA--AA",
    "security-settings:update": "T-------",
    "events:read": "TTTT--TT",
    # people and programs
    "users:read": "AA-A----",
    "users:write": "AA------",
    "users:bind": "T-------",
    "applications:read": "AAAA----",
    "applications:write": "AA------",
    "access-rules:read": "SSSS----",
    "access-rules:write": "SSSS----",
    "roles:read": "AAAA----",
    "roles:create": "T-------",
    "roles:update": "T-------",
    "roles:delete": "T-------",
    "access-keys:administer": "T-------",
    # the server
    "audit:read": "T-------",
    "server:read": "AAAAAAAA",
    "server:operate": "T-------",
    "replay:read": "T-------",
    # what every known identity may do
    "self:read": "AAAAAAAA",
    "self:write": "AAAAAAAA",
}
"""Permission -> a cell for each role."""

ON_A_BOX: Mapping[str, str] = {
    "workloads:update": "SSSSO---",
    "workloads:delete": "SSSSO---",
    "workloads:logs": "HHHHHH--",
    "workloads:files": "HHHHHH--",
    "workloads:exec": "OOOOO---",
    "workloads:environment": "OOOOO---",
    "nodes:read": "AAAAAAAA",
}
"""What differs where Unix users share one machine: no role has more rights than these over others' jobs."""

FOR_ALL = frozenset({"self:read", "self:write"})
"""Permissions that need no rule."""

OWN_WORK = frozenset(
    {"workloads:read", "workloads:update", "workloads:delete", "workloads:logs", "workloads:files"}
    | {"workloads:exec", "workloads:environment", "workloads:share"}
)
"""Permissions that the owner of a workload keeps, even without the rule by which it was submitted."""


_READS: Mapping[str, tuple[str, ...]] = {
    "workloads": (
        *("projects:read", "queue:read", "assets:read", "data-sources:read", "policies:read"),
        *("priorities:read", "clusters:read", "nodepools:read"),
    ),
    "assets": ("projects:read", "departments:read"),
    "data-sources": ("projects:read", "departments:read"),
    "policies": ("projects:read", "departments:read"),
    "projects": ("departments:read", "nodepools:read"),
    "departments": ("nodepools:read",),
    "limits": ("projects:read", "users:read"),
    "bookings": ("projects:read", "nodepools:read"),
    "nodepools": ("nodes:read",),
    "access-rules": ("roles:read", "users:read", "applications:read", "projects:read", "departments:read"),
}
"""Resource -> what one has to read to write it: a set with write permissions contains these, too."""


@dataclass(frozen=True, slots=True)
class PermissionSet:
    """What roles are made of: all rights about one kind of thing, or the right to read it."""

    id: str
    about: str
    rights: tuple[str, ...]  # in the order of TABLE


def _sets() -> Iterable[PermissionSet]:
    by_resource: dict[str, list[str]] = {}
    for right in TABLE:
        by_resource.setdefault(right.partition(":")[0], []).append(right)
    for resource, rights in by_resource.items():
        stem = "".join(part.title() for part in resource.split("-"))
        stem, read = stem[:1].lower() + stem[1:], f"{resource}:read"
        if rights != [read]:
            held = {*rights, *_READS.get(resource, ())}
            about = f"All rights about {resource}, and to read what they need."
            yield PermissionSet(f"{stem}EditAccess", about, tuple(it for it in TABLE if it in held))
        if read in rights:
            yield PermissionSet(f"{stem}ReadAccess", f"To read {resource}.", (read,))


SETS: Mapping[str, PermissionSet] = {it.id: it for it in _sets()}
"""The permission sets by id."""


def permission(text: str) -> Permission:
    """The permission of that name. Raises KeyError."""
    if text not in TABLE:
        raise KeyError(text)
    resource, _, action = text.partition(":")
    return Permission(resource, action)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is. Both empty: the tenant."""

    department: str = ""  # id
    project: str = ""  # id

    @property
    def kind(self) -> str:
        return "project" if self.project else "department" if self.department else "tenant"

    def covers(self, other: "Place") -> bool:
        """True if the other is in it or is it."""
        if self.project:
            return other.project == self.project
        return not self.department or other.department == self.department


TENANT = Place()


@dataclass(frozen=True, slots=True)
class Grant:
    """A role within a scope, as one access rule gives it."""

    role: int
    scope: Place = TENANT
    rights: frozenset[str] | None = None  # of a role that an administrator made; None: as TABLE has them


_COLUMN = {role.id: at for at, role in enumerate(ROLES)}


def cell(role: int, right: str, box: bool = False) -> str:
    """The letter that says where a right of that role holds."""
    row = ON_A_BOX.get(right, TABLE[right]) if box else TABLE[right]
    return row[_COLUMN[role]] if role in _COLUMN else "-"


def _letter(grant: Grant, right: str, box: bool) -> str:
    if grant.rights is None:
        return cell(grant.role, right, box)
    return cell(SYSTEM.id, right, box) if right in grant.rights else "-"


def may(
    grants: Iterable[Grant],
    right: str,
    place: Place | None = None,
    *,
    own: bool = False,
    shared: bool = False,
    box: bool = False,
) -> bool:
    """True if a right holds for something in that place; without a place: if it holds anywhere.

    On a shared machine (`box`) every user has an account and may have own work, with or without rules.
    """
    if right in FOR_ALL or (right in OWN_WORK and (own or (box and place is None))):
        return True
    for grant in grants:
        inside = place is None or grant.scope.covers(place)
        match _letter(grant, right, box):
            case "T":
                holds = grant.scope == TENANT
            case "A":
                holds = True
            case "S":
                holds = inside
            case "H":
                holds = inside and (own or shared or place is None)
            case "O":
                holds = inside and (own or place is None)
            case _:
                holds = False
        if holds:
            return True
    return False


def may_grant(grants: Iterable[Grant], wanted: Grant, box: bool = False) -> bool:
    """True if a holder of `grants` may give `wanted`: at most what they have themselves."""
    own = [
        grant
        for grant in grants
        if grant.scope.covers(wanted.scope) and _letter(grant, "access-rules:write", box) == "S"
    ]
    return bool(own) and (wanted.role in VIEWERS or has_all(own, wanted, box))


def has_all(grants: Iterable[Grant], wanted: Grant, box: bool = False) -> bool:
    """True if `grants` give every right of `wanted`."""
    own = [grant for grant in grants if grant.scope.covers(wanted.scope)]
    return all(
        any(_reach(grant, right, box) >= reach for grant in own)
        for right in TABLE
        if (reach := _reach(wanted, right, box))
    )


def _reach(grant: Grant, right: str, box: bool) -> int:
    """The reach of a right of a grant, wider is larger; 0 for a tenant-only right at a smaller scope."""
    letter = _letter(grant, right, box)
    return 0 if letter == "T" and grant.scope != TENANT else LETTERS.index(letter)


def role_named(text: str) -> Role | None:
    """A built-in role by name, alias or id, in any case; None if there is none."""
    plain = text.strip().casefold()
    for role in ROLES:
        names = [str(role.id), role.name, *role.aliases]
        if plain in [name.casefold() for name in names]:
            return role
    return None
