"""`training pytorch submit` and its kin, `submit-mpi`, `submit-dist`: workloads of several tasks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pliant.cli.lazy import LazyGroup, TailCommand, tail
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import submission, v1, v2

if TYPE_CHECKING:
    from pliant.wire.submission import AnySubmission, Distributed, Spec

_Function = TypeVar("_Function", bound=Callable[..., Any])

_COUNT = click.IntRange(1)
_COMPUTE = (
    "gpu_devices_request",
    "gpu_request_type",
    "gpu_portion_request",
    "gpu_portion_limit",
    "gpu_memory_request",
    "gpu_memory_limit",
    "cpu_core_request",
    "cpu_memory_request",
)
"""Options of which typed_submit makes what a task asks for."""


def _decorated(function: _Function, *decorators: Callable[[Any], Any]) -> _Function:
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def _all(decorators: Sequence[Callable[[Any], Any]]) -> Callable[[_Function], _Function]:
    return lambda function: _decorated(function, *decorators)


def _workers(function: _Function) -> _Function:
    policies = click.Choice(["Running", "All", "None"], case_sensitive=False)
    return _decorated(
        function,
        click.option("--workers", type=_COUNT, metavar="N", help="Workers beside the master; 1 if not said."),
        click.option(
            "--clean-pod-policy", type=policies, help="Accepted; what still runs at the end is stopped."
        ),
    )


def _bounds(function: _Function) -> _Function:
    return _decorated(
        function,
        click.option(
            "--min-replicas", type=_COUNT, metavar="N", help="Workers without which it does not run."
        ),
        click.option(
            "--max-replicas", type=_COUNT, metavar="N", help="Workers it may have while GPUs are idle."
        ),
    )


_no_master = click.option("--no-master", is_flag=True, help="Workers only.")
_slots = click.option(
    "--slots-per-worker", type=_COUNT, metavar="N", help="Ranks in each worker; 1 if not said."
)


def _master(function: _Function) -> _Function:
    return _decorated(
        function,
        _no_master,
        click.option(
            "--master-command", metavar="TEXT", help="The master's command, if another than the workers'."
        ),
        click.option("--master-args", metavar="TEXT", help="The master's arguments."),
        click.option("--master-priority", metavar="NAME", help="Its priority, if another than the workers'."),
        click.option("--master-gpu-devices-request", metavar="N", help="The master's GPUs."),
        click.option("--master-gpu-portion-request", metavar="PART", help="Part of each of them."),
        click.option("--master-gpu-memory-request", metavar="AMOUNT", help="Memory of each of them."),
        click.option("--master-cpu-core-request", metavar="CORES", help="The master's CPU cores."),
        click.option("--master-cpu-memory-request", metavar="AMOUNT", help="The master's main memory."),
    )


def _distributed(body: AnySubmission, framework: str, given: Mapping[str, Any]) -> Distributed:
    """The submission of one task made one of several."""
    fields = {
        "numWorkers": given.get("workers") or given.get("processes") or 1,
        "minReplicas": given.get("min_replicas"),
        "maxReplicas": given.get("max_replicas"),
        "slotsPerWorker": given.get("slots_per_worker"),
        "cleanPodPolicy": given.get("clean_pod_policy"),
    }
    said = {field: value for field, value in fields.items() if value is not None}
    spec = {**body["spec"], "distributedFramework": framework, **said}
    return cast("Distributed", {**body, "spec": spec, **_master_spec(given)})


def _master_spec(given: Mapping[str, Any]) -> Distributed:
    """The parts of the body that describe the master; empty: it is like the workers."""
    prefix = "master_"
    said = {
        key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix) and value
    }
    if given.get("no_master"):
        if said:
            raise click.UsageError("--no-master and options of the master exclude each other.")
        return {"masterSpecSameAsWorker": False}
    if not said:
        return {}
    spec: Spec = {}
    if priority := said.pop("priority", None):
        spec["priorityClass"] = priority
    for key in ("command", "args"):
        if text := said.pop(key, None):
            try:
                spec |= submission.argv(**{key: shlex.split(text)})
            except ValueError as error:
                raise click.UsageError(f"--master-{key}: {error}.") from error
    if said:
        unsaid = dict.fromkeys(_COMPUTE)
        spec["compute"] = v2.compute_of(unsaid | said)
    return {"masterSpecSameAsWorker": False, "masterSpec": spec}


def _second(framework: str, *more: Callable[[Any], Any]) -> click.Command:
    """`training FRAMEWORK submit`."""

    @click.command("submit", cls=TailCommand, short_help=f"Submit a {framework} workload.")
    @v2.options
    @_all(more)
    @click.pass_context
    @pass_session
    def command(session: Session, ctx: click.Context, **given: Any) -> int | None:
        """Submit a workload of several tasks: its core starts at once or not at all. Words after `--` are its
        arguments, with -c its command."""
        body = _distributed(v2.request(session, given, tail(ctx)), framework, given)
        return submission.finish(session, "Distributed", body, given)

    return command


def _first(name: str, framework: str, *more: Callable[[Any], Any]) -> click.Command:
    """`submit-dist FRAMEWORK`, `submit-mpi`."""

    @click.command(name, cls=v1.SubmitCommand, short_help=f"Submit a {framework} job.", epilog=v1.EPILOG)
    @v1.options
    @_all(more)
    @click.pass_context
    @pass_session
    def command(session: Session, ctx: click.Context, **given: Any) -> int | None:
        """Submit a job of several tasks: its core starts at once or not at all."""
        body, _ = v1.request(session, given, tail(ctx))
        v1.note_spelling(session, ctx, given, body)
        return v1.finish(session, "Distributed", _distributed(body, framework, given), given)

    return command


_processes = click.option(
    "--processes", type=_COUNT, metavar="N", help="Workers with one process each; 1 if not said."
)

pytorch = _second("PyTorch", _workers, _bounds, _master)
tensorflow = _second("TF", _workers, _master)
xgboost = _second("XGBoost", _workers, _master)
jax = _second("JAX", _workers)
mpi = _second("MPI", _workers, _slots)

submit_mpi = _first("submit-mpi", "MPI", _processes, _slots)
dist_mpi = _first("mpi", "MPI", _processes, _slots)
dist_pytorch = _first("pytorch", "PyTorch", _workers, _bounds, _no_master)
dist_tf = _first("tf", "TF", _workers, _no_master)
dist_xgboost = _first("xgboost", "XGBoost", _workers, _no_master)

submit_dist = LazyGroup(
    {
        "Frameworks": {
            "pytorch": "pliant.cli.submit.distributed:dist_pytorch",
            "mpi": "pliant.cli.submit.distributed:dist_mpi",
            "tf": "pliant.cli.submit.distributed:dist_tf",
            "xgboost": "pliant.cli.submit.distributed:dist_xgboost",
        }
    },
    name="submit-dist",
    help="Submit a job of several tasks.",
)
