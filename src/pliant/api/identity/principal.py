"""Who makes a request, and which rights the rules give to them."""

from dataclasses import dataclass

from pliant.control.board.view import Board, WorkloadView
from pliant.model.identity import APPLICATION, Account
from pliant.model.origin import Owner
from pliant.model.rights import FOR_ALL, SYSTEM, TENANT, Grant, Place, may
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Workload

PASSWORD = "password"
"""Limit of a user whose password an administrator has set: the user must set another one first."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of one request: rights are looked up each time, so a revoked right is gone with the next."""

    user: str  # name for people
    subject: str = ""  # `<type>:<id>`, as pliant.model.identity.subject_of
    grants: tuple[Grant, ...] = ()
    account: Account | None = None  # as which its jobs run; None: none is bound
    owner: bool = False  # has the server's token or account: may submit in another name
    admin: bool = False  # may read the names of all projects
    attempt: str = ""  # `<workload>/<task>/<number>` of an attempt, which sees only what concerns it
    via: str = ""  # id of the session or key; empty: the socket, or the server's own token
    only: str = ""  # read | submit: limit of a key; PASSWORD: must set a password; empty: no limit
    vouched: bool = False  # a holder of the server's token has vouched for that name
    box: bool = False  # the server is shared by accounts of the machine

    def may(self, right: str, place: Place | None = None, *, own: bool = False, shared: bool = False) -> bool:
        """As pliant.model.rights.may, within the limit of `only`."""
        if self.only == PASSWORD:
            return right in FOR_ALL
        if self.only == "read" and not right.endswith(":read"):
            return False
        if self.only == "submit" and right != "workloads:create" and not right.endswith(":read"):
            return False
        return may(self.grants, right, place, own=own, shared=shared, box=self.box)

    def may_with(self, right: str, workload: Workload, board: Board) -> bool:
        """The same for a workload."""
        return self.may(
            right,
            place_of(board, workload.project),
            own=self.owns(workload),
            shared=self.shares(workload),
        )

    def sees(self, view: WorkloadView | Workload, board: Board) -> bool:
        """True if the principal may know that the workload exists."""
        return self.all_seeing or self.may_with(
            "workloads:read", view if isinstance(view, Workload) else view.workload, board
        )

    @property
    def person(self) -> str:
        """The name its jobs count for in limits and sums: on a box the account's, by any way of login."""
        return self.account.name if self.box and self.account is not None else self.user

    @property
    def all_seeing(self) -> bool:
        """True if it may read all workloads of the tenant."""
        return any(
            grant.scope == TENANT and (grant.rights is None or "workloads:read" in grant.rights)
            for grant in self.grants
        )

    def owns(self, workload: Workload) -> bool:
        """True if the workload is its own. On a box the machine's account counts, by any way of login."""
        owner = workload.owner
        if owner is None:
            return not self.box and workload.user == self.user and self.owner
        if self.box and self.account is not None:
            return (owner.uid, owner.name) == (self.account.uid, self.account.name)
        return bool(self.subject) and owner.subject == self.subject

    def shares(self, workload: Workload) -> bool:
        """True if the owner lets it read logs and files. An application is no user, whatever its name."""
        names = {self.user, self.person}
        if self.subject.startswith(f"{APPLICATION}:"):
            names = {self.account.name} if self.account is not None else set()
        return bool({"project", *(f"user:{name}" for name in names)} & {*workload.shared})

    def inside(self, workload: Workload) -> bool:
        """True if it may read what runs in a job and where it listens: on a box only the job's owner."""
        return not self.box or self.owns(workload)

    def as_owner(self) -> Owner | None:
        """The owner that its workloads are marked with; None if it has no account here."""
        return Owner(self.subject, self.account.uid, self.account.name) if self.account is not None else None


ALL = (Grant(SYSTEM.id, TENANT),)
"""The grants of the owner of a state folder."""


def place_of(board: Board, project: str) -> Place:
    """The place of a project, by id; a deleted one is in no department."""
    found = board.projects.get(project)
    department = found.queue.department if found is not None and isinstance(found.queue, Project) else ""
    return Place(department or "-", project)


def unit_place(unit: Project | Department) -> Place:
    return Place(unit.department, unit.id) if isinstance(unit, Project) else Place(unit.id)
