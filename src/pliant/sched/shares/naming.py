"""Names with their keys, for reasons and cures."""

from pliant.model.reason import Named
from pliant.model.tenancy import Project, Queue
from pliant.sched.world.claims import Claims


def workload_named(world: Claims, wid: str) -> Named:
    """A workload of the world."""
    row = world.workloads[wid]
    project = world.projects.get(row.project)
    return Named("workload", wid, row.name, row.project, project.name if project is not None else row.project)


def named_at(world: Claims, key: str) -> Named:
    """The project or department behind a key of the queue tree."""
    return queue_named(world.queue_of(key))


def queue_named(queue: Queue) -> Named:
    if isinstance(queue, Project):
        return Named("project", queue.id, queue.name, queue.id)
    return Named("department", queue.id, queue.name)
