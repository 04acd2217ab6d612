"""The table of the kinds of rows: what identifies a row, the order of the kinds, where rows are held.

Code that puts, drops, copies, stores or records rows reads this table: a kind that nothing is derived from
is one entry here. How a row is written as text follows from the types of its class and needs no entry.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeGuard, TypeVar

from pliant.model.booking import Booking
from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import Node, NodePool
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Task, Workload

T = TypeVar("T")

Row = Department | Project | NodePool | Topology | Node | Workload | Task | PastUse | Disruptions | Booking
"""A row of the world. A test holds the table below equal to this."""


class UnknownKind(TypeError):
    """A value is of no kind that the table names."""


@dataclass(frozen=True, slots=True)
class RowKind(Generic[T]):
    """One kind of row."""

    row: type[T]
    slot: str  # name of the mapping that holds them, and of their table in the store
    identity: tuple[str, ...]  # attributes; two rows that are equal in them are the same thing
    held_by: str = ""  # attribute that is the key in the mapping, if it is not the identity
    key: Callable[[T], Hashable] = field(init=False, repr=False, compare=False)  # the identity of a row

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", attrgetter(*self.identity))


class RowKinds:
    """Kinds in an order in which rows may be put: what others refer to comes first."""

    def __init__(self, kinds: Iterable[RowKind[Any]]) -> None:
        self.kinds = tuple(kinds)
        self._by_class: Mapping[type, RowKind[Any]] = {kind.row: kind for kind in self.kinds}

    def has(self, row: object) -> bool:
        return type(row) in self._by_class

    def of(self, row: object) -> RowKind[Any]:
        """The kind of a row. Raises UnknownKind."""
        found = self._by_class.get(type(row))
        if found is None:
            *known, last = (kind.row.__name__ for kind in self.kinds)
            raise UnknownKind(f"a {type(row).__name__} is no row; there are {', '.join(known)} and {last}")
        return found

    def identity(self, row: object) -> tuple[str, Hashable]:
        """Equal for two rows of any kinds that are the same thing. Raises UnknownKind."""
        kind = self.of(row)
        return kind.slot, kind.key(row)


WORLD_ROWS = RowKinds(
    (
        RowKind(NodePool, "pools", ("id",), held_by="name"),
        RowKind(Topology, "topologies", ("name",)),
        RowKind(Department, "departments", ("id",)),
        RowKind(Project, "projects", ("id",)),
        RowKind(PastUse, "past_uses", ("project", "pool")),
        RowKind(Disruptions, "disruptions", ("project",)),
        RowKind(Node, "nodes", ("name",)),
        RowKind(Booking, "bookings", ("id",)),
        RowKind(Workload, "workloads", ("id",)),
        RowKind(Task, "tasks", ("workload", "name")),
    )
)


def of_world(row: object) -> TypeGuard[Row]:
    return WORLD_ROWS.has(row)
