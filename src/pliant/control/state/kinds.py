"""Every kind of row that is stored: those of the world, and those that the loop keeps beside it."""

from pliant.control.ports import Remembered
from pliant.model.machine import Cluster
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.workload import Attempt
from pliant.sched.world.rows import WORLD_ROWS, RowKind, RowKinds

STORED_ROWS = RowKinds(
    (
        RowKind(Cluster, "clusters", ("uuid",)),
        *WORLD_ROWS.kinds,
        RowKind(Attempt, "attempts", ("id.workload", "id.task", "id.number")),
        RowKind(Progress, "progresses", ("workload",)),
        RowKind(PriorityClass, "priority_classes", ("name",)),
        RowKind(Remembered, "remembered", ("key",)),
    )
)
