"""Turns a start order into what is executed: argv, working directory and environment of a task."""

import os
import pwd
import stat
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pliant.control.fractions import HandedOut
from pliant.control.submit.variables import Variables
from pliant.engines.local.folder.layout import Layout, boot_id
from pliant.engines.local.images.catalogue import Catalogue, Entry
from pliant.engines.local.launch import distributed
from pliant.engines.local.launch.volumes import prepared
from pliant.model.order import Start
from pliant.model.quantity import GPU, format_gpus
from pliant.model.workload import JOB_FOLDER, Launch, SeenFolder, Workload

# The server's variables that a job gets: they must not depend on the terminal that started the server.
_INHERITED = {
    "ALL_PROXY", "CUDA_HOME", "CUDA_PATH", "CURL_CA_BUNDLE", "FTP_PROXY", "HOME", "HTTPS_PROXY", "HTTP_PROXY",
    "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "NO_PROXY", "PATH", "PYTHONPATH", "REQUESTS_CA_BUNDLE",
    "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME",
}  # fmt: skip
SESSION = frozenset(
    {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "MAIL", "PWD", "OLDPWD", "TMPDIR", "XDG_RUNTIME_DIR"}
    | {"DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "SUDO_COMMAND", "SUDO_GID", "SUDO_UID", "SUDO_USER"}
)
"""Variables of a session of one account: a task of another account does not get the submitter's values."""

ORDER_VERSION = 2
"""Of order.json. Version 1 holds the whole environment; version 2 only the names of the variables."""

_PODS = uuid.UUID("b2c1f0a4-53a7-5a57-9d53-1b0f6d2e7c44")  # any constant: makes our version-5 UUIDs ours


@dataclass(frozen=True, slots=True)
class Places:
    """Folders as the task sees them."""

    job: Path  # the workload's, kept from attempt to attempt
    attempt: Path


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all tasks of this server; `url` is the server's, empty while it has none."""

    layout: Layout
    inherited: Mapping[str, str]  # the server's environment as far as jobs see it
    url: str
    reporter_url: str  # of a gateway for the first-generation reporter library; empty: none
    authority: str = ""  # file of certificates that verify the server at `url`; empty: no TLS


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the server's environment that its jobs see."""
    return {
        name: value for name, value in environ.items() if name.upper() in _INHERITED or name.startswith("LC_")
    }


class NoFolder(Exception):
    """The working directory cannot be used; the message says which and why."""


def working_dir(launch: Launch, entry: Entry, job_folder: Path) -> str:
    """Where a task starts: in the requested folder, the image's, the submitter's, else the job folder."""
    said = launch.working_dir or entry.workdir or (launch.seen.path if launch.seen else JOB_FOLDER)
    return str(job_folder) if said == JOB_FOLDER else said


def check_folder(launch: Launch, cwd: str) -> None:
    """Raise NoFolder unless a task can start there and it is still the folder that the submitter saw."""
    try:
        found = os.stat(cwd)
    except FileNotFoundError:
        raise NoFolder(f"working directory {cwd} does not exist") from None
    except OSError as error:
        raise NoFolder(f"working directory {cwd} is not accessible: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise NoFolder(f"working directory {cwd} is not a directory")
    if not os.access(cwd, os.X_OK):
        raise NoFolder(f"working directory {cwd} is not accessible to user {_account()}")
    seen = launch.seen
    if seen is not None and seen.path == cwd and seen.boot == boot_id() and not same_folder(seen):
        raise NoFolder(f"working directory {cwd} is another folder than when the workload was submitted")


def same_folder(seen: SeenFolder) -> bool:
    """True if that path is, for this process, the folder that the submitter saw."""
    try:
        found = os.stat(seen.path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (seen.device, seen.inode)


def _account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def environment(
    entry: Entry,
    variables: Variables,
    site: Site,
    *,
    described: Mapping[str, str] = MappingProxyType({}),
    ours: Mapping[str, str] = MappingProxyType({}),
    front: Mapping[str, str] = MappingProxyType({}),
    account: bool = False,
) -> dict[str, str]:
    """The whole environment of a task; of two values for a name the later one counts.

    `described`: the task's identity and node; `ours`: values that a submission cannot replace; `front`: what
    is put before the value of a variable. Pliant's own programs do not get the submitter's environment.
    `account`: it runs as another account, whose values of SESSION it keeps; a virtual environment that was
    active at the submission is active in it.
    """
    env: dict[str, str] = {}
    if entry.own or account or not variables.whole:
        env |= site.inherited
    if not entry.own:
        env |= {name: value for name, value in variables.captured if not (account and name in SESSION)}
    if account and (active := env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX")):
        env["PATH"] = os.pathsep.join((f"{active}/bin", env.get("PATH") or os.defpath))
    env |= described
    env |= dict(entry.env)
    env |= {name: value for name, value in variables.given if not name.startswith("PLIANT_")}
    env |= ours
    for name, value in front.items():
        env[name] = f"{value}:{env[name]}" if env.get(name) else value
    # Pliant's own Python comes last in PATH.
    env["PATH"] = os.pathsep.join((env.get("PATH") or os.defpath, str(Path(sys.executable).parent)))
    env.setdefault("PYTHONUNBUFFERED", "1")  # a line that a job prints is in its log at once
    if site.reporter_url:
        env.setdefault("reporterGatewayURL", site.reporter_url)
    return env


def document(
    order: Start,
    site: Site,
    catalogue: Catalogue,
    variables: Variables,
    *,
    project: str,
    at: int,
    token: bool,
    present: Sequence[str] = (),
    port: int = 0,
    handed: HandedOut = HandedOut(),  # noqa: B008 - frozen
    places: Places,
    home: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """(order.json, the environment): all that a start needs. Raises CatalogueError, NoFolder, ValueError.

    `token`: it has a token file. `present`: names of the workload's placed tasks, for a distributed one;
    `port`: the first of the ports that these agreed on, 0 if they need none. `handed`: how its shares of GPUs
    are enforced. `places`: its folders. `home`: variables of the user it runs as, none for this server's
    account.
    """
    launch = order.workload.launch_of(order.attempt.task)
    entry, words = catalogue.resolve(launch)
    argv = prepared(words, launch.volumes, places.job)
    cwd = working_dir(launch, entry, places.job)
    if not home:  # else only the user may be able to see it, and the task enters it as the user
        check_folder(launch, cwd)
    group, _, index = order.attempt.task.rpartition("-")
    meeting: dict[str, str] = {}
    if any(one.name == group and one.at_once for one in order.workload.groups):
        meeting["JOB_COMPLETION_INDEX"] = index
    if order.workload.ports:
        meeting["PORT"] = str(order.workload.ports[0].container + int(index))
    if order.workload.framework:
        own = places.attempt
        meeting = distributed.variables(order.workload, order.attempt.task, present, port, own)
    env = environment(
        entry,
        variables,
        replace(site, inherited={**site.inherited, **home}) if home else site,
        described=_described(order, project) | _array(order.workload) | meeting,
        ours=_ours(order, site, token, places) | dict(handed.env) | _kept(home),
        front=handed.front,
        account=bool(home),
    )
    return {
        "version": ORDER_VERSION,
        "attempt": str(order.attempt),
        "epoch": order.epoch,
        "cause": order.cause,
        "ordered_ms": at,
        "name": order.workload.name,
        "node": order.placement.node,
        "shares": [
            {"gpu": share.gpu, "portion": share.portion, "memory": share.memory}
            for share in order.placement.shares
        ],
        "image": launch.image,
        "argv": list(argv),
        "cwd": cwd,
        "grace_ms": launch.grace,
        "tty": launch.tty,
        "stdin": launch.stdin,
        "variables": sorted(env),
        "enforcement": {"how": kept.how.value, "why": kept.why} if (kept := handed.enforcement) else None,
        "read_only": str(handed.read_only) if handed.read_only else None,
    }, env


def _described(order: Start, project: str) -> dict[str, str]:
    """The task's identity, node and GPUs, under the variable names of Run:ai's containers."""
    uuids = ",".join(order.placement.uuids)
    gpus = order.placement.gpu
    return {
        "RUNAI_PROJECT": project,
        "RUNAI_JOB_NAME": order.workload.name,
        "RUNAI_JOB_UUID": order.workload.id,
        "RUNAI_NUM_OF_GPUS": str(gpus // GPU) if gpus % GPU == 0 else format_gpus(gpus),
        "NODE_NAME": order.placement.node,
        "JOB_NAME": order.workload.name,
        "JOB_UUID": order.workload.id,
        "podUUID": str(uuid.uuid5(_PODS, str(order.attempt))),
        "CUDA_VISIBLE_DEVICES": uuids,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
    }


def _array(workload: Workload) -> dict[str, str]:
    """The array and the element that it is; {} if it is in none."""
    element = workload.element
    if element is None:
        return {}
    return {
        "PLIANT_ARRAY_NAME": element.name,
        "PLIANT_ARRAY_INDEX": str(element.index),
        "PLIANT_ARRAY_COUNT": str(element.count),
        "PLIANT_ARRAY_MIN": str(element.least),
        "PLIANT_ARRAY_MAX": str(element.most),
    }


def _ours(order: Start, site: Site, token: bool, places: Places) -> dict[str, str]:
    """Variables that a submission cannot replace; the first two identify the processes of an attempt."""
    job_folder = str(places.job)
    env = {
        "PLIANT_ATTEMPT": str(order.attempt),
        "PLIANT_ATTEMPT_DIR": str(places.attempt),
        "PLIANT_JOB_DIR": job_folder,
        "PLIANT_CHECKPOINT_DIR": job_folder,
    }
    if site.url:
        env["PLIANT_URL"] = site.url
    if site.url and site.authority:
        env["PLIANT_CA"] = site.authority
    if token:
        env["PLIANT_TOKEN_FILE"] = str(places.attempt / "token")
    return env


def _kept(home: Mapping[str, str]) -> dict[str, str]:
    """The variables of its account that are Pliant's own."""
    return {name: value for name, value in home.items() if name.startswith("PLIANT_")}
