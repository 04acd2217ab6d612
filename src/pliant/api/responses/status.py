"""The status of a workload or a task, in the words of Run:ai's v1 command line."""

from pliant.control.board.view import WorkloadView
from pliant.model.workload import Exit, Kind, Phase, Task, TaskPhase, Workload

_STATUS = {
    Phase.CREATING: "Pending",
    Phase.PENDING: "Pending",
    Phase.RESUMING: "Pending",
    Phase.INITIALIZING: "ContainerCreating",
    Phase.RUNNING: "Running",
    Phase.UPDATING: "Pending",
    Phase.DEGRADED: "Pending",
    Phase.STOPPING: "Terminating",
    Phase.TERMINATING: "Terminating",
    Phase.DELETING: "Terminating",
    Phase.STOPPED: "Suspended",
    Phase.COMPLETED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.UNKNOWN: "Unknown",
}
_POD_STATUS = {
    TaskPhase.WAITING: "Pending",
    TaskPhase.ORDERED: "ContainerCreating",
    TaskPhase.RUNNING: "Running",
    TaskPhase.STOPPING: "Terminating",
    TaskPhase.SUCCEEDED: "Succeeded",
    TaskPhase.FAILED: "Failed",
}


def status_of(view: WorkloadView, now: int) -> str:
    """The status of a workload, in the words of the v1 command line."""
    workload = view.workload
    if workload.phase is Phase.FAILED and workload.cancelled_by:
        return "Cancelled"
    if workload.phase is Phase.UPDATING:
        phases = {task.phase for task in view.tasks}
        if TaskPhase.STOPPING in phases:
            return "Terminating"
        if TaskPhase.ORDERED in phases:
            return "ContainerCreating"
    if workload.phase is Phase.PENDING and any(_backs_off(task, now) for task in view.tasks):
        return "CrashLoopBackOff" if workload.kind is Kind.WORKSPACE else "Error"
    return _STATUS[workload.phase]


def _backs_off(task: Task, now: int) -> bool:
    waits = task.phase is TaskPhase.WAITING and task.retry_at is not None and task.retry_at > now
    return waits and task.failures > 0


def pod_status_of(workload: Workload, task: Task, end: Exit | None, now: int) -> str:
    """The same for one task; `end`: how its newest attempt ended."""
    if workload.phase.final and task.phase is TaskPhase.WAITING:  # it had been stopped, or was at the end
        return "Succeeded" if end is not None and end.code == 0 else "Stopped"
    if _backs_off(task, now):
        return "CrashLoopBackOff" if workload.kind is Kind.WORKSPACE else "Error"
    return _POD_STATUS[task.phase]
