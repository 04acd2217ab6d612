"""Options of containers and clusters: without effect here or not to be had, and said so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from pliant.cli.session import Session

_Function = TypeVar("_Function", bound=Callable[..., Any])

_SWITCHES = (
    "--host-ipc",
    "--host-network",
    "--create-home-dir",
    "--prevent-privilege-escalation",
    "--allow-privilege-escalation",
    "--run-as-user",
    "--mps",
)
_VALUES = (
    "--cpu-limit",
    "--memory-limit",
    "--cpu-core-limit",
    "--cpu-memory-limit",
    "--run-as-uid",
    "--run-as-gid",
    "--supplemental-groups",
    "--user-group-source",
    "--add-capability",
    "--capabilities",
    "--wait-for-submit",
)
"""Accepted; a note says that they change nothing."""

_REFUSED = {
    "--mig": "a GPU is shared by -g 0.5 or --gpu-memory",
    "--mig-profile": "a GPU is shared by -g 0.5 or --gpu-memory",
    "--extended-resource": "only GPUs, CPU and memory are counted",
    "--pvc": "its files are this machine's own",
    "--pvc-new": "its files are this machine's own",
    "--pvc-exists": "its files are this machine's own",
    "--new-pvc": "its files are this machine's own",
    "--existing-pvc": "its files are this machine's own",
    "--nfs": "mount it on the machine first",
    "--nfs-server": "mount it on the machine first",
    "--s3": "copy the files to the machine first",
    "--git-sync": "clone it on the machine first and say --working-dir",
    "--configmap-map-volume": "there is no Kubernetes here",
    "--secret-volume": "there is no Kubernetes here",
    "--datasource": "there are no assets here",
    "--datavolume": "there are no assets here",
    "--template": "there are no templates here",
    "--compute": "there are no assets here: use -g, --cpu-core-request, --cpu-memory-request",
}
"""Without them the job would not be what was asked for."""


def options(function: _Function) -> _Function:
    for flag in _SWITCHES:
        function = click.option(flag, is_flag=True, hidden=True)(function)
    for flag in _VALUES:
        function = click.option(flag, metavar="VALUE", hidden=True)(function)
    for flag in _REFUSED:
        function = click.option(flag, metavar="VALUE", hidden=True)(function)
    return click.option(
        "-v",
        "--volume",
        multiple=True,
        metavar="SOURCE:TARGET[:ro]",
        help="Accepted; a job here sees this machine's own files.",
    )(function)


def refuse(given: Mapping[str, Any]) -> None:
    """A UsageError for the first that cannot be had, and for a volume that is none."""
    for flag, instead in _REFUSED.items():
        if given[_name(flag)] is not None:
            raise click.UsageError(f"{flag} cannot be had: tasks are processes of one machine; {instead}.")
    for text in given["volume"]:
        parts = text.split(":")
        if not 2 <= len(parts) <= 4 or not all(parts[:2]) or not parts[1].startswith("/"):
            raise click.UsageError(f"-v {text}: expected SOURCE:TARGET, as in -v /data:/data.")


def note(session: Session, given: Mapping[str, Any]) -> None:
    """Say what was given in vain."""
    vain = [flag for flag in (*_SWITCHES, *_VALUES) if given[_name(flag)]]
    if vain:
        session.note(f"Note: without effect here, where tasks are processes: {', '.join(vain)}.")
    for text in given["volume"]:
        source, target = text.split(":")[:2]
        if source.rstrip("/") != target.rstrip("/"):
            session.note(f"Note: {source} is not mounted at {target}: a job here finds it where it is.")


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
