"""What all submits share: checks that need no server, the parts of a request, the answer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from pliant.cli.output.amounts import checked_name, duration, memory, number, pair, whole
from pliant.cli.output.formats import structured
from pliant.cli.session import Session
from pliant.cli.submit import placement, unsupported
from pliant.client.errors import Conflict, NotFound

_Function = TypeVar("_Function", bound=Callable[..., Any])

LEAST_GPU_MEMORY = 100 * 10**6
"""Bytes; less is refused, as in Run:ai."""


def user() -> str:
    """Who submits, for the USER column."""
    name = os.environ.get("LOGNAME") or os.environ.get("USER")
    if name:
        return name
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def named(positional: str | None, name: str | None) -> str | None:
    """The name of --name or of the first word; both is an error."""
    if positional is not None and name is not None:
        raise click.UsageError(f"The name is given twice: {positional} and --name {name}.")
    given = positional if name is None else name
    return None if given is None else checked_name(given, "name for a workload")


def image(given: str | None) -> str:
    if not given or not given.strip():
        raise click.UsageError("-i, --image must be set")
    return given


def devices(text: str) -> int:
    """-g of the second edition: whole GPUs."""
    value = number(text, "-g", "1")
    if value != int(value):
        raise click.UsageError(f"-g {text}: whole GPUs only; for a part of one use --gpu-portion-request.")
    if value < 1:
        raise click.UsageError(f"-g {text}: at least 1; leave -g out for a workload without GPUs.")
    return int(value)


def portion(text: str, flag: str) -> float:
    value = number(text, flag, "0.5")
    if not 0 < value <= 1:
        raise click.UsageError(f"{flag} {text}: more than 0 and at most 1, the part of one GPU.")
    if round(value, 3) != value:
        raise click.UsageError(f"{flag} {text}: at most three decimals.")
    return value


def gpu_memory(text: str, flag: str) -> str:
    """The amount as it was written, once it is known to be one."""
    if memory(text, flag) < LEAST_GPU_MEMORY:
        raise click.UsageError(f"{flag} {text}: at least 100M of GPU memory.")
    return text.strip()


def cpu(text: str, flag: str) -> float | int:
    """Cores; '500m' is half of one."""
    if text.endswith("m") and text[:-1].isdigit():
        return whole(int(text[:-1]) / 1000)
    return whole(number(text, flag, "0.5 or 500m"))


def main_memory(text: str, flag: str) -> str:
    memory(text, flag)
    return text.strip()


def seconds(text: str, flag: str) -> int:
    return round(duration(text, flag))


def elastic_fits(*, workspace: bool, shared: bool, gpus: bool) -> None:
    """Raise if --elastic cannot go with the rest."""
    if workspace:
        raise click.UsageError("--elastic is for trainings: an interactive workload keeps the GPUs it has.")
    if shared:
        raise click.UsageError("--elastic does not go with a part of a GPU: ask for whole GPUs with -g.")
    if not gpus:
        raise click.UsageError("--elastic needs -g: the number of GPUs it asks for.")


def exposed(ports: Sequence[str], urls: Sequence[str]) -> dict[str, Any]:
    """--port and --external-url of the second edition: container=80,service-type=NodePort."""
    made: dict[str, Any] = {}
    kinds = {kind.lower(): kind for kind in ("NodePort", "LoadBalancer", "ClusterIP")}
    for text in ports:
        fields = _fields(text, "--port", ("container", "service-type", "external"))
        kind = fields.get("service-type", "NodePort")
        if kind.lower() not in kinds:
            raise click.UsageError(f"--port {text}: service-type is one of {', '.join(kinds.values())}.")
        entry = {"container": _port(fields.get("container"), text), "serviceType": kinds[kind.lower()]}
        if "external" in fields:
            entry["external"] = _port(fields["external"], text)
        made.setdefault("ports", []).append(entry)
    for text in urls:
        fields = _fields(text, "--external-url", ("container", "url"))
        entry = {"container": _port(fields.get("container"), text)}
        if "url" in fields:
            entry["url"] = fields["url"]
        made.setdefault("exposedUrls", []).append(entry)
    return made


def serving_port(text: str) -> dict[str, Any]:
    fields = _fields(text, "--serving-port", ("container", "protocol", "authorization-type"))
    made: dict[str, Any] = {"container": _port(fields.get("container"), text)}
    if protocol := fields.get("protocol"):
        if protocol not in ("http", "grpc"):
            raise click.UsageError(f"--serving-port {text}: protocol is http or grpc.")
        made["protocol"] = protocol
    return made


def _fields(text: str, flag: str, known: Sequence[str]) -> dict[str, str]:
    """'container=80,external=8080' as a mapping; a bare value is the container's port."""
    fields = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator:
            name, value = "container", part
        if name not in known:
            raise click.UsageError(f"{flag} {text}: {name} is not one of {', '.join(known)}.")
        fields[name] = value
    return fields


def _port(text: str | None, said: str) -> int:
    if text is None or not text.isdecimal() or not 0 < int(text) < 65_536:
        raise click.UsageError(f"{said}: container is a port from 1 to 65535, as in container=8888.")
    return int(text)


def runs(
    completions: int | None, parallelism: int | None, given: Mapping[str, Any], *, workspace: bool = False
) -> dict[str, int]:
    """The fields of a spec for several runs, checked."""
    asked = {"completions": completions, "parallelism": parallelism}
    made = {field: number for field, number in asked.items() if number is not None}
    if not made:
        return {}
    if (parallelism or 1) > (completions or 1):
        raise click.UsageError(f"--parallelism {parallelism} needs as many runs or more: --completions N.")
    if (completions or 1) > 1:
        if workspace or given.get("interactive"):
            raise click.UsageError("Several runs are for trainings: an interactive workload has one.")
        if given["elastic"]:
            raise click.UsageError("--elastic is for a single task: it does not go with several runs.")
    return made


def pairs(entries: Sequence[str], flag: str) -> list[dict[str, str]]:
    """['K=V', ...] as the API takes variables, labels and annotations."""
    return [{"name": name, "value": value} for name, value in (pair(entry, flag) for entry in entries)]


def pool_names(entries: Sequence[str]) -> list[str]:
    """Pools in the order to try; separated by commas or spaces, or the option repeated."""
    return [name for entry in entries for name in entry.replace(",", " ").split()]


def argv(*, command: Sequence[str] = (), args: Sequence[str] = ()) -> dict[str, Any]:
    """Command and arguments both as exact words and as Run:ai's one string."""
    spec: dict[str, Any] = {}
    if command:
        spec |= {"command": shlex.join(command), "commandArgv": list(command)}
    if args:
        spec |= {"args": shlex.join(args), "argsArgv": list(args)}
    return spec


def spec_options(function: _Function) -> _Function:
    """Options that mean the same in both editions."""
    policies = click.Choice(["Always", "IfNotPresent", "Never"])
    for decorate in reversed(
        (
            click.option(
                "--elastic", is_flag=True, help="May run on fewer GPUs than asked for, on more if idle."
            ),
            click.option("--node-type", metavar="TYPE", help="Only nodes whose label run.ai/type is TYPE."),
            click.option(
                "--node-pools", multiple=True, metavar="POOLS", help="Node pools in the order to try."
            ),
            click.option("--working-dir", metavar="DIR", help="Folder to start in."),
            click.option(
                "--backoff-limit", "--backoffLimit", type=click.IntRange(0), metavar="N", help="Retries."
            ),
            click.option("-t", "--tty", is_flag=True, help="Give it a terminal; needs --stdin."),
            click.option("--stdin", is_flag=True, help="Keep its input open."),
            click.option(
                "--attach", is_flag=True, help="Follow its output once it runs; sets --tty and --stdin."
            ),
            click.option("-l", "--label", multiple=True, metavar="K=V", help="Label (repeatable)."),
            click.option("-a", "--annotation", multiple=True, metavar="K=V", help="Annotation (repeatable)."),
            click.option(
                "--image-pull-policy", type=policies, help="Accepted; processes here fetch no images."
            ),
            click.option("--large-shm", is_flag=True, help="Accepted; has no effect on this machine."),
            click.option("--dry-run", is_flag=True, help="Ask what would happen; submit nothing."),
        )
    ):
        function = decorate(function)
    return unsupported.options(placement.options(function))


def spec(given: Mapping[str, Any], compute: Mapping[str, Any], *, workspace: bool) -> dict[str, Any]:
    """The part of a request that those options, the image and the environment make."""
    made: dict[str, Any] = {"image": image(given["image"])}
    if given["elastic"]:
        shared = "gpuRequestType" in compute
        elastic_fits(workspace=workspace, shared=shared, gpus="gpuDevicesRequest" in compute)
        made["elastic"] = True
    if compute:
        made["compute"] = dict(compute)
    for field, key, flag in (
        ("environmentVariables", "environment", "-e"),
        ("labels", "label", "--label"),
        ("annotations", "annotation", "--annotation"),
    ):
        if given[key]:
            made[field] = pairs(given[key], flag)
    if pools := pool_names(given["node_pools"]):
        made["nodePools"] = pools
    for field, key in (
        ("nodeType", "node_type"),
        ("workingDir", "working_dir"),
        ("priorityClass", "priority"),
        ("backoffLimit", "backoff_limit"),
    ):
        if given[key] is not None:
            made[field] = given[key]
    unsupported.refuse(given)
    made |= placement.spec(given)
    if given["tty"] and not (given["stdin"] or given["attach"]):
        raise click.UsageError("-t, --tty needs --stdin.")
    for field in ("tty", "stdin"):
        if given[field] or given["attach"]:
            made[field] = True
    return made


def finish(session: Session, kind: str, body: dict[str, Any], given: Mapping[str, Any]) -> int | None:
    """Submit it, and follow it if that was asked for."""
    if given["large_shm"]:
        session.note("Note: --large-shm has no effect: processes here share the machine's own /dev/shm.")
    unsupported.note(session, given)
    answer = send(session, kind, body, dry_run=given["dry_run"])
    if answer is None or not given["attach"]:
        return None
    from pliant.cli.workloads.execute import attach_to

    return attach_to(session, answer["workloadId"], answer["name"])


def send(session: Session, kind: str, body: dict[str, Any], *, dry_run: bool) -> Mapping[str, Any] | None:
    """Submit, and print the answer; None after a dry run. `kind`: Training, Workspace or Distributed."""
    project = session.current_project
    try:
        answer = accepted(session, kind, body, dry_run=dry_run)
    except Conflict as error:
        if error.reason not in ("", "name-exists", "conflict") or error.details or "name" not in body:
            raise
        delete = f"`{session.program} delete {body['name']} -p {project}`"
        advice = f"Choose another name, or delete it first: {delete}."
        raise Conflict(error.message, advice, status=error.status, reason=error.reason) from error
    if answer is None:
        return None
    name = answer["name"]
    if session.output == "name":
        click.echo(name)
    elif not structured(session, answer):
        noun = session.noun
        look = f"describe job {name}" if noun == "job" else f"{session.group} describe {name}"
        click.echo(f"The {noun} '{name}' has been submitted successfully")
        click.echo(f"You can run `{session.program} {look} -p {project}` to check its status")
    return answer


def accepted(session: Session, kind: str, body: dict[str, Any], *, dry_run: bool) -> Mapping[str, Any] | None:
    """Submit to the current project, and print what its owner should know; None after a dry run."""
    body["projectName"] = session.current_project
    body["source"] = "CLI"
    body["submittedBy"] = user()
    try:
        if dry_run:
            _print_verdict(session, session.client.dry_run(kind, body), body.get("name") or "it")
            return None
        answer = session.client.submit(kind, body)
    except NotFound:
        session.check_project()
        raise
    for notice in answer.get("notices") or []:
        session.note(f"Note: {notice}")
    return answer


def _print_verdict(session: Session, verdict: Mapping[str, Any], name: str) -> None:
    if structured(session, verdict):
        return
    for notice in verdict.get("notices") or []:
        session.note(f"Note: {notice}")
    reason = verdict.get("reason")
    message = (reason.get("message") if isinstance(reason, Mapping) else reason) or ""
    taken = list(verdict.get("disrupted") or [])
    if verdict.get("verdict") == "starts":
        places = ", ".join(dict.fromkeys(_place(place) for place in verdict.get("placements") or []))
        words = f"starts now on {places}" if places else "starts now"
    elif verdict.get("verdict") == "never":
        words = "could never start"
    else:
        words = "waits"
        if isinstance(reason, Mapping) and str(message).startswith("It waits for "):
            words, message = f"waits for {str(message).removeprefix('It waits for ')}", ""
    click.echo(f"Nothing was submitted: {name} {words}{f': {message}' if message else ''}")
    for verbs, word in ((("shrink",), "shrink"), (("evict",), "preempt"), (("move",), "move")):
        if names := dict.fromkeys(_place(entry) for entry in taken if entry.get("verb") in verbs):
            click.echo(f"It would {word} {', '.join(names)}.")


def _place(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return str(entry.get("node") or entry.get("name") or entry.get("workload") or dict(entry))
    return str(entry)
