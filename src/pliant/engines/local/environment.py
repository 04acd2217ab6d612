"""From a start order to what is executed: argv, working folder and environment of a task."""

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.control.fractions import HandedOut
from pliant.engines.local.distributed import variables
from pliant.engines.local.images.catalogue import Catalogue
from pliant.engines.local.layout import VERSION, Layout
from pliant.model.order import Start
from pliant.model.quantity import GPU, format_gpus

# What a job gets of the server's environment: it must not depend on the terminal that started the server.
_INHERITED = {
    "ALL_PROXY", "CUDA_HOME", "CUDA_PATH", "CURL_CA_BUNDLE", "FTP_PROXY", "HOME", "HTTPS_PROXY", "HTTP_PROXY",
    "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "NO_PROXY", "PATH", "PYTHONPATH", "REQUESTS_CA_BUNDLE",
    "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME",
}  # fmt: skip
_PODS = uuid.UUID("b2c1f0a4-53a7-5a57-9d53-1b0f6d2e7c44")  # any constant: makes our version-5 UUIDs ours


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all tasks of this server; `url` is the server's, empty while it has none."""

    layout: Layout
    inherited: Mapping[str, str]  # the server's environment as far as jobs see it
    url: str
    reporter_url: str  # of a gateway for the first-generation reporter library; empty: none


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the server's environment that its jobs see. Pliant's own Python is found last of all."""
    kept = {
        name: value for name, value in environ.items() if name.upper() in _INHERITED or name.startswith("LC_")
    }
    kept["PATH"] = os.pathsep.join((kept.get("PATH") or os.defpath, str(Path(sys.executable).parent)))
    return kept


def document(
    order: Start,
    site: Site,
    catalogue: Catalogue,
    *,
    project: str,
    at: int,
    token: bool,
    present: Sequence[str] = (),
    port: int = 0,
    handed: HandedOut = HandedOut(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """order.json: all that a start needs. Raises CatalogueError, ValueError.

    `token`: it has a token file. `present`: names of the workload's tasks that have places, for a distributed
    one; `port`: the first of the ports that these agreed on, 0 if they need none. `handed`: how it is held to
    its shares of GPUs.
    """
    launch = order.workload.launch_of(order.attempt.task)
    entry, argv = catalogue.resolve(launch)
    checkpoints = site.layout.checkpoint_folder(order.workload.id)
    group, _, index = order.attempt.task.rpartition("-")
    meeting: dict[str, str] = {}
    if any(one.name == group and one.at_once for one in order.workload.groups):
        meeting["JOB_COMPLETION_INDEX"] = index
    if order.workload.ports:
        meeting["PORT"] = str(order.workload.ports[0].container + int(index))
    if order.workload.framework:
        own = site.layout.folder(order.attempt).path
        meeting = variables(order.workload, order.attempt.task, present, port, own)
    env = {
        **site.inherited,
        **_described(order, project),
        **meeting,
        **dict(entry.env),
        **{name: value for name, value in launch.env if not name.startswith("PLIANT_")},
        **_ours(order, site, token),
        **handed.env,
    }
    for name, value in handed.front.items():
        env[name] = f"{value}:{env[name]}" if env.get(name) else value
    if site.reporter_url:
        env.setdefault("reporterGatewayURL", site.reporter_url)
    return {
        "version": VERSION,
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
        "cwd": launch.working_dir or entry.workdir or str(checkpoints),
        "grace_ms": launch.grace,
        "tty": launch.tty,
        "stdin": launch.stdin,
        "env": env,
        "enforcement": {"how": handed.held.how.value, "why": handed.held.why} if handed.held else None,
        "read_only": str(handed.read_only) if handed.read_only else None,
    }


def _described(order: Start, project: str) -> dict[str, str]:
    """Who and where the task is, under the names that Run:ai's containers know."""
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


def _ours(order: Start, site: Site, token: bool) -> dict[str, str]:
    """By the first two the processes of an attempt are found: nobody may set them otherwise."""
    folder = site.layout.folder(order.attempt)
    env = {
        "PLIANT_ATTEMPT": str(order.attempt),
        "PLIANT_ATTEMPT_DIR": str(folder.path),
        "PLIANT_CHECKPOINT_DIR": str(site.layout.checkpoint_folder(order.workload.id)),
    }
    if site.url:
        env["PLIANT_URL"] = site.url
    if token:
        env["PLIANT_TOKEN_FILE"] = str(folder / "token")
    return env


def allocation(order: Start) -> dict[str, Any]:
    """The allocation document of a task that nobody has written one for yet."""
    return {
        "version": 1,
        "epoch": order.epoch,
        "tasks": [
            {
                "id": order.attempt.task,
                "attempt": order.attempt.number,
                "node": order.placement.node,
                "gpus": list(order.placement.uuids),
                "state": "active",
                "deadline": None,
            }
        ],
    }
