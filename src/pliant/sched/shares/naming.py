"""Names with their keys, for reasons and cures."""

from pliant.model.reason import Named
from pliant.model.tenancy import Project, Queue
from pliant.sched.shares.standings import queue_of
from pliant.sched.world.state import World


def workload_named(world: World, wid: str) -> Named:
    """A workload of the world."""
    row = world.workloads[wid]
    project = world.projects.get(row.project)
    return Named("workload", wid, row.name, row.project, project.name if project is not None else row.project)


def named_at(world: World, key: str) -> Named:
    """The project or department behind a key of the queue tree."""
    return queue_named(queue_of(world, key))


def queue_named(queue: Queue) -> Named:
    if isinstance(queue, Project):
        return Named("project", queue.id, queue.name, queue.id)
    return Named("department", queue.id, queue.name)
