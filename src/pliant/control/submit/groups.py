"""Makes the task groups of a submission: the number of tasks, the core, and the leader."""

from dataclasses import replace

from pliant.control.errors import BadRequest
from pliant.control.submit.grouping import MOST_TASKS, declared, of_its_own
from pliant.control.submit.submission import (
    CPU_ALONE,
    MEMORY_ALONE,
    Distribution,
    Submission,
    launch_of,
    request_of,
)
from pliant.control.submit.variables import Sealed
from pliant.model.quantity import counted
from pliant.model.workload import ELASTICDL, Kind, Request, TaskGroup

LEADERS = {"PyTorch": "master", "TF": "master", "XGBoost": "master", "MPI": "launcher", "JAX": ""}
LEADERS[ELASTICDL] = "master"
"""The name of the first task by framework; JAX has workers only."""

WORKER = "worker"
IDLE = ("sleep", "infinity")
"""The command of an MPI worker: it only holds its place, and the launcher starts the ranks inside it."""


def groups_of(ask: Submission, request: Request) -> tuple[TaskGroup, ...]:
    """The groups in order, leader first; a plain submission is one group of one task."""
    if ask.elastic:
        _check_elastic(ask, request)
    if runs := _runs(ask, request):
        return (runs,)
    if ask.kind is Kind.INFERENCE:
        return (_replicas(ask, request),)
    if ask.distribution is not None:
        return _distributed(ask, ask.distribution, request)
    return (TaskGroup("task", request, elastic=ask.elastic, live_resize=ask.live_resize),)


def leader_of(ask: Submission) -> str:
    """Name of the group whose success completes the workload; empty: the whole core must succeed."""
    chosen = ask.distribution
    if chosen is None or not chosen.lead or chosen.groups:
        return ""
    return LEADERS[chosen.framework]


def variables_of(ask: Submission) -> Sealed:
    """The values of its variables by task group; under "" those for all groups without their own."""
    found = {"": ask.variables}
    if (chosen := ask.distribution) is not None:
        found |= {group.name: group.each.variables for group in chosen.groups}
        if chosen.leader is not None:
            found[leader_of(ask)] = chosen.leader.variables
    return found


def _check_elastic(ask: Submission, request: Request) -> None:
    if ask.distribution is not None:
        raise BadRequest(
            "A distributed workload does not grow by GPUs of one task.",
            "Leave out --elastic; let the number of workers vary with --min-replicas and --max-replicas.",
            field="spec.elastic",
        )
    if ask.kind is Kind.WORKSPACE:
        raise BadRequest(
            "An interactive workload cannot be elastic: it is never shrunk.",
            "Leave out --elastic, or submit a training.",
        )
    if request.devices == 0:
        raise BadRequest("An elastic workload needs at least 1 GPU.", "Request it with -g.")
    if request.shared:
        raise BadRequest("A fraction of a GPU cannot be elastic.", "Request whole GPUs, or omit --elastic.")


def _runs(ask: Submission, request: Request) -> TaskGroup | None:
    """The group of independent tasks: each is a portion of its own, without a core. None for a single run."""
    runs, at_once = 1 if ask.runs is None else ask.runs, 1 if ask.at_once is None else ask.at_once
    if not 1 <= runs <= MOST_TASKS or at_once < 1:
        raise BadRequest(
            f"Invalid number of runs {runs}, {at_once} at once.", f"Request 1 to {MOST_TASKS} of each."
        )
    if at_once > runs:
        raise BadRequest(
            f"A parallelism of {at_once} is above {counted(runs, 'completion')}.",
            "Set completions, or a lower parallelism.",
        )
    if runs == 1:
        return None
    for wrong, what in (
        (ask.elastic, "An elastic workload"),
        (ask.kind is Kind.WORKSPACE, "An interactive workload"),
        (ask.kind is Kind.INFERENCE, "An inference"),
        (ask.distribution is not None, "A distributed workload"),
        (ask.restart, "A workload that is always started again"),
    ):
        if wrong:
            raise BadRequest(f"{what} has one run.", "Leave out completions and parallelism.")
    return TaskGroup("task", request, min=0, wanted=runs, max=runs, at_once=at_once)


def _replicas(ask: Submission, request: Request) -> TaskGroup:
    """The group of an inference, which serves as soon as one replica runs."""
    if not 1 <= ask.replicas <= MOST_TASKS:
        raise BadRequest(
            f"Invalid number of replicas {ask.replicas}.",
            f"Use 1 to {MOST_TASKS}; scaling to zero is not supported yet.",
        )
    if ask.elastic:
        raise BadRequest("An inference cannot be elastic.", "Leave out --elastic.")
    return TaskGroup("replica", request, min=1, wanted=ask.replicas, max=ask.replicas)


def _distributed(ask: Submission, chosen: Distribution, request: Request) -> tuple[TaskGroup, ...]:
    if chosen.groups:
        return declared(chosen)
    if chosen.framework not in LEADERS:
        raise BadRequest(
            f"There is no framework {chosen.framework!r}.", f"Choose one of {', '.join(LEADERS)}."
        )
    if not 1 <= chosen.slots <= MOST_TASKS:
        raise BadRequest(f"Invalid number of ranks per worker {chosen.slots}.", "Use 1 or more.")
    least, most = _bounds(chosen)
    hands = None
    if chosen.framework == "MPI":
        hands = replace(ask.launch, command=IDLE, args=(), tty=False, stdin=False)
    workers = TaskGroup(WORKER, request, min=least, wanted=chosen.workers, max=most, launch=hands)
    name = leader_of(ask)
    if not name:
        if chosen.leader is not None:
            raise BadRequest("There is no master, so it cannot be described.", "Leave out the master's part.")
        return (workers,)
    lead, launch, own = request, None, TaskGroup(name, request)
    if chosen.framework == "MPI":
        lead = Request(cpu=CPU_ALONE, memory=MEMORY_ALONE)
    if chosen.leader is not None:
        lead, launch = request_of(chosen.leader), launch_of(chosen.leader)
        own = of_its_own(own, chosen.leader)
    return (replace(own, request=lead, launch=launch), workers)


def _bounds(chosen: Distribution) -> tuple[int, int]:
    """(fewest workers with which it runs, most workers)."""
    if not 1 <= chosen.workers <= MOST_TASKS:
        raise BadRequest(f"Invalid number of workers {chosen.workers}.", f"Use 1 to {MOST_TASKS}.")
    alone = chosen.framework == ELASTICDL  # the master runs without workers too
    least = (0 if alone else chosen.workers) if chosen.least is None else chosen.least
    most = chosen.workers if chosen.most is None else chosen.most
    if (least, most) != (chosen.workers, chosen.workers) and chosen.framework not in ("PyTorch", ELASTICDL):
        raise BadRequest(
            f"The number of workers of {chosen.framework} cannot vary.",
            "Leave out minReplicas and maxReplicas; they are for PyTorch and ElasticDL.",
        )
    if not (0 if alone else 1) <= least <= chosen.workers <= most <= MOST_TASKS:
        raise BadRequest(
            f"Worker counts must satisfy min ≤ requested ≤ max; got {least}, {chosen.workers}, {most}.",
            f"These are minReplicas (1 or more), workers and maxReplicas, at most {MOST_TASKS}.",
        )
    return least, most
