"""`training FRAMEWORK submit`, `submit-mpi`, `submit-dist`: workloads of several tasks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from pliant.cli.lazy import LazyGroup, tail
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import submission, v1, v2
from pliant.cli.submit.grouped import GroupedCommand, NoEffect
from pliant.cli.submit.options import Option, decorated, read

if TYPE_CHECKING:
    from pliant.wire.submission import AnySubmission, Distributed, Spec

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
"""Options that v2.compute_of reads."""

_WORKERS = Option(
    "numWorkers", ("--workers",), "N", "Number of workers besides the master (default: 1).", type=_COUNT
)
_PROCESSES = Option(
    "numWorkers", ("--processes",), "N", "Number of workers, with one process each (default: 1).", type=_COUNT
)
_PROCESSES_OR_WORKERS = _PROCESSES._replace(flags=("--processes", "--workers"))
_CLEAN = Option(
    "cleanPodPolicy",
    ("--clean-pod-policy",),
    None,
    "Accepted; tasks that still run at the end are stopped.",
    type=click.Choice(["Running", "All", "None"], case_sensitive=False),
    cls=NoEffect,
)
_LEAST = Option("minReplicas", ("--min-replicas",), "N", "Minimum number of workers.", type=_COUNT)
_MOST = Option(
    "maxReplicas", ("--max-replicas",), "N", "Maximum number of workers, on idle GPUs.", type=_COUNT
)
_SLOTS = Option(
    "slotsPerWorker", ("--slots-per-worker",), "N", "Ranks in each worker (default: 1).", type=_COUNT
)
_NO_MASTER = click.option("--no-master", is_flag=True, help="Run workers only, without a master.")
_MASTER = (
    _NO_MASTER,
    *(
        click.option(f"--master-{name}", metavar=metavar, help=about)
        for name, metavar, about in (
            ("command", "TEXT", "Command of the master (default: the workers')."),
            ("args", "TEXT", "Arguments of the master."),
            ("priority", "NAME", "Priority of the master (default: the workers')."),
            ("gpu-devices-request", "N", "GPUs of the master."),
            ("gpu-portion-request", "PART", "Fraction of each GPU of the master."),
            ("gpu-memory-request", "AMOUNT", "Memory of each GPU of the master."),
            ("cpu-core-request", "CORES", "CPU cores of the master."),
            ("cpu-memory-request", "AMOUNT", "Main memory of the master."),
        )
    ),
)


def _distributed(
    body: AnySubmission, framework: str, more: Sequence[Any], given: Mapping[str, Any]
) -> Distributed:
    """The submission of one task, extended to several tasks."""
    spec = {**body["spec"], "distributedFramework": framework, "numWorkers": 1, **read(more, given)}
    return cast("Distributed", {**body, "spec": spec, **_master_spec(given)})


def _master_spec(given: Mapping[str, Any]) -> Distributed:
    """The parts of the body about the master; {} if it is like the workers. Raises UsageError."""
    prefix = "master_"
    said = {
        key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix) and value
    }
    if given.get("no_master"):
        if said:
            raise click.UsageError("--no-master excludes the --master-* options.")
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


def _second(framework: str, *more: Any) -> click.Command:
    """The command `training FRAMEWORK submit`."""

    @click.command(
        "submit", cls=GroupedCommand, short_help=f"Submit a workload of several tasks with {framework}."
    )
    @v2.options
    @_with(more)
    @click.pass_context
    @pass_session
    def command(session: Session, ctx: click.Context, **given: Any) -> int | None:
        """Submit a workload of several tasks as a gang: the required tasks start together.

        Words after `--` are its arguments; with -c they are its command."""
        body = _distributed(v2.request(session, given, tail(ctx)), framework, more, given)
        return submission.finish(session, "Distributed", body, given)

    return command


def _first(name: str, framework: str, *more: Any) -> click.Command:
    """The command `submit-dist FRAMEWORK` or `submit-mpi`."""

    @click.command(
        name,
        cls=v1.SubmitCommand,
        short_help=f"Submit a job of several tasks with {framework}.",
        epilog=v1.EPILOG,
    )
    @v1.options
    @_with(more)
    @click.pass_context
    @pass_session
    def command(session: Session, ctx: click.Context, **given: Any) -> int | None:
        """Submit a job of several tasks as a gang: the required tasks start together."""
        body, _ = v1.request(session, given, tail(ctx))
        v1.note_spelling(session, ctx, given, body)
        return v1.finish(session, "Distributed", _distributed(body, framework, more, given), given)

    return command


def _with(more: Sequence[Any]) -> Callable[[Any], Any]:
    return lambda function: decorated(function, more)


pytorch = _second("PyTorch", _WORKERS, _CLEAN, _LEAST, _MOST, *_MASTER)
tensorflow = _second("TF", _WORKERS, _CLEAN, *_MASTER)
xgboost = _second("XGBoost", _WORKERS, _CLEAN, *_MASTER)
jax = _second("JAX", _WORKERS, _CLEAN)
mpi = _second("MPI", _WORKERS, _CLEAN, _SLOTS)

submit_mpi = _first("submit-mpi", "MPI", _PROCESSES, _SLOTS)
dist_mpi = _first("mpi", "MPI", _PROCESSES_OR_WORKERS, _CLEAN, _SLOTS)
dist_pytorch = _first("pytorch", "PyTorch", _WORKERS, _CLEAN, _LEAST, _MOST, _NO_MASTER)
dist_tf = _first("tf", "TF", _WORKERS, _CLEAN, _NO_MASTER)
dist_xgboost = _first("xgboost", "XGBoost", _WORKERS, _CLEAN, _NO_MASTER)

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
