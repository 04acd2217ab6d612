"""`submit` of the first edition."""

from __future__ import annotations

import shlex
from typing import Any

import click

from pliant.cli import submission
from pliant.cli.amounts import checked_name, number
from pliant.cli.lazy import TailCommand, tail
from pliant.cli.output import output_options, project_option
from pliant.cli.session import Session, pass_session

_EPILOG = """The command of a job stands after `--`: with --command it replaces the image's own, without it is
appended as arguments. The older spelling `--command WORD --args WORD` works without `--`."""


class SubmitCommand(TailCommand):
    """Where `--` follows, --command says what the words after it are; elsewhere it takes a value."""

    def before_tail(self, args: list[str]) -> list[str]:
        return ["--command-follows" if word in ("--command", "--command=true") else word for word in args]


@click.command("submit", cls=SubmitCommand, short_help="Submit a job.", epilog=_EPILOG)
@click.argument("positional", metavar="[NAME]", required=False)
@click.option("--name", metavar="NAME", help="Its name; else one is generated.")
@click.option("--job-name-prefix", metavar="PREFIX", help="Generate PREFIX-0, PREFIX-1, ...")
@click.option("-i", "--image", metavar="IMAGE", help="Image to run.")
@click.option("-g", "--gpu", metavar="N", help="GPUs: 1, 2, ... or a part of one such as 0.5.")
@click.option("--gpu-memory", metavar="AMOUNT", help="Memory of one GPU instead: 5G, 500M, 5Gi.")
@click.option(
    "--interactive", is_flag=True, help="For people at work: runs inside the quota, is not stopped."
)
@click.option("--preemptible", is_flag=True, help="With --interactive: may go over quota, may be stopped.")
@click.option("--elastic", is_flag=True, help="May run on fewer GPUs than asked for, and on more if idle.")
@click.option("--cpu", metavar="CORES", help="CPU cores: 2, 0.5, 500m.")
@click.option("--memory", metavar="AMOUNT", help="Main memory: 4G, 4Gi.")
@click.option("--node-type", metavar="TYPE", help="Only nodes whose label run.ai/type is TYPE.")
@click.option("--node-pools", multiple=True, metavar="POOLS", help="Node pools in the order to try.")
@click.option("--priority", metavar="NAME", help="very-low ... very-high.")
@click.option("-e", "--environment", multiple=True, metavar="K=V", help="Environment variable (repeatable).")
@click.option("--working-dir", metavar="DIR", help="Folder to start in.")
@click.option(
    "--command", multiple=True, metavar="WORD", help="With `--`: the words after it are the command."
)
@click.option("--command-follows", is_flag=True, hidden=True)
@click.option("--args", multiple=True, metavar="WORD", help="Argument; without `--` only.")
@click.option("--backoff-limit", "--backoffLimit", type=click.IntRange(0), metavar="N", help="Retries (6).")
@click.option("--ttl-after-finish", metavar="TIME", help="Delete it so long after its end: 5s, 2m, 3h.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal; needs --stdin.")
@click.option("--stdin", is_flag=True, help="Keep its input open.")
@click.option("--attach", is_flag=True, help="Follow its output once it runs; sets --tty and --stdin.")
@click.option("-l", "--label", multiple=True, metavar="K=V", help="Label (repeatable).")
@click.option("-a", "--annotation", multiple=True, metavar="K=V", help="Annotation (repeatable).")
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
    """Submit a job: a training, or with --interactive a workspace."""
    body, kind = request(given, tail(ctx))
    if given["command"] and tail(ctx) is None:
        words = shlex.join(
            [word for text in given["command"] for word in shlex.split(text)] + list(given["args"])
        )
        session.note(f"Note: `--command WORD --args WORD` is the old spelling of `--command -- {words}`.")
    if given["large_shm"]:
        session.note("Note: --large-shm has no effect: processes here share the machine's own /dev/shm.")
    if given["preemptible"]:
        session.note("Note: a preemptible job may be stopped at any time when others claim its GPUs.")
    answer = submission.send(session, kind, body, dry_run=given["dry_run"])
    if answer is not None and given["attach"]:
        from pliant.cli.execute import attach_to

        return attach_to(session, answer["workloadId"], answer["name"])
    return None


def request(given: dict[str, Any], words: list[str] | None) -> tuple[dict[str, Any], str]:
    """The body to send and the kind of workload; a UsageError for what cannot be."""
    body: dict[str, Any] = {}
    name = submission.named(given["positional"], given["name"])
    if name:
        body["name"] = name
    else:
        prefix = given["job_name_prefix"]
        body |= {"nameBase": checked_name(prefix, "prefix") if prefix else "job", "nameStyle": "index"}
    spec: dict[str, Any] = {"image": submission.image(given["image"])}
    workspace = given["interactive"]
    if given["preemptible"] and not workspace:
        raise click.UsageError(
            "--preemptible goes with --interactive only: a training is preemptible anyway."
        )
    compute = _compute(given["gpu"], given["gpu_memory"])
    if given["elastic"]:
        shared = "gpuRequestType" in compute
        submission.elastic_fits(workspace=workspace, shared=shared, gpus="gpuDevicesRequest" in compute)
        spec["elastic"] = True
    if given["cpu"]:
        compute["cpuCoreRequest"] = submission.cpu(given["cpu"], "--cpu")
    if given["memory"]:
        compute["cpuMemoryRequest"] = submission.main_memory(given["memory"], "--memory")
    if compute:
        spec["compute"] = compute
    spec |= _command(given, words)
    if entries := submission.pairs(given["environment"], "-e"):
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
    ):
        if given[key]:
            spec[field] = given[key]
    if given["preemptible"]:
        spec["preemptibility"] = "preemptible"
        spec.setdefault("priorityClass", "interactive-preemptible")
    if given["backoff_limit"] is not None:
        spec["backoffLimit"] = given["backoff_limit"]
    elif workspace:
        spec["backoffLimit"] = 0
    if given["ttl_after_finish"]:
        ttl = submission.seconds(given["ttl_after_finish"], "--ttl-after-finish")
        spec["autoDeletionTimeAfterCompletionSeconds"] = ttl
    if given["tty"] and not (given["stdin"] or given["attach"]):
        raise click.UsageError("-t, --tty needs --stdin.")
    if given["tty"] or given["attach"]:
        spec["tty"] = True
    if given["stdin"] or given["attach"]:
        spec["stdin"] = True
    body["spec"] = spec
    return body, "Workspace" if workspace else "Training"


def _compute(gpu: str | None, gpu_memory: str | None) -> dict[str, Any]:
    if gpu is not None and gpu_memory is not None:
        raise click.UsageError("-g and --gpu-memory exclude each other: GPUs, or memory of one GPU.")
    if gpu_memory is not None:
        amount = submission.gpu_memory(gpu_memory, "--gpu-memory")
        return {"gpuRequestType": "memory", "gpuMemoryRequest": amount, "gpuDevicesRequest": 1}
    if gpu is None:
        return {}
    value = number(gpu, "-g", "1, 2 or 0.5")
    if value == 0:
        raise click.UsageError(f"-g {gpu}: more than 0; leave -g out for a job without GPUs.")
    if value >= 1:
        if value != int(value):
            raise click.UsageError(f"-g {gpu}: whole GPUs (1, 2, ...) or a part of one (0.5).")
        return {"gpuDevicesRequest": int(value)}
    part = submission.portion(gpu, "-g")
    return {"gpuRequestType": "portion", "gpuPortionRequest": part, "gpuDevicesRequest": 1}


def _command(given: dict[str, Any], words: list[str] | None) -> dict[str, Any]:
    """What runs, by the rules of the first edition."""
    if words is not None:
        if given["args"]:
            raise click.UsageError("--args and `--` exclude each other.")
        if given["command_follows"]:
            if not words:
                raise click.UsageError("--command: no command follows the `--`.")
            return submission.argv(command=words)
        return submission.argv(args=words)
    try:
        command = [word for text in given["command"] for word in shlex.split(text)]
    except ValueError as error:
        raise click.UsageError(f"--command: {error}.") from error
    if command:
        return submission.argv(command=[*command, *given["args"]])
    return submission.argv(args=given["args"])
