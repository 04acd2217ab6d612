"""The command `submit` of the first edition."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from pliant.cli.lazy import JobCommand, tail
from pliant.cli.output.amounts import number, whole
from pliant.cli.output.formats import output_options, project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import notebook, served, submission
from pliant.cli.submit.grouped import GroupedCommand
from pliant.cli.submit.options import RUNS, Option, amount, decorated, read, runs, whole_seconds

if TYPE_CHECKING:
    from pliant.wire.submission import AnySubmission, Compute, Inference, InferenceSpec, PortItem, Spec

_Function = TypeVar("_Function", bound=Callable[..., Any])

NOTEBOOK_IMAGE = "jupyter/scipy-notebook"
NOTEBOOK_PORT = 8888

EPILOG = """Write the command of the job after `--`. With --command it replaces the command of the image,
without it the words are its arguments. `--command WORD --args WORD` is the older form, without `--`."""


class SubmitCommand(GroupedCommand):
    """With `--`, --command is a flag that makes the words after it the command; else it takes a value."""

    examples = (
        "train -g 1 -- python train.py",
        "small -g 0.5 --memory 8Gi -e SEED=1 -- python train.py",
        "long -g 2 --max-runtime 2h --working-dir ~/project -- python train.py",
    )

    def before_tail(self, args: list[str]) -> list[str]:
        return ["--command-follows" if word in ("--command", "--command=true") else word for word in args]


class RunCommand(JobCommand, SubmitCommand):
    """Like SubmitCommand, for `run`, which always waits and prints the job's output; hides those options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if isinstance(param, click.Option) and {"--attach", "--wait", "-o", "--json", "--yaml"} & {
                *param.opts
            }:
                param.hidden = True


OPTIONS = (
    click.argument("positional", metavar="[NAME]", required=False),
    click.option("--name", metavar="NAME", help="Name (default: generated)."),
    click.option("--job-name-prefix", metavar="PREFIX", help="Generate PREFIX-0, PREFIX-1, ..."),
    click.option("-i", "--image", metavar="IMAGE", help="Image to run."),
    click.option("-g", "--gpu", metavar="N", help="GPUs: 1, 2, ... or a fraction of one, e.g. 0.5."),
    click.option("--gpu-memory", metavar="AMOUNT", help="Memory of one GPU to share, e.g. 5G, 500M, 5Gi."),
    click.option("--cpu", metavar="CORES", help="CPU cores: 2, 0.5, 500m."),
    click.option("--memory", metavar="AMOUNT", help="Main memory: 4G, 4Gi."),
    Option(
        "priorityClass", ("--priority",), "NAME", "Priority: very-low ... very-high, or a priority class."
    ),
    click.option(
        "-e",
        "--environment",
        "environmentVariables",
        multiple=True,
        metavar="K[=V]",
        help="Environment variable; K alone takes its value from this shell.",
    ),
    click.option(
        "--command",
        multiple=True,
        metavar="WORD",
        help="With `--`, the words after it replace the image's command.",
    ),
    click.option("--command-follows", is_flag=True, hidden=True),
    click.option(
        "--args", multiple=True, metavar="WORD", help="Argument of the command (older form, without `--`)."
    ),
    click.option(
        "-s",
        "--service-type",
        type=click.Choice(["portforward", "loadbalancer", "nodeport", "ingress"]),
        help="Type of access to the ports.",
    ),
    click.option(
        "--port",
        "ports",
        multiple=True,
        metavar="[LOCAL:]PORT",
        help="Port of the job, e.g. 8080:80 (repeatable).",
    ),
    Option(
        "autoDeletionTimeAfterCompletionSeconds",
        ("--ttl-after-finish",),
        "TIME",
        "Delete the job this long after it ends, e.g. 2h.",
        whole_seconds,
    ),
)
"""Options of all submit commands of the first edition."""


def options(function: _Function) -> _Function:
    return decorated(submission.common_options(project_option(output_options(function))), OPTIONS)


@click.command("submit", cls=SubmitCommand, short_help="Submit a job.", epilog=EPILOG)
@options
@click.option(
    "--inference", is_flag=True, help="Inference service: replicas that are restarted when they end."
)
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="Number of replicas; with --inference.")
@runs
@notebook.options
@click.option("--interactive", is_flag=True, help="Interactive session: non-preemptible, within quota only.")
@click.option("--preemptible", is_flag=True, help="With --interactive: preemptible, may be over-quota.")
@click.pass_context
@pass_session
def submit(session: Session, ctx: click.Context, **given: Any) -> int | None:
    """Submit a job: a training, or with --interactive a workspace."""
    what = served.asked(given)
    own = what if what and given["image"] is None and session.endpoint.socket is not None else None
    if own:
        ports = _own_notebook(own, given)
    elif what and what is not served.JUPYTER:
        raise click.UsageError(f"--{what.flag} needs a server on this machine, and excludes --image.")
    token = _notebook(given) if what and not own else ""
    body, kind = request(session, given, tail(ctx))
    if own:
        return notebook.submit(session, own, body, given, ports)
    note_spelling(session, ctx, given, body)
    if given["preemptible"]:
        session.note("Note: a preemptible job may be evicted at any time.")
    code = finish(session, kind, body, given)
    if token and not given["dry_run"]:
        session.note(f"Once it runs, Jupyter is at http://localhost:{NOTEBOOK_PORT}/?token={token}")
    return code


def _own_notebook(what: served.Served, given: dict[str, Any]) -> tuple[str, ...]:
    """Turn the options into those of a session and return the values of --port. Raises UsageError."""
    if given["inference"] or given["service_type"] or given["attach"]:
        raise click.UsageError(f"--{what.flag} excludes --inference, --service-type and --attach.")
    ports: tuple[str, ...] = given["ports"]
    given |= {"interactive": True, "ports": ()}
    return ports


def _notebook(given: dict[str, Any]) -> str:
    """Turn the options into those of a notebook and return its token. Raises UsageError."""
    if given["inference"] or given["service_type"] or given["ports"]:
        raise click.UsageError("--jupyter excludes --inference, --service-type and --port.")
    token = secrets.token_hex(16)
    given |= {
        "interactive": True,
        "image": given["image"] or NOTEBOOK_IMAGE,
        "service_type": "ingress",
        "ports": (str(NOTEBOOK_PORT),),
        "environmentVariables": (*given["environmentVariables"], f"JUPYTER_TOKEN={token}"),
    }
    return token


def finish(session: Session, kind: str, body: AnySubmission, given: dict[str, Any]) -> int | None:
    """Submit; with --service-type portforward then forward its ports. Returns the exit code."""
    if given["service_type"] != "portforward" or given["dry_run"]:
        return submission.finish(session, kind, body, given)
    if given["attach"]:
        raise click.UsageError("--attach and --service-type portforward both keep the terminal: choose one.")
    from pliant.cli.streams.forward import forward, mapping

    answer = submission.send(session, kind, body, dry_run=False)
    assert answer is not None
    return forward(session, answer["workloadId"], answer["name"], [mapping(text) for text in given["ports"]])


def note_spelling(session: Session, ctx: click.Context, given: dict[str, Any], body: AnySubmission) -> None:
    if given["command"] and tail(ctx) is None:
        words = body["spec"]["command"]
        session.note(f"Note: `--command WORD --args WORD` is the old spelling of `--command -- {words}`.")


def request(session: Session, given: dict[str, Any], words: list[str] | None) -> tuple[AnySubmission, str]:
    """(body to send, kind of workload). Raises UsageError, such as for options that exclude each other."""
    body: Inference = {}
    if (name := submission.named(given["positional"], given["name"])) is not None:
        body["name"] = name
    else:
        body["nameBase"], body["nameStyle"] = given["job_name_prefix"] or "job", "index"
    workspace = given.get("interactive", False)
    if given.get("preemptible") and not workspace:
        raise click.UsageError("--preemptible needs --interactive: a training is always preemptible.")
    made: Spec = {
        **submission.spec(session, given, _compute(given)),
        **read(OPTIONS, given),
        **read(RUNS, given),
        **_command(given, words),
        **_ports(given),
    }
    spec = cast("InferenceSpec", made)
    if given.get("preemptible"):
        spec["preemptibility"] = "preemptible"
        spec.setdefault("priorityClass", "interactive-preemptible")
    if workspace:
        spec.setdefault("backoffLimit", 0)
    body["spec"] = spec
    if not given.get("inference"):
        if given.get("replicas"):
            raise click.UsageError("--replicas needs --inference.")
        return body, "Workspace" if workspace else "Training"
    if workspace:
        raise click.UsageError("--inference and --interactive exclude each other.")
    if replicas := given["replicas"]:
        spec["autoscaling"] = {"minReplicas": replicas, "maxReplicas": replicas}
    return body, "Inference"


_SERVICES: dict[str, Literal["NodePort", "LoadBalancer", "ClusterIP"]] = {
    "portforward": "ClusterIP",
    "loadbalancer": "LoadBalancer",
    "nodeport": "NodePort",
}


def _ports(given: dict[str, Any]) -> Spec:
    """The fields for the ports, as in the second edition; ingress sets exposedUrls. Raises UsageError."""
    kind = given["service_type"]
    if not given["ports"]:
        if kind:
            raise click.UsageError(f"--service-type {kind} needs --port, as in --port 8080:80.")
        return {}
    if not kind:
        raise click.UsageError("--port needs --service-type: portforward, nodeport, loadbalancer or ingress.")
    from pliant.cli.streams.forward import mapping

    pairs = [mapping(text) for text in given["ports"]]
    if kind == "ingress":
        return {"exposedUrls": [{"container": target} for _, target in pairs]}
    entries: list[PortItem] = []
    for local, target in pairs:
        entry: PortItem = {"container": target, "serviceType": _SERVICES[kind]}
        if local != target and kind != "portforward":
            entry["external"] = local
        entries.append(entry)
    return {"ports": entries}


def _compute(given: Mapping[str, Any]) -> Compute:
    """The resources that one task asks for. Raises UsageError."""
    gpu, memory = given["gpu"], given["gpu_memory"]
    compute: Compute = {}
    if gpu is not None and memory is not None:
        raise click.UsageError("-g and --gpu-memory exclude each other: GPUs, or memory of one GPU.")
    if memory is not None:
        compute["gpuRequestType"], compute["gpuMemoryRequest"] = "memory", amount(memory, "--gpu-memory")
        compute["gpuDevicesRequest"] = 1
    elif gpu is not None:
        value = number(gpu, "-g", "1, 2 or 0.5")
        if 0 < value < 1:
            compute["gpuRequestType"], compute["gpuPortionRequest"] = "portion", value
        compute["gpuDevicesRequest"] = 1 if 0 < value < 1 else whole(value)
    if given["cpu"]:
        compute["cpuCoreRequest"] = submission.cpu(given["cpu"], "--cpu")
    if given["memory"]:
        compute["cpuMemoryRequest"] = amount(given["memory"], "--memory")
    return compute


def _command(given: dict[str, Any], words: list[str] | None) -> Spec:
    """Command and arguments, by the rules of the first edition. Raises UsageError."""
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
    if given["command"] and not command:
        raise click.UsageError("--command: it is empty; write the command after `--`.")
    if command:
        return submission.argv(command=[*command, *given["args"]])
    return submission.argv(args=given["args"])
