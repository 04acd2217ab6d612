"""The program `elasticdl`: ElasticDL's command line, which submits a master and workers to Pliant."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pliant.cli.elasticdl.flags import FLAGS, PREDICT, REFUSED, TRAIN, VERBS, WEIGHTS, WITHOUT_EFFECT, Flag
from pliant.cli.lazy import Command, remember
from pliant.cli.main import program
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import submission
from pliant.cli.submit.options import amount, pairs
from pliant.client.errors import Conflict

if TYPE_CHECKING:
    from pliant.wire.submission import Compute, Distributed, DistributedSpec, Spec

IMAGE = "elasticdl"

_NEEDS = {"train": "train_data_dir", "evaluate": "validation_data_dir", "predict": "prediction_data_dir"}
_CPU, _MEMORY = {"master": "100m", "worker": "1000m"}, {"master": "1024Mi", "worker": "4096Mi"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without `arguments` run sys.argv and end the process."""
    return program(arguments, lambda: cli, ("elasticdl",))


class Verbs(click.Group):
    """The group of verbs; the default verb is train."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = [TRAIN, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            raise click.UsageError(f"Unknown command {args[0]!r}: use one of {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)


cli = Verbs(
    name="elasticdl",
    help="Train, evaluate or predict with a model file, on a master and elastic workers.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _options() -> list[click.Parameter]:
    made: list[click.Parameter] = [
        click.Option([f"--{name}" for name in flag.names], metavar=flag.metavar, help=flag.about)
        for flag in FLAGS
    ]
    made += [
        click.Option([f"--{name}"], hidden=True, metavar="TEXT")
        for names in (*WITHOUT_EFFECT.values(), REFUSED)
        for name in names
    ]
    project: dict[str, Any] = {"expose_value": False, "callback": remember}
    made += [
        click.Option(
            ["-p", "--project"], metavar="NAME", help="Project (default: the configured one).", **project
        ),
        click.Option(["--wait"], is_flag=True, help="Follow the job and return its exit code."),
        click.Option(["--dry-run"], is_flag=True, help="Show what would happen; submit nothing."),
    ]
    return made


def _verb(verb: str) -> click.Command:
    @pass_session
    def run(session: Session, wait: bool, dry_run: bool, **given: Any) -> int | None:
        said = {name: str(value) for name, value in given.items() if value is not None}
        body = request(verb, said)
        if vain := without_effect(said):
            session.note(f"Note: no effect here: {vain}.")
        return _send(session, body, wait=wait, dry_run=dry_run)

    words = {"train": "Train a model.", "evaluate": "Evaluate a model.", "predict": "Predict with a model."}
    return Command(verb, params=_options(), callback=run, help=words[verb], short_help=words[verb])


for _name in VERBS:
    cli.add_command(_verb(_name))


def without_effect(said: Mapping[str, str]) -> str:
    """The given flags that have no effect, with the reasons; "" if there are none."""
    parts = []
    for why, names in WITHOUT_EFFECT.items():
        if found := [f"--{name}" for name in names if name in said]:
            parts.append(f"{', '.join(found)} ({why})")
    return "; ".join(parts)


def request(verb: str, said: Mapping[str, str]) -> Distributed:
    """The body of the submission, built without the server. Raises UsageError."""
    if "job_name" not in said:
        raise click.UsageError("--job_name must be set.")
    for flag, instead in REFUSED.items():
        if flag in said and (verb == TRAIN or flag != WEIGHTS):
            raise click.UsageError(f"--{flag} is not supported: {instead}.")
    name = said["job_name"]
    passed = {flag.key: _checked(flag, said[flag.key]) for flag in FLAGS if flag.passed and flag.key in said}
    passed |= _model(said) | _shard(said)
    if _NEEDS[verb] not in passed:
        raise click.UsageError(f"--{_NEEDS[verb]} must be set: the records to {verb} on, DIR or digits:N.")
    if verb != TRAIN:
        passed |= _weights(passed, said)
    if verb == PREDICT and "output" not in passed:
        raise click.UsageError("--output must be set: the folder that predictions are written to.")
    workers = int(passed.setdefault("num_workers", "1"))
    flags = [f"--{key}={value}" for key, value in {"job_name": name, "mode": verb, **passed}.items()]
    worker_args = ["worker", *flags]
    spec: DistributedSpec = {
        "image": IMAGE,
        "args": shlex.join(worker_args),
        "argsArgv": worker_args,
        "distributedFramework": "ElasticDL",
        "numWorkers": workers,
        "compute": _compute("worker", said),
        "labels": [
            {"name": "app", "value": "elasticdl"},
            {"name": "elasticdl_job_name", "value": name},
            {"name": "elasticdl-job-name", "value": name},
        ],
    }
    master: Spec = {**submission.argv(args=["master", *flags]), "compute": _compute("master", said)}
    if envs := said.get("envs"):
        variables = pairs([e for e in envs.split(",") if e], "--envs")
        spec["environmentVariables"] = [{"name": it["name"], "value": it["value"]} for it in variables]
    for part, key in ((spec, "worker_pod_priority"), (master, "master_pod_priority")):
        if key in said:
            part["priorityClass"] = _class(key, said[key])
    return {"name": name, "spec": spec, "masterSpecSameAsWorker": False, "masterSpec": master}


def _class(flag: str, text: str) -> str:
    """The priority class. Raises UsageError for a fraction of the workers (of ElasticDL's last clients)."""
    if "." in text and text.replace(".", "").isdecimal():
        raise click.UsageError(
            f"--{flag} {text}: all workers have the same priority; use a priority class or a number."
        )
    return text


def _checked(flag: Flag, text: str) -> str:
    """The value in the form that the tasks read. Raises UsageError."""
    named = f"--{flag.key}"
    if flag.kind in ("count", "least0"):
        least = 1 if flag.kind == "count" else 0
        if not text.isdecimal() or int(text) < least:
            raise click.UsageError(f"{named} {text}: a whole number, {least} or more.")
        return str(int(text))
    if flag.kind == "codec" and text not in ("bytes", "tf_example"):
        raise click.UsageError(f"{named} {text}: one of bytes, tf_example.")
    if flag.kind == "path":
        return str(Path(text).expanduser().absolute())
    if flag.kind == "data":
        return _data(named, text)
    return text


def _data(named: str, text: str) -> str:
    if text.startswith("digits:"):
        count = text.removeprefix("digits:")
        if count != "test" and (not count.isdecimal() or int(count) < 1):
            raise click.UsageError(f"{named} {text}: write digits:N, N records from 1 on, or digits:test.")
        return text
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise click.UsageError(
            f"{named} {text}: there is no {path}. `make data` in the example writes records; "
            "digits:60000 uses the bundled ones."
        )
    return str(path)


def _model(said: Mapping[str, str]) -> dict[str, str]:
    """The model file, and the name of its model if --model_def has one. Raises UsageError."""
    if "model_file" in said and "model_def" in said:
        raise click.UsageError("--model_file and --model_def exclude each other.")
    found: dict[str, str] = {}
    if "model_file" in said:
        flag, path = "--model_file", Path(said["model_file"]).expanduser()
    elif "model_def" in said:
        flag, folder = "--model_def", Path(said.get("model_zoo", ".")).expanduser()
        module, _, symbol = said["model_def"].rpartition(".")
        path = folder / f"{module.replace('.', '/')}.py"
        if module and path.exists():
            found["model"] = symbol
        else:
            path = folder / f"{said['model_def'].replace('.', '/')}.py"
    else:
        raise click.UsageError("--model_file must be set (or --model_zoo and --model_def).")
    if not path.exists():
        raise click.UsageError(f"{flag}: file {path.absolute()} does not exist.")
    if not path.is_file():
        raise click.UsageError(f"{flag}: {path.absolute()} is not a file; specify one Python file.")
    return {"model_file": str(path.absolute()), **found}


def _weights(passed: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """The folder of the weights to evaluate or predict with. Raises UsageError if none is given."""
    if "checkpoint_dir" in passed:
        return {}
    if WEIGHTS not in said:
        raise click.UsageError(
            "--checkpoint_dir must be set: the folder of the job that trained the weights."
        )
    return {"checkpoint_dir": str(Path(said[WEIGHTS]).expanduser().absolute())}


def _shard(said: Mapping[str, str]) -> dict[str, str]:
    """--num_minibatches_per_task converted to records. Raises UsageError."""
    if "num_minibatches_per_task" not in said:
        return {}
    flag = next(flag for flag in FLAGS if flag.key == "num_minibatches_per_task")
    count = int(_checked(flag, said[flag.key]))
    if "records_per_task" in said:
        raise click.UsageError("--records_per_task and --num_minibatches_per_task exclude each other.")
    if "minibatch_size" not in said:
        raise click.UsageError("--num_minibatches_per_task needs --minibatch_size.")
    size = next(flag for flag in FLAGS if flag.key == "minibatch_size")
    return {"records_per_task": str(count * int(_checked(size, said[size.key])))}


def _compute(role: str, said: Mapping[str, str]) -> Compute:
    """The resources that a task of that role asks for, from either spelling. Raises UsageError."""
    flag = f"{role}_resource_request"
    asked: dict[str, tuple[str, str]] = {}  # resource -> (value, the flag that sets it)
    for part in said.get(flag, "").split(",") if flag in said else ():
        name, equal, value = part.strip().partition("=")
        name = {"nvidia.com/gpu": "gpu"}.get(name.strip(), name.strip())
        if not equal or name not in ("cpu", "memory", "gpu"):
            raise click.UsageError(f"--{flag} {part}: write cpu=1,memory=4096Mi,gpu=1 or less.")
        asked[name] = (value.strip(), f"--{flag} {name}")
    for name, default in (("cpu", _CPU[role]), ("memory", _MEMORY[role])):
        old = f"{role}_{name}_request"
        if old in said and name in asked:
            raise click.UsageError(f"--{old} and --{flag} both set {name}; use one of them.")
        if old in said:
            asked[name] = (said[old], f"--{old}")
        asked.setdefault(name, (default, f"--{old}"))
    cores = submission.cpu(*asked["cpu"])
    if cores <= 0:
        raise click.UsageError(f"{asked['cpu'][1]} {asked['cpu'][0]}: more than 0 cores.")
    made: Compute = {"cpuCoreRequest": cores, "cpuMemoryRequest": amount(*asked["memory"])}
    if "gpu" in asked:
        text, named = asked["gpu"]
        if not text.isdecimal():
            raise click.UsageError(f"{named} {text}: whole GPUs only.")
        if int(text):
            made["gpuDevicesRequest"] = int(text)
    return made


def _send(session: Session, body: Distributed, *, wait: bool, dry_run: bool) -> int | None:
    try:
        answer = submission.accepted(session, "Distributed", body, dry_run=dry_run)
    except Conflict as error:
        if error.reason != "name-exists":
            raise
        cure = f"pliant delete {body['name']} -p {session.current_project}"
        advice = f"Choose another --job_name, or delete the existing job first: {cure}"
        raise Conflict(error.message, advice, status=error.status, reason=error.reason) from error
    if answer is None:
        return None
    name, project = answer["name"], session.current_project
    click.echo(f"Job {name} has been submitted to project {project}.")
    click.echo(f"Its pods: pliant get pods -l elasticdl_job_name={name}")
    if not wait:
        return None
    from pliant.cli.elasticdl.wait import follow

    return follow(session, answer["workloadId"], name)
