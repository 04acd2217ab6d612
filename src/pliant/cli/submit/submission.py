"""What all submit commands share: parts of the request and the answer. The server validates the values."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from pliant.cli.output.amounts import counted, counted_gpus, number, whole
from pliant.cli.output.formats import structured
from pliant.cli.session import Session
from pliant.cli.submit import capture, placement, sequence, unsupported
from pliant.cli.submit.grouped import NoEffect, meant
from pliant.cli.submit.options import COMMON, decorated, read
from pliant.client.errors import Conflict, NotFound

if TYPE_CHECKING:
    from pliant.wire.submission import AnySubmission, Compute, PortItem, ServingPort, Spec, UrlItem

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SERVICES: dict[str, Literal["NodePort", "LoadBalancer", "ClusterIP"]] = {
    "nodeport": "NodePort",
    "loadbalancer": "LoadBalancer",
    "clusterip": "ClusterIP",
}


def named(positional: str | None, name: str | None) -> str | None:
    """The name from --name or the first word. Raises UsageError if both are given."""
    if positional is not None and name is not None:
        raise click.UsageError(f"The name is given twice: {positional} and --name {name}.")
    return positional if name is None else name


def cpu(text: str, flag: str) -> float | int:
    """Cores; '500m' is 0.5. Raises UsageError."""
    if text.endswith("m") and text[:-1].isdecimal():
        return whole(number(text[:-1], flag, "0.5 or 500m") / 1000)
    return whole(number(text, flag, "0.5 or 500m"))


def exposed(ports: Sequence[str], urls: Sequence[str]) -> Spec:
    """The fields of --port and --external-url of the second edition: container=80,service-type=NodePort."""
    made: Spec = {}
    for text in ports:
        fields = _fields(text, "--port", ("container", "service-type", "external"))
        kind = fields.get("service-type", "NodePort").lower()
        if kind not in _SERVICES:
            raise click.UsageError(f"--port {text}: service-type is one of {', '.join(_SERVICES.values())}.")
        entry: PortItem = {"container": _port(fields.get("container"), text), "serviceType": _SERVICES[kind]}
        if "external" in fields:
            entry["external"] = _port(fields["external"], text)
        made.setdefault("ports", []).append(entry)
    for text in urls:
        fields = _fields(text, "--external-url", ("container", "url"))
        page: UrlItem = {"container": _port(fields.get("container"), text)}
        if "url" in fields:
            page["url"] = fields["url"]
        made.setdefault("exposedUrls", []).append(page)
    return made


def serving_port(text: str) -> ServingPort:
    fields = _fields(text, "--serving-port", ("container", "protocol", "authorization-type"))
    made: ServingPort = {"container": _port(fields.get("container"), text)}
    if "protocol" in fields:
        made["protocol"] = cast("Literal['http', 'grpc']", fields["protocol"])  # the server validates it
    return made


def _fields(text: str, flag: str, known: Sequence[str]) -> dict[str, str]:
    """'container=80,external=8080' as a mapping; a bare value is the container's port. Raises UsageError."""
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
    if text is None or not text.isdecimal():
        raise click.UsageError(f"{said}: container is a port, as in container=8888.")
    return int(text)


def argv(*, command: Sequence[str] = (), args: Sequence[str] = ()) -> Spec:
    """The fields of command and arguments, each as a list of words and as one string like Run:ai's."""
    spec: Spec = {}
    if command:
        spec["command"], spec["commandArgv"] = shlex.join(command), list(command)
    if args:
        spec["args"], spec["argsArgv"] = shlex.join(args), list(args)
    return spec


def common_options(function: _Function) -> _Function:
    """Adds the options that both editions share."""
    policies = click.Choice(["Always", "IfNotPresent", "Never"])
    made = decorated(
        function,
        [
            click.option(
                "--elastic",
                is_flag=True,
                help="Elastic: start on fewer GPUs than requested, grow on idle ones.",
            ),
            *COMMON,
            *sequence.OPTIONS,
            click.option("-t", "--tty", is_flag=True, help="Allocate a terminal; needs --stdin."),
            click.option(
                "--stdin",
                is_flag=True,
                help="The job reads what is typed or piped into `run`, `submit --attach` or `attach -i`.",
            ),
            click.option("--attach", is_flag=True, help="Follow the output and return the job's exit code."),
            click.option("--wait", is_flag=True, help="Wait for the end and return the job's exit code."),
            click.option(
                "--image-pull-policy",
                cls=NoEffect,
                type=policies,
                help="Accepted; processes here fetch no images.",
            ),
            click.option("--large-shm", cls=NoEffect, is_flag=True, help="Accepted; no effect here."),
            click.option("--dry-run", is_flag=True, help="Show what would happen; submit nothing."),
        ],
    )
    return unsupported.options(placement.options(capture.options(made)))


def spec(session: Session, given: dict[str, Any], compute: Compute) -> Spec:
    """The `spec` of a request, from those options, the image, the shell and `compute`. Raises UsageError."""
    unsupported.refuse(given)
    made: Spec = {
        **read(COMMON, given),
        **sequence.joined(read(sequence.OPTIONS, given), given),
        **placement.spec(given),
        **capture.spec(session, given),
    }
    if given["image"] is not None:
        made["image"] = given["image"]
    if compute:
        made["compute"] = compute
    if given["elastic"]:
        made["elastic"] = True
    if given["tty"] and not (given["stdin"] or given["attach"]):
        raise click.UsageError("-t, --tty needs --stdin.")
    if given["tty"] or given["attach"]:
        made["tty"] = True
    if given["stdin"] or given["attach"]:
        made["stdin"] = True
    return made


def finish(session: Session, kind: str, body: AnySubmission, given: Mapping[str, Any]) -> int | None:
    """Submit; with --attach follow the job, with --wait wait for it. The exit code; None without both."""
    if given["large_shm"]:
        session.note("Note: --large-shm has no effect: processes here share the machine's own /dev/shm.")
    unsupported.note(session, given)
    note_elastic(session, body, given)
    if given["wait"] and given["attach"]:
        raise click.UsageError("--wait and --attach exclude each other.")
    answer = send(session, kind, body, dry_run=given["dry_run"])
    if answer is None or not (given["attach"] or given["wait"]):
        return None
    if given["wait"]:
        from pliant.cli.workloads.wait import awaited

        jobs = {item["name"]: item["id"] for item in session.find_all(answer["name"])}
        return awaited(session, jobs)[1]
    from pliant.cli.streams.execute import attach_to, typed_here

    identity, name = answer["workloadId"], answer["name"]
    typed = typed_here(session, identity, name, stdin=given["stdin"], tty=given["tty"])
    return attach_to(session, identity, name, typed=typed)


def note_elastic(session: Session, body: AnySubmission, given: Mapping[str, Any]) -> None:
    """Print a note if an elastic script can be resized only by a restart."""
    words = [*body["spec"].get("commandArgv", ()), *body["spec"].get("argsArgv", ())]
    if not given["elastic"] or given["image"] is not None or _resizes(words, given["working_dir"] or "."):
        return
    session.note(
        f"Note: {body.get('name') or 'the job'} restarts at every resize. Save checkpoints to "
        "$PLIANT_CHECKPOINT_DIR, or use pliant.train to resize without a restart."
    )


def _resizes(words: Sequence[str], folder: str) -> bool:
    """True if the command runs a module or script that uses Pliant's libraries for elastic training."""
    if any(word.startswith(("pliant.train", "pliant.engines", "runai.")) for word in words):
        return True
    for word in words:
        if word.endswith(".py"):
            try:
                with open(os.path.join(folder, word), encoding="utf-8", errors="replace") as file:
                    return "pliant" in (text := file.read(1_000_000)) or "runai" in text
            except OSError:
                return False
    return False


def send(session: Session, kind: str, body: AnySubmission, *, dry_run: bool) -> Mapping[str, Any] | None:
    """Submit and print the answer; None after a dry run. `kind` is a type of workload, such as Training."""
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
        if elements := answer.get("elements"):
            last = f" ... {elements[-1]}" if elements[1:] else ""
            session.note(f"{name} is an array of {counted(len(elements), 'job')}: {elements[0]}{last}.")
            name = elements[0]
        look = f"describe job {name}" if noun == "job" else f"{session.group} describe {name}"
        click.echo(f"The {noun} '{answer['name']}' has been submitted successfully")
        click.echo(f"You can run `{session.program} {look} -p {project}` to check its status")
    return answer


def accepted(session: Session, kind: str, body: AnySubmission, *, dry_run: bool) -> Mapping[str, Any] | None:
    """Submit to the current project and print the server's notices; None after a dry run."""
    if not {"image", "command", "args"} & {*body["spec"]} and (line := meant(click.get_current_context())):
        raise click.UsageError(f"There is no command to run. Write it after `--`: `{line}`")
    body["projectName"] = session.current_project
    body["source"] = "CLI"
    body["submittedBy"] = session.user
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
    reason = verdict.get("reason") or {}
    if verdict.get("verdict") == "starts":
        places = list(verdict.get("placements") or [])
        nodes = ", ".join(dict.fromkeys(place["node"] for place in places))
        what = [counted_gpus(gpus)] if (gpus := sum(place["gpu"] for place in places)) else []
        if reason.get("code") == "placed" and (gpus or _over(reason["numbers"]) <= 0):
            what.append(_quota(reason["numbers"]))
        said = f"would start now on {nodes}" + (f" ({', '.join(what)})." if what else ".")
    else:
        may = "could never start" if verdict.get("verdict") == "never" else "would be pending"
        said = " ".join([f"{may}.", *([reason["message"]] if reason else [])])
    click.echo(f"Dry run: {name} {said}")
    taken = list(verdict.get("disrupted") or [])
    for verb, word in (("shrink", "shrink"), ("evict", "preempt"), ("move", "move")):
        if names := dict.fromkeys(entry["name"] for entry in taken if entry["verb"] == verb):
            click.echo(f"It would {word} {', '.join(names)}.")


def _quota(numbers: Mapping[str, Any]) -> str:
    """Says "within quota" or "N GPUs over quota", from the numbers (thousandths) of a placement's reason."""
    over = _over(numbers)
    return "within quota" if over <= 0 else f"{counted_gpus(over / 1000)} over quota"


def _over(numbers: Mapping[str, Any]) -> int:
    """Thousandths of GPUs by which the project is over its quota; at most 0 if it is not over."""
    return 0 if numbers["quota"] < 0 else int(numbers["allocated"] - numbers["quota"])
