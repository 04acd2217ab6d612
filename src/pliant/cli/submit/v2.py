"""`training submit`, `workspace submit`, `workload submit --type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from pliant.cli.lazy import TailCommand, tail
from pliant.cli.output.amounts import checked_name, memory
from pliant.cli.output.formats import output_options, project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import submission

_Function = TypeVar("_Function", bound=Callable[..., Any])


def options(function: _Function) -> _Function:
    """Those that all kinds of workload have."""
    for decorate in reversed(
        (
            click.argument("positional", metavar="[NAME]", required=False),
            click.option("--name", metavar="NAME", help="Its name; else one is generated."),
            click.option("--name-prefix", metavar="PREFIX", help="Generate PREFIX-<12 hex digits>."),
            click.option("-i", "--image", metavar="IMAGE", help="Image to run."),
            click.option(
                "-g", "--gpu-devices-request", metavar="N", help="Whole GPUs, or how many to take parts of."
            ),
            click.option(
                "--gpu-request-type", type=click.Choice(["portion", "memory"]), help="Follows from the next."
            ),
            click.option("--gpu-portion-request", metavar="PART", help="Part of each GPU: 0.5."),
            click.option("--gpu-portion-limit", metavar="PART", help="What it may grow to."),
            click.option("--gpu-memory-request", metavar="AMOUNT", help="Memory of each GPU: 5G."),
            click.option("--gpu-memory-limit", metavar="AMOUNT", help="What it may grow to."),
            click.option("--cpu-core-request", metavar="CORES", help="CPU cores: 2, 0.5, 500m."),
            click.option("--cpu-memory-request", metavar="AMOUNT", help="Main memory: 4G, 4Gi."),
            click.option(
                "--priority",
                metavar="NAME",
                help="Order within the project: very-low ... very-high, or a class of one's own.",
            ),
            click.option(
                "--preemptibility",
                type=click.Choice(["preemptible", "non-preemptible"]),
                help="May it be stopped?",
            ),
            click.option(
                "-e",
                "--environment-variable",
                "environment",
                multiple=True,
                metavar="K=V",
                help="Variable (repeatable).",
            ),
            click.option(
                "-c", "--command", is_flag=True, help="The words after `--` replace the image's command."
            ),
            click.option("--termination-grace-period", metavar="TIME", help="Between TERM and KILL: 30s."),
            click.option(
                "--auto-deletion-time-after-completion",
                metavar="TIME",
                help="Delete it so long after its end.",
            ),
            click.option(
                "--port",
                "ports",
                multiple=True,
                metavar="SPEC",
                help="container=80,service-type=NodePort (repeatable).",
            ),
            click.option(
                "--external-url",
                "urls",
                multiple=True,
                metavar="SPEC",
                help="container=8888: a page to open.",
            ),
            click.option(
                "--restart-policy", type=click.Choice(["Always", "Never", "OnFailure"]), help="When it ends."
            ),
        )
    ):
        function = decorate(function)
    return submission.spec_options(project_option(output_options(function)))


@click.command("submit", cls=TailCommand, short_help="Submit a workload.")
@options
@click.option(
    "--runs",
    "--completions",
    type=click.IntRange(1),
    metavar="N",
    help="Runs that must succeed, each by itself.",
)
@click.option("--parallelism", type=click.IntRange(1), metavar="M", help="Of these at most so many at once.")
@click.option("--type", "kind", type=click.Choice(["training", "workspace"]), help="For `workload submit`.")
@click.pass_context
@pass_session
def submit(session: Session, ctx: click.Context, **given: Any) -> int | None:
    """Submit a workload. Words after `--` are its arguments, with -c its command."""
    kind = session.kind or (given["kind"] or "training").capitalize()
    if session.kind and given["kind"] and given["kind"].capitalize() != session.kind:
        raise click.UsageError(f"--type {given['kind']} contradicts `{session.group} submit`.")
    return submission.finish(session, kind, request(given, tail(ctx), kind), given)


def request(given: dict[str, Any], words: list[str] | None, kind: str) -> dict[str, Any]:
    """The body to send; a UsageError for what cannot be."""
    body: dict[str, Any] = {}
    if name := submission.named(given["positional"], given["name"]):
        body["name"] = name
    elif given["name_prefix"]:
        body |= {"name": checked_name(given["name_prefix"], "prefix"), "useGivenNameAsPrefix": True}
    compute = compute_of(given)
    spec = submission.spec(given, compute, workspace=kind == "Workspace")
    if given["command"] and not words:
        raise click.UsageError("-c, --command: the command follows after `--`, as in: -c -- sleep infinity")
    spec |= submission.argv(command=words or ()) if given["command"] else submission.argv(args=words or ())
    spec |= submission.runs(given.get("runs"), given.get("parallelism"), given, workspace=kind == "Workspace")
    spec |= submission.exposed(given["ports"], given["urls"])
    for field, key in (("preemptibility", "preemptibility"), ("restartPolicy", "restart_policy")):
        if given[key] is not None:
            spec[field] = given[key]
    for field, key in (
        ("terminationGracePeriodSeconds", "termination_grace_period"),
        ("autoDeletionTimeAfterCompletionSeconds", "auto_deletion_time_after_completion"),
    ):
        if given[key] is not None:
            spec[field] = submission.seconds(given[key], f"--{key.replace('_', '-')}")
    body["spec"] = spec
    return body


def compute_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What one task asks for."""
    compute = _gpus(given)
    if given["cpu_core_request"]:
        compute["cpuCoreRequest"] = submission.cpu(given["cpu_core_request"], "--cpu-core-request")
    if given["cpu_memory_request"]:
        amount = submission.main_memory(given["cpu_memory_request"], "--cpu-memory-request")
        compute["cpuMemoryRequest"] = amount
    return compute


def _gpus(given: Mapping[str, Any]) -> dict[str, Any]:
    kind = given["gpu_request_type"]
    asked = {
        name: given[f"gpu_{name}_request"] or given[f"gpu_{name}_limit"] for name in ("portion", "memory")
    }
    if asked["portion"] and asked["memory"]:
        raise click.UsageError("--gpu-portion-request and --gpu-memory-request exclude each other.")
    inferred = next((name for name, value in asked.items() if value), None)
    if kind and inferred != kind:
        raise click.UsageError(f"--gpu-request-type {kind} needs --gpu-{kind}-request.")
    compute: dict[str, Any] = {}
    count = given["gpu_devices_request"]
    if count is not None:
        compute["gpuDevicesRequest"] = submission.devices(count)
    if inferred is None:
        return compute
    if not given[f"gpu_{inferred}_request"]:
        raise click.UsageError(f"--gpu-{inferred}-limit needs --gpu-{inferred}-request.")
    compute.setdefault("gpuDevicesRequest", 1)
    compute["gpuRequestType"] = inferred
    if inferred == "portion":
        return compute | _portions(given)
    if compute["gpuDevicesRequest"] > 1:
        raise click.UsageError("Several GPUs can be shared by portion only: use --gpu-portion-request.")
    return compute | _amounts(given)


def _portions(given: Mapping[str, Any]) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "gpuPortionRequest": submission.portion(given["gpu_portion_request"], "--gpu-portion-request")
    }
    if given["gpu_portion_limit"]:
        limit = submission.portion(given["gpu_portion_limit"], "--gpu-portion-limit")
        if limit < wanted["gpuPortionRequest"]:
            raise click.UsageError("--gpu-portion-limit is below --gpu-portion-request.")
        wanted["gpuPortionLimit"] = limit
    return wanted


def _amounts(given: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {"gpuMemoryRequest": submission.gpu_memory(given["gpu_memory_request"], "--gpu-memory-request")}
    if given["gpu_memory_limit"]:
        limit = submission.gpu_memory(given["gpu_memory_limit"], "--gpu-memory-limit")
        if memory(limit, "--gpu-memory-limit") < memory(wanted["gpuMemoryRequest"], "--gpu-memory-request"):
            raise click.UsageError("--gpu-memory-limit is below --gpu-memory-request.")
        wanted["gpuMemoryLimit"] = limit
    return wanted
