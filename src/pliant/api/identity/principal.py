"""Who makes a request, and what rules give to them."""

from dataclasses import dataclass

from pliant.control.board.view import Board, WorkloadView
from pliant.model.identity import Account
from pliant.model.origin import Owner
from pliant.model.rights import FOR_ALL, SYSTEM, TENANT, Grant, Place, may
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Workload

PASSWORD = "password"
"""What somebody may do whose password was given by somebody else: set another, and nothing before."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Rights are looked up for each request: what is taken away is gone with the next one."""

    user: str  # name for people
    subject: str = ""  # `<type>:<id>`, as pliant.model.identity.subject_of
    grants: tuple[Grant, ...] = ()
    account: Account | None = None  # whose processes its jobs are; None: none is bound
    owner: bool = False  # has the token itself, and may say in whose name it submits
    admin: bool = False  # is told the names of all projects
    attempt: str = ""  # `<workload>/<task>/<number>`; set for one, which sees nothing but what concerns it
    via: str = ""  # id of the session or key; empty: the socket, or the server's own token
    only: str = ""  # read | submit: what a key is bound to; PASSWORD: to set one; empty: nothing
    vouched: bool = False  # the owner of the state folder has spoken for that name
    box: bool = False  # the server is shared by accounts of the machine

    def may(self, right: str, place: Place | None = None, *, own: bool = False, shared: bool = False) -> bool:
        """As pliant.model.rights.may; a key that is bound to less may less."""
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
        """True if it may know that there is such a workload."""
        return self.all_seeing or self.may_with(
            "workloads:read", view if isinstance(view, Workload) else view.workload, board
        )

    @property
    def person(self) -> str:
        """Whose its jobs are, for limits and sums: on a box the account's, by which way ever it came."""
        return self.account.name if self.box and self.account is not None else self.user

    @property
    def all_seeing(self) -> bool:
        """True for anyone who may read all of the tenant."""
        return any(
            grant.scope == TENANT and (grant.rights is None or "workloads:read" in grant.rights)
            for grant in self.grants
        )

    def owns(self, workload: Workload) -> bool:
        """On a box the account of the machine counts, by which way ever its user has come."""
        owner = workload.owner
        if owner is None:
            return not self.box and workload.user == self.user and self.owner
        if self.box and self.account is not None:
            return (owner.uid, owner.name) == (self.account.uid, self.account.name)
        return bool(self.subject) and owner.subject == self.subject

    def shares(self, workload: Workload) -> bool:
        """True if the owner lets it read logs and files."""
        return bool({"project", f"user:{self.user}", f"user:{self.person}"} & {*workload.shared})

    def inside(self, workload: Workload) -> bool:
        """True if it may be told what runs in a job and where it listens: on a box that is its owner's."""
        return not self.box or self.owns(workload)

    def as_owner(self) -> Owner | None:
        """What a workload that it submits is marked with; None if it has no account here."""
        return Owner(self.subject, self.account.uid, self.account.name) if self.account is not None else None


ALL = (Grant(SYSTEM.id, TENANT),)
"""What the owner of a state folder has."""


def place_of(board: Board, project: str) -> Place:
    """Where a project is, by id; one that is gone is in no department."""
    found = board.projects.get(project)
    department = found.queue.department if found is not None and isinstance(found.queue, Project) else ""
    return Place(department or "-", project)


def unit_place(unit: Project | Department) -> Place:
    return Place(unit.department, unit.id) if isinstance(unit, Project) else Place(unit.id)
