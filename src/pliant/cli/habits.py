"""Maps commands of other tools to those to type here; docs/reference/habits.md lists them for users."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import click

from pliant.cli import slurm

_AGAIN = "`pliant describe job NAME -o yaml` to read it; to change it, delete it and submit it again"
_FILES = "`pliant submit NAME --working-dir DIR -- COMMAND`; a job sees the files of this machine"
_INSTEAD = {
    # Run:ai
    "compute": "`pliant submit NAME -g GPUS --cpu CORES --memory AMOUNT -- COMMAND`",
    "config describe": "`pliant whoami` to see what is set",
    "config current-context": "`pliant whoami`",
    "config generate": "`pliant login --server URL`",
    "config get": "`pliant whoami` to see what is set",
    "config set-context": "`pliant project set NAME`",
    "config set": "`pliant project set NAME` or `pliant cluster set NAME`",
    "datasource": "`pliant submit NAME --working-dir DIR -- COMMAND`",
    "diagnostics": "`pliant debug bundle`",
    "distributed": "`pliant training pytorch submit NAME --workers N -- COMMAND`",
    "environment": "`pliant asset list environment`",
    "inference distributed": "`pliant inference submit NAME -i IMAGE --serving-port PORT -- COMMAND`",
    "inference nim": "`pliant inference submit NAME -i IMAGE --serving-port PORT -- COMMAND`",
    "inference scale": "`pliant inference delete NAME`, then `pliant inference submit NAME --max-replicas N`",
    "inference update": "`pliant inference delete NAME` and then `pliant inference submit NAME`",
    "kubeconfig": "`pliant login`",
    "mj": "`pliant submit-mpi NAME --processes N -- COMMAND`",
    "my-credential": "`pliant submit NAME --secret VARIABLE -- COMMAND`",
    "pvc": "`pliant submit NAME --working-dir DIR -- COMMAND`",
    "template": "`pliant asset list training-template`",
    "update": "`pip install --upgrade pliant`",
    "upgrade": "`pip install --upgrade pliant`",
    "workload-type": "`pliant submit --help`",
    "report metrics": "`pliant report` or `pliant top`",
    "submit inference": "`pliant inference submit NAME`",
    "submit training": "`pliant training submit NAME`",
    "submit workspace": "`pliant workspace submit NAME`",
    # commands known from any shell
    "add": "`pliant project create NAME` or `pliant user create NAME`",
    "cat": "`pliant logs {names}`",
    "code": "`pliant workspace submit NAME --vscode`",
    "continue": "`pliant resume {names}`",
    "dashboard": "`pliant console`",
    "find": "`pliant list` or `pliant history`",
    "gpu": "`pliant top` or `pliant list nodes`",
    "gpus": "`pliant top` or `pliant list nodes`",
    "gui": "`pliant console`",
    "hist": "`pliant history`",
    "hold": "`pliant suspend {names}`",
    "info": "`pliant status` or `pliant describe NAME`",
    "init": "`pliant up`",
    "inspect": "`pliant describe {names}`",
    "install": "`pliant up` for yourself or `pliant box install` for a shared machine",
    "job": "`pliant list` or `pliant describe job NAME`",
    "jobs": "`pliant list`",
    "jupyter": "`pliant workspace submit NAME --jupyter`",
    "kill": "`pliant cancel {names}`",
    "ls": "`pliant list`",
    "logs *": "`pliant logs NAME`, one job at a time",
    "man": "`pliant help {names}`",
    "modify": _AGAIN,
    "move": _AGAIN,
    "node describe": "`pliant describe node {last}`",
    "node show": "`pliant describe node {last}`",
    "notebook": "`pliant workspace submit NAME --jupyter`",
    "nvidia-smi": "`pliant top nodes -d`, or `pliant exec NAME nvidia-smi` for what a job sees",
    "open": "`pliant console`",
    "pause": "`pliant suspend {names}`",
    "priority": _AGAIN,
    "ps": "`pliant list`",
    "q": "`pliant queue`",
    "quota": "`pliant project list`",
    "quotas": "`pliant project list`",
    "redo": "`pliant describe job {names}` to see its command, and submit it again",
    "release": "`pliant resume {names}`",
    "remove": "`pliant delete {names}`",
    "rename": _AGAIN,
    "clone": "`pliant describe job {names}` to see its command, and submit it again",
    "requeue": "`pliant suspend {names}` and then `pliant resume {names}`",
    "rerun": "`pliant describe job {names}` to see its command, and submit it again",
    "restart *": "`pliant suspend {names}` and then `pliant resume {names}`",
    "retry": "`pliant describe job {names}` to see its command, and submit it again",
    "rm": "`pliant delete {names}`",
    "runai": "`pliant {line}`",
    "search": "`pliant list` or `pliant history`",
    "set": "`pliant project set NAME`",
    "set image": _AGAIN,
    "settings": "`pliant cluster --help`",
    "setup": "`pliant up`",
    "shell": "`pliant bash NAME`",
    "show": "`pliant describe {last}`",
    "start": "`pliant resume {names}` for a suspended job or `pliant submit NAME -- COMMAND` for a new one",
    "stop": "`pliant cancel {names}` to end it or `pliant suspend {names}` to free its GPUs for now",
    "switch": "`pliant project set {names}`",
    "tail": "`pliant logs -f {last}`",
    "trash": "`pliant restore-files`",
    "ui": "`pliant console`",
    "undelete": "`pliant restore-files {names}`",
    "uninstall": "`pliant down` and then `pip uninstall pliant`",
    "unpause": "`pliant resume {names}`",
    "update *": _AGAIN,
    "use": "`pliant project set {names}`",
    "users": "`pliant user list`",
    "view": "`pliant describe {names}`",
    "watch": "`pliant list --watch`",
    "web": "`pliant console`",
    # kubectl
    "annotate": "`pliant submit NAME --annotation KEY=VALUE -- COMMAND`",
    "api-resources": "`pliant help`",
    "auth can-i": "`pliant whoami`",
    "autoscale": "`pliant inference submit NAME --min-replicas N --max-replicas N -- COMMAND`",
    "cluster-info": "`pliant status`",
    "config get-contexts": "`pliant cluster list`",
    "config use-context": "`pliant cluster set {names}`",
    "config view": "`pliant whoami`",
    "cordon": "`pliant node cordon {names}`",
    "cp": "`pliant describe NAME` to see the folders of a job, and `cp` on its node",
    "create": "`pliant submit NAME -- COMMAND` or `pliant project create NAME --quota N`",
    "create job": "`pliant submit {last} -- COMMAND`",
    "create namespace": "`pliant project create {last} --quota N`",
    "create ns": "`pliant project create {last} --quota N`",
    "create project": "`pliant project create {last} --quota N`",
    "debug *": "`pliant why {last}` or `pliant bash {last}`",
    "diff": "`pliant describe job NAME -o yaml`",
    "drain": "`pliant node drain {names}`",
    "edit": _AGAIN,
    "events": "`pliant describe job NAME` or `pliant cluster events`",
    "explain": "`pliant why NAME` or `pliant help COMMAND`",
    "expose": "`pliant port-forward NAME --port LOCAL:PORT`",
    "get all": "`pliant get jobs`",
    "get cm": _FILES,
    "get configmaps": _FILES,
    "get deployments": "`pliant inference list`",
    "get deploy": "`pliant inference list`",
    "get events": "`pliant describe job NAME` or `pliant cluster events`",
    "get pv": _FILES,
    "get pvc": _FILES,
    "get queues": "`pliant queue` or `pliant list projects`",
    "get secrets": "`pliant submit NAME --secret VARIABLE -- COMMAND`",
    "get services": "`pliant list -o wide` to see the URLs of jobs",
    "get svc": "`pliant list -o wide` to see the URLs of jobs",
    "get namespaces": "`pliant get projects`",
    "get ns": "`pliant get projects`",
    "kubectl": "`pliant {line}`",
    "label": "`pliant node label NODE KEY=VALUE`",
    "patch": _AGAIN,
    "replace": _AGAIN,
    "rollout": "`pliant suspend NAME` and then `pliant resume NAME`",
    "scale": "`pliant submit NAME -g GPUS --elastic -- COMMAND`",
    "taint": "`pliant node taint NODE KEY=VALUE:EFFECT`",
    "uncordon": "`pliant node uncordon {names}`",
    # Slurm
    "bjobs": "`pliant list`",
    "bkill": "`pliant cancel {names}`",
    "bsub": "`pliant submit NAME -g GPUS -- bash SCRIPT`",
    "qdel": "`pliant cancel {names}`",
    "qstat": "`pliant list`",
    "qsub": "`pliant submit NAME -g GPUS -- bash SCRIPT`",
    "sacctmgr": "`pliant project list` or `pliant user list`",
    "sattach": "`pliant attach {names}`",
    "seff": "`pliant history {names}`",
    "sprio": "`pliant queue`",
    "sreport": "`pliant audit fairness`",
    "sshare": "`pliant project list`",
    "sstat": "`pliant top job`",
    "strigger": "`pliant wait NAME`",
}
"""What to use instead of the typed words; `*` matches any further word. {names} are the following words that
are neither options nor values of options, {last} is the last word that is not an option, {line} is
everything that follows."""

_VERBS = {
    "add": ("create", "submit"), "create": ("submit",), "edit": ("update", "set"),
    "get": ("describe", "list"),
    "info": ("describe",), "kill": ("delete",), "ls": ("list",), "modify": ("update", "set"),
    "new": ("create", "submit"), "ps": ("list",), "remove": ("delete", "remove"), "rm": ("delete", "remove"),
    "run": ("submit",), "set": ("update",), "show": ("describe", "list"), "start": ("resume",),
    "status": ("describe", "list"), "stop": ("suspend",), "update": ("set",), "cancel": ("delete",),
}  # fmt: skip
"""Verbs of other tools within Pliant's groups, and Pliant's verbs in the order to try."""

_GROUPS = ("training", "workspace", "workload", "project", "department", "nodepool", "node", "asset", "key")
"""Groups whose plural means their `list`."""

_ON_NODE = "--node-affinity kubernetes.io/hostname="
_SUBMIT_FLAGS = {
    "--gpus": "-g", "--gpu": "-g", "-G": "-g", "--gres": "-g", "--num-gpus": "-g",
    "--mem": "--memory", "-m": "--memory", "--ram": "--memory",
    "--cpus": "--cpu", "--cores": "--cpu", "-c": "--cpu", "--cpus-per-task": "--cpu", "--ncpus": "--cpu",
    "--time": "--max-runtime", "--time-limit": "--max-runtime", "--timeout": "--max-runtime",
    "--walltime": "--max-runtime",
    "--depends-on": "--after", "-d": "--after", "--depends": "--after",
    "--env": "-e", "--envs": "-e",
    "--workdir": "--working-dir", "--cwd": "--working-dir", "--chdir": "--working-dir", "-C": "--working-dir",
    "-D": "--working-dir", "--dir": "--working-dir",
    "--retries": "--backoff-limit", "--max-retries": "--backoff-limit", "--restart": "--backoff-limit 0",
    "--job-name": "--name", "-J": "--name", "-n": "--name",
    "--partition": "--node-pools", "--qos": "--priority", "--namespace": "-p", "--account": "-p",
    "-A": "-p", "--node": _ON_NODE, "--nodelist": _ON_NODE,
    "--follow": "--attach",
}  # fmt: skip
_SUBMIT_ADVICE = {
    **dict.fromkeys(
        ("--log", "--logfile", "--log-file", "--out"), "Use `pliant logs NAME > FILE` for the job's output."
    ),
    "--nodes": "Use `pliant training pytorch submit NAME --workers N -- COMMAND`.",
    "--ntasks": "Use `pliant training pytorch submit NAME --workers N -- COMMAND`.",
    "--rm": "Use --ttl-after-finish TIME to delete the job after its end.",
    "--detach": "`submit` does not wait: leave it out.",
    "--conda": "Run `conda activate ENV` first: a job gets the environment of this shell.",
    "--venv": "Activate it first: a job gets the environment of this shell.",
    "-f": "Use --attach to follow its output; a job is not read from a file.",
    "--filename": "Use `pliant submit NAME -- COMMAND`.",
    "-w": "Use --wait to wait for the end of the job.",
}
_LIST_ADVICE = {
    "--show-labels": "Use -o json to see the labels.",
    "--field-selector": "Use `pliant list --status Running`.",
    "--sort-by": "Use `pliant top jobs --sort gpu`, or -o json.",
    "--all-namespaces": "Use -A.",
    "-a": "Use -A for all projects.",
    "--deleted": "Use `pliant history`.",
}
_ADVICE: Mapping[str, Mapping[str, str]] = {
    "bash": {"-c": "Use `pliant exec NAME -- bash -c COMMAND`."},
    "delete": {
        "-f": "Name the jobs: `pliant delete NAME`.",
        "--force": "Use `pliant cancel NAME --now`.",
        "--grace-period": "Use `pliant cancel NAME --now`.",
    },
    "get": _LIST_ADVICE,
    "list": _LIST_ADVICE,
    "login": {"-p": "Use -P PASSWORD."},
    "logs": {
        "-l": "Name the job: `pliant logs NAME`.",
        "--selector": "Name the job: `pliant logs NAME`.",
        "--all-containers": "Use --all-pods.",
    },
    "pliant": {
        "-n": "Use -p PROJECT.",
        "--namespace": "Use -p PROJECT.",
        "-v": "Use --version.",
        "-V": "Use --version.",
    },
    "project create": {"-g": "Use --quota N.", "--gpus": "Use --quota N."},
}
"""Advice for options that a command does not have, by the command's last words."""

_VALUED = re.compile(r"-[a-zA-Z]")  # an option that takes a value: -u USER, but not -9 or --all


def instead(words: str, args: Sequence[str]) -> str | None:
    """A sentence with the command to type instead of `pliant WORDS ARGS`; None for unknown words."""
    if cure := slurm.command(words, args):
        return f"Pliant has no command '{words}'. Use {cure}."
    cure = _cure(words, args)
    return None if cure is None else f"Pliant has no command '{words}'. Use {cure}."


def _cure(words: str, args: Sequence[str]) -> str | None:
    args = args[: args.index("--")] if "--" in args else args
    longer = _INSTEAD.get(f"{words} {args[0]}") if args else None
    cure = longer or (_INSTEAD.get(f"{words} *") if args else None) or _INSTEAD.get(words)
    if cure is None:
        return None
    before = ["", *args]
    given = [
        arg for at, arg in enumerate(args) if not arg.startswith("-") and not _VALUED.fullmatch(before[at])
    ]
    last = next((arg for arg in reversed(args) if not arg.startswith("-")), "NAME")
    return cure.format(names=" ".join(given) or "NAME", last=last, line=shlex.join(args) or "help")


def unknown(path: Sequence[str], name: str, args: Sequence[str], known: Iterable[str]) -> str:
    """The error for a name that is not a command of the group at `path`; `known` are its commands."""
    there = [*known]
    if cure := instead(" ".join([*path[1:], name]), args):
        return cure
    if (cure := _INSTEAD.get(" ".join([*path[1:], "*"]))) is not None:
        return f"Unknown command '{name}'. Use {cure.format(names=name, last=name, line=name)}."
    verb = next((verb for verb in _VERBS.get(name, ()) if verb in there), None)
    if verb is None and name.endswith("s") and name[:-1] in there and name[:-1] in _GROUPS:
        args = args or ["list"]
        verb = name[:-1]
    close = verb or next(iter(get_close_matches(name, there, 1, 0.72)), None)
    if close is None:
        return f"Unknown command '{name}'."
    return f"Unknown command '{name}'. Did you mean `{shlex.join([*path, close, *args])}`?"


def without(path: Sequence[str], flag: str, args: Sequence[str], known: Sequence[str]) -> str:
    """The error for an option that the command at `path` does not have."""
    words = " ".join(path[1:]) or "pliant"
    table: Mapping[str, str] = next(
        (table for name, table in _ADVICE.items() if words == name or words.endswith(f" {name}")), {}
    )
    advice = table.get(flag)
    if advice is None and (path[-1].startswith("submit") or path[-1] == "run"):
        advice = _SUBMIT_ADVICE.get(flag) or _renamed(flag, args, known)
    if advice is None and (close := get_close_matches(flag, known, 1, 0.75)):
        advice = f"Did you mean '{close[0]}'?"
    return f"No such option '{flag}'.{f' {advice}' if advice else ''}"


def _renamed(flag: str, args: Sequence[str], known: Sequence[str]) -> str | None:
    """Advice such as `Use -g 1.`, with the typed value; None for an unknown option."""
    ours = _SUBMIT_FLAGS.get(flag)
    if ours is None:
        return None
    if ours not in known:
        ours = {"--cpu": "--cpu-core-request", "--memory": "--cpu-memory-request"}.get(ours, ours)
    typed = next((arg for arg in args if arg.partition("=")[0] == flag), flag)
    at = args.index(typed) + 1 if typed in args else len(args)
    value = typed.partition("=")[2] or (args[at] if at < len(args) and not args[at].startswith("-") else "")
    if ours == "--attach" or " 0" in ours:
        value = ""
    if ours == "-g":
        value = "1" if value == "all" else value.rpartition(":")[2]
    return f"Use {ours}{'' if ours.endswith('=') else ' '}{value}".rstrip() + "."


def dashed(path: Sequence[str], args: Sequence[str], valued: Iterable[str]) -> str | None:
    """The line with the missing `--` before the command; None if no word looks like a command."""
    takes, at = {*valued}, 0
    while at < len(args):
        word = args[at]
        if word.startswith("-"):
            at += 2 if word in takes else 1
        elif " " in word.strip() or os.path.isfile(word) or shutil.which(word):
            break
        else:
            at += 1
    else:
        return None
    words = args[at].split() if " " in args[at] else [*args[at:]]
    if words[0].endswith(".py") and not os.access(words[0], os.X_OK):
        words = ["python", *words]
    elif len(words) == 1 and "/" not in words[0] and os.path.isfile(words[0]):
        words = ["python" if words[0].endswith(".py") else "bash", *words]
    return shlex.join([*path, *args[:at], "--", *words])


def extra(ctx: click.Context, args: Sequence[str], rest: Sequence[str]) -> str:
    """The error for words that a command does not take."""
    words = [arg for arg in args if not arg.startswith("-")]
    cure = _cure(" ".join(ctx.command_path.split()[1:]), words)
    said = f"Got unexpected extra argument{'s' if rest[1:] else ''} ({' '.join(rest)})"
    return f"{said}. Use {cure}." if cure else said


def mended(ctx: click.Context, args: Sequence[str], error: click.UsageError) -> str | None:
    """A better message for a usage error; None if there is none."""
    path = ctx.command_path.split()
    if isinstance(error, click.NoSuchOption):
        known = [
            flag
            for param in ctx.command.get_params(ctx)
            if isinstance(param, click.Option) and not param.hidden
            for flag in (*param.opts, *param.secondary_opts)
        ]
        return without(path, error.option_name, args, known)
    if isinstance(error, click.BadOptionUsage) and error.option_name == "-p" and path[-1] == "logs":
        return "-p names the project; use --previous for the attempt before."
    if isinstance(error, click.MissingParameter) and path[-1] == "apply" and args:
        return f"Use `{shlex.join([*path, '-f', *args])}`."
    if isinstance(error, click.BadParameter) and path[-1] == "login":
        return "Use `pliant login` with a token, `pliant login user` or `pliant login app`."
    return None
