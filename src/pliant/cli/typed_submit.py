"""`training submit`, `workspace submit`, `workload submit --type`."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli import submission
from pliant.cli.amounts import checked_name
from pliant.cli.lazy import TailCommand, tail
from pliant.cli.output import output_options, project_option
from pliant.cli.session import Session, pass_session


@click.command("submit", cls=TailCommand, short_help="Submit a workload.")
@click.argument("positional", metavar="[NAME]", required=False)
@click.option("--name", metavar="NAME", help="Its name; else one is generated.")
@click.option("--name-prefix", metavar="PREFIX", help="Generate PREFIX-<12 hex digits>.")
@click.option("--type", "kind", type=click.Choice(["training", "workspace"]), help="For `workload submit`.")
@click.option("-i", "--image", metavar="IMAGE", help="Image to run.")
@click.option("-g", "--gpu-devices-request", metavar="N", help="Whole GPUs, or how many to take parts of.")
@click.option("--gpu-request-type", type=click.Choice(["portion", "memory"]), help="Follows from the next.")
@click.option("--gpu-portion-request", metavar="PART", help="Part of each GPU: 0.5.")
@click.option("--gpu-portion-limit", metavar="PART", help="What it may grow to.")
@click.option("--gpu-memory-request", metavar="AMOUNT", help="Memory of each GPU: 5G.")
@click.option("--gpu-memory-limit", metavar="AMOUNT", help="What it may grow to.")
@click.option("--elastic", is_flag=True, help="May run on fewer GPUs than asked for, and on more if idle.")
@click.option("--cpu-core-request", metavar="CORES", help="CPU cores: 2, 0.5, 500m.")
@click.option("--cpu-memory-request", metavar="AMOUNT", help="Main memory: 4G, 4Gi.")
@click.option("--node-type", metavar="TYPE", help="Only nodes whose label run.ai/type is TYPE.")
@click.option("--node-pools", multiple=True, metavar="POOLS", help="Node pools in the order to try.")
@click.option("--priority", type=click.Choice(submission.PRIORITIES), help="Order within the project.")
@click.option(
    "--preemptibility", type=click.Choice(["preemptible", "non-preemptible"]), help="May it be stopped?"
)
@click.option(
    "-e",
    "--environment-variable",
    "--environment",
    multiple=True,
    metavar="K=V",
    help="Variable (repeatable).",
)
@click.option("--working-dir", metavar="DIR", help="Folder to start in.")
@click.option("-c", "--command", is_flag=True, help="The words after `--` replace the image's command.")
@click.option("--backoff-limit", type=click.IntRange(0), metavar="N", help="Retries (6).")
@click.option("--termination-grace-period", metavar="TIME", help="Between TERM and KILL: 30s.")
@click.option(
    "--auto-deletion-time-after-completion", metavar="TIME", help="Delete it so long after its end."
)
@click.option("--restart-policy", type=click.Choice(["Always", "Never", "OnFailure"]), help="When it ends.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal; needs --stdin.")
@click.option("--stdin", is_flag=True, help="Keep its input open.")
@click.option("--attach", is_flag=True, help="Follow its output once it runs; sets --tty and --stdin.")
@click.option("--label", multiple=True, metavar="K=V", help="Label (repeatable).")
@click.option("--annotation", multiple=True, metavar="K=V", help="Annotation (repeatable).")
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    help="When to fetch the image.",
)
@click.option("--large-shm", is_flag=True, help="Accepted; has no effect on this machine.")
@click.option("--dry-run", is_flag=True, help="Ask the scheduler what would happen; submit nothing.")
@project_option
@output_options
@click.pass_context
@pass_session
def submit(session: Session, ctx: click.Context, **given: Any) -> int | None:
    """Submit a workload. Words after `--` are its arguments, with -c its command."""
    kind = session.kind or (given["kind"] or "training").capitalize()
    if session.kind and given["kind"] and given["kind"].capitalize() != session.kind:
        raise click.UsageError(f"--type {given['kind']} contradicts `{session.noun} submit`.")
    body = request(given, tail(ctx), kind)
    if given["large_shm"]:
        session.note("Note: --large-shm has no effect: processes here share the machine's own /dev/shm.")
    answer = submission.send(session, kind, body, dry_run=given["dry_run"])
    if answer is not None and given["attach"]:
        from pliant.cli.execute import attach_to

        return attach_to(session, answer["workloadId"], answer["name"])
    return None


def request(given: dict[str, Any], words: list[str] | None, kind: str) -> dict[str, Any]:
    """The body to send; a UsageError for what cannot be."""
    body: dict[str, Any] = {}
    if name := submission.named(given["positional"], given["name"]):
        body["name"] = name
    elif given["name_prefix"]:
        body |= {"name": checked_name(given["name_prefix"], "prefix"), "useGivenNameAsPrefix": True}
    spec: dict[str, Any] = {"image": submission.image(given["image"])}
    compute = _gpus(given)
    if given["elastic"]:
        shared = "gpuRequestType" in compute
        submission.elastic_fits(
            workspace=kind == "Workspace", shared=shared, gpus="gpuDevicesRequest" in compute
        )
        spec["elastic"] = True
    if given["cpu_core_request"]:
        compute["cpuCoreRequest"] = submission.cpu(given["cpu_core_request"], "--cpu-core-request")
    if given["cpu_memory_request"]:
        amount = submission.main_memory(given["cpu_memory_request"], "--cpu-memory-request")
        compute["cpuMemoryRequest"] = amount
    if compute:
        spec["compute"] = compute
    if given["command"] and not words:
        raise click.UsageError("-c, --command: the command follows after `--`, as in: -c -- sleep infinity")
    spec |= submission.argv(command=words or ()) if given["command"] else submission.argv(args=words or ())
    if entries := submission.pairs(given["environment_variable"], "-e"):
        spec["environmentVariables"] = entries
    if entries := submission.pairs(given["label"], "--label"):
        spec["labels"] = entries
    if entries := submission.pairs(given["annotation"], "--annotation"):
        spec["annotations"] = entries
    if pools := submission.pool_names(given["node_pools"]):
        spec["nodePools"] = pools
    for field, key in (
        ("nodeType", "node_type"),
        ("workingDir", "working_dir"),
        ("priorityClass", "priority"),
        ("preemptibility", "preemptibility"),
        ("restartPolicy", "restart_policy"),
        ("backoffLimit", "backoff_limit"),
    ):
        if given[key] is not None:
            spec[field] = given[key]
    for field, key in (
        ("terminationGracePeriodSeconds", "termination_grace_period"),
        ("autoDeletionTimeAfterCompletionSeconds", "auto_deletion_time_after_completion"),
    ):
        if given[key] is not None:
            spec[field] = submission.seconds(given[key], f"--{key.replace('_', '-')}")
    if given["tty"] and not (given["stdin"] or given["attach"]):
        raise click.UsageError("-t, --tty needs --stdin.")
    if given["tty"] or given["attach"]:
        spec["tty"] = True
    if given["stdin"] or given["attach"]:
        spec["stdin"] = True
    body["spec"] = spec
    return body


def _gpus(given: dict[str, Any]) -> dict[str, Any]:
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


def _portions(given: dict[str, Any]) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "gpuPortionRequest": submission.portion(given["gpu_portion_request"], "--gpu-portion-request")
    }
    if given["gpu_portion_limit"]:
        limit = submission.portion(given["gpu_portion_limit"], "--gpu-portion-limit")
        if limit < wanted["gpuPortionRequest"]:
            raise click.UsageError("--gpu-portion-limit is below --gpu-portion-request.")
        wanted["gpuPortionLimit"] = limit
    return wanted


def _amounts(given: dict[str, Any]) -> dict[str, Any]:
    from pliant.cli.amounts import memory

    wanted = {"gpuMemoryRequest": submission.gpu_memory(given["gpu_memory_request"], "--gpu-memory-request")}
    if given["gpu_memory_limit"]:
        limit = submission.gpu_memory(given["gpu_memory_limit"], "--gpu-memory-limit")
        if memory(limit, "--gpu-memory-limit") < memory(wanted["gpuMemoryRequest"], "--gpu-memory-request"):
            raise click.UsageError("--gpu-memory-limit is below --gpu-memory-request.")
        wanted["gpuMemoryLimit"] = limit
    return wanted
