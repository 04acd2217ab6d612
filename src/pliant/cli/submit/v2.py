"""The commands `training submit`, `workspace submit` and `workload submit --type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pliant.cli.lazy import tail
from pliant.cli.output.amounts import number
from pliant.cli.output.formats import output_options, project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import notebook, served, submission
from pliant.cli.submit.grouped import GroupedCommand
from pliant.cli.submit.options import RUNS, Option, amount, decorated, read, runs, whole_seconds

if TYPE_CHECKING:
    from pliant.wire.submission import Compute, Submission

_Function = TypeVar("_Function", bound=Callable[..., Any])


OPTIONS = (
    click.argument("positional", metavar="[NAME]", required=False),
    click.option("--name", metavar="NAME", help="Name (default: generated)."),
    click.option("--name-prefix", metavar="PREFIX", help="Generate PREFIX-<12 hex digits>."),
    click.option("-i", "--image", metavar="IMAGE", help="Image to run."),
    click.option(
        "-g",
        "--gpu-devices-request",
        metavar="N",
        help="Number of GPUs, or of shared GPUs with --gpu-portion-request or --gpu-memory-request.",
    ),
    click.option(
        "--gpu-request-type",
        type=click.Choice(["portion", "memory"]),
        help="Type of GPU request (default: that of --gpu-portion-request or --gpu-memory-request).",
    ),
    click.option("--gpu-portion-request", metavar="PART", help="Fraction of each GPU, e.g. 0.5."),
    click.option("--gpu-portion-limit", metavar="PART", help="Maximum that it may use."),
    click.option("--gpu-memory-request", metavar="AMOUNT", help="Memory of each GPU, e.g. 5G."),
    click.option("--gpu-memory-limit", metavar="AMOUNT", help="Maximum that it may use."),
    click.option("--cpu-core-request", metavar="CORES", help="CPU cores: 2, 0.5, 500m."),
    click.option("--cpu-memory-request", metavar="AMOUNT", help="Main memory: 4G, 4Gi."),
    Option(
        "priorityClass", ("--priority",), "NAME", "Priority: very-low ... very-high, or a priority class."
    ),
    Option(
        "preemptibility",
        ("--preemptibility",),
        None,
        "Whether the workload may be evicted (semi-preemptible: down to its minimum).",
        type=click.Choice(["preemptible", "semi-preemptible", "non-preemptible"]),
    ),
    click.option(
        "-e",
        "--environment-variable",
        "environmentVariables",
        multiple=True,
        metavar="K[=V]",
        help="Environment variable; K alone takes its value from this shell.",
    ),
    click.option("-c", "--command", is_flag=True, help="The words after `--` replace the image's command."),
    Option(
        "terminationGracePeriodSeconds",
        ("--termination-grace-period",),
        "TIME",
        "Grace period between SIGTERM and SIGKILL, e.g. 30s.",
        whole_seconds,
    ),
    Option(
        "autoDeletionTimeAfterCompletionSeconds",
        ("--auto-deletion-time-after-completion",),
        "TIME",
        "Delete the job this long after it ends, e.g. 2h.",
        whole_seconds,
    ),
    click.option(
        "--port",
        "ports",
        multiple=True,
        metavar="SPEC",
        help="container=80,service-type=NodePort (repeatable).",
    ),
    click.option(
        "--external-url", "urls", multiple=True, metavar="SPEC", help="Web page to open, e.g. container=8888."
    ),
    Option(
        "restartPolicy",
        ("--restart-policy",),
        None,
        "When to restart a task that has ended.",
        type=click.Choice(["Always", "Never", "OnFailure"]),
    ),
)
"""Options of all kinds of workload."""


def options(function: _Function) -> _Function:
    return decorated(submission.common_options(project_option(output_options(function))), OPTIONS)


@click.command("submit", cls=GroupedCommand, short_help="Submit a workload.")
@options
@runs
@notebook.options
@click.option(
    "--type",
    "kind",
    type=click.Choice(["training", "workspace"]),
    help="Kind of workload, for `workload submit`.",
)
@click.pass_context
@pass_session
def submit(session: Session, ctx: click.Context, **given: Any) -> int | None:
    """Submit a workload. Words after `--` are its arguments; with -c they are its command."""
    kind = session.kind or (given["kind"] or "training").capitalize()
    if session.kind and given["kind"] and given["kind"].capitalize() != session.kind:
        raise click.UsageError(f"--type {given['kind']} contradicts `{session.group} submit`.")
    if what := served.asked(given):
        if kind != "Workspace" or given["attach"] or given["urls"] or given["image"]:
            raise click.UsageError(
                f"--{what.flag} is for `workspace submit`, without --attach, --external-url and --image."
            )
        ports, given["ports"] = given["ports"], ()
        return notebook.submit(session, what, request(session, given, tail(ctx)), given, ports)
    return submission.finish(session, kind, request(session, given, tail(ctx)), given)


def request(session: Session, given: dict[str, Any], words: list[str] | None) -> Submission:
    """The body to send. Raises UsageError, such as for options that exclude each other."""
    body: Submission = {}
    if (name := submission.named(given["positional"], given["name"])) is not None:
        body["name"] = name
    elif given["name_prefix"]:
        body["name"], body["useGivenNameAsPrefix"] = given["name_prefix"], True
    if given["command"] and not words:
        raise click.UsageError(
            "-c, --command: write the command after `--`, for example -c -- sleep infinity"
        )
    body["spec"] = {
        **submission.spec(session, given, compute_of(given)),
        **read(OPTIONS, given),
        **read(RUNS, given),
        **submission.argv(**{"command" if given["command"] else "args": words or ()}),
        **submission.exposed(given["ports"], given["urls"]),
    }
    return body


def compute_of(given: Mapping[str, Any]) -> Compute:
    """The resources that one task asks for. Raises UsageError."""
    compute: dict[str, Any] = {}
    if (count := given["gpu_devices_request"]) is not None:
        devices = number(count, "-g", "1")
        if devices != int(devices):
            raise click.UsageError(
                f"-g {count}: whole GPUs only; for a part of one use --gpu-portion-request."
            )
        compute["gpuDevicesRequest"] = int(devices)
    if kind := _shared(given):
        compute["gpuRequestType"] = kind
        compute.setdefault("gpuDevicesRequest", 1)
    for field, key, value in _SIZES:
        if text := given[key]:
            compute[field] = value(text, f"--{key.replace('_', '-')}")
    return cast("Compute", compute)


def _part(text: str, flag: str) -> float:
    return number(text, flag, "0.5")


_SIZES: tuple[tuple[str, str, Callable[[str, str], float | str]], ...] = (
    ("gpuPortionRequest", "gpu_portion_request", _part),
    ("gpuPortionLimit", "gpu_portion_limit", _part),
    ("gpuMemoryRequest", "gpu_memory_request", amount),
    ("gpuMemoryLimit", "gpu_memory_limit", amount),
    ("cpuCoreRequest", "cpu_core_request", submission.cpu),
    ("cpuMemoryRequest", "cpu_memory_request", amount),
)
"""(field of Compute, option that sets it, function that reads it)."""


def _shared(given: Mapping[str, Any]) -> str | None:
    """The type of a request for parts of GPUs, portion or memory; None for whole GPUs. Raises UsageError."""
    asked = {
        name: given[f"gpu_{name}_request"] or given[f"gpu_{name}_limit"] for name in ("portion", "memory")
    }
    if asked["portion"] and asked["memory"]:
        raise click.UsageError("--gpu-portion-request and --gpu-memory-request exclude each other.")
    found = next((name for name, value in asked.items() if value), None)
    if (kind := given["gpu_request_type"]) and found != kind:
        raise click.UsageError(f"--gpu-request-type {kind} needs --gpu-{kind}-request.")
    if found and not given[f"gpu_{found}_request"]:
        raise click.UsageError(f"--gpu-{found}-limit needs --gpu-{found}-request.")
    return found
