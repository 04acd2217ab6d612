"""The pod names of the tasks of a workload."""

from collections.abc import Iterable, Sequence

from pliant.model.workload import ELASTICDL, Attempt, Task, Workload


def pod_names(workload: Workload, tasks: Sequence[Task], attempts: Iterable[Attempt]) -> dict[str, str]:
    """Pod names by task. `attempts`: all of the workload; only ElasticDL's names depend on them.

    An ElasticDL worker that starts again becomes a new pod with the next number; one that waits to start
    again already has that number.
    """
    if workload.framework != ELASTICDL:
        return {task.name: f"{workload.name}-{task.name}" for task in tasks}
    begun = sorted(
        (row for row in attempts if not _leads(workload, row.id.task)),
        key=lambda row: (row.ordered, len(row.id.task), row.id.task, row.id.number),
    )
    numbers = {(row.id.task, row.id.number): at for at, row in enumerate(begun)}
    names, following = {}, len(begun)
    for task in tasks:
        if _leads(workload, task.name):
            names[task.name] = f"elasticdl-master-{workload.name}"
            continue
        number = numbers.get((task.name, task.attempt))
        goes_on = not (task.phase.live or task.phase.over or workload.phase.final)
        if number is None or goes_on:
            number, following = following, following + 1
        names[task.name] = f"elasticdl-worker-{workload.name}-{number}"
    return names


def _leads(workload: Workload, task: str) -> bool:
    return task.rpartition("-")[0] == workload.ends_with
