"""Options for containers and clusters: some have no effect here, the others are refused with advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from pliant.cli.session import Session
from pliant.cli.submit.grouped import NoEffect

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
"""Accepted with a note that they have no effect, as are _SWITCHES."""

_REFUSED = {
    "--mig": "share a GPU with -g 0.5 or --gpu-memory AMOUNT",
    "--mig-profile": "share a GPU with -g 0.5 or --gpu-memory AMOUNT",
    "--extended-resource": "request GPUs with -g, CPU with --cpu and memory with --memory",
    "--pvc": "a job sees the files of this machine; use --working-dir DIR",
    "--pvc-new": "a job sees the files of this machine; use --working-dir DIR",
    "--pvc-exists": "a job sees the files of this machine; use --working-dir DIR",
    "--new-pvc": "a job sees the files of this machine; use --working-dir DIR",
    "--existing-pvc": "a job sees the files of this machine; use --working-dir DIR",
    "--host-path": "a job sees the files of this machine; use --working-dir DIR",
    "--empty-dir-volume": "use the job folder, $PLIANT_JOB_DIR",
    "--nfs": "mount it on the machine, then use --working-dir DIR",
    "--nfs-server": "mount it on the machine, then use --working-dir DIR",
    "--s3": "copy the files to the machine, then use --working-dir DIR",
    "--git-sync": "run `git clone` on the machine, then use --working-dir DIR",
    "--configmap-map-volume": "use a file in --working-dir DIR",
    "--secret-volume": "use -e NAME=VALUE",
    "--datasource": "a job sees the files of this machine; use --working-dir DIR",
    "--datavolume": "a job sees the files of this machine; use --working-dir DIR",
    "--template": "give its options on the command line",
    "--env-secret": "use --secret NAME, or --secret NAME=@FILE",
    "--env-credential": "use --secret NAME, or --secret NAME=@FILE",
    "--environment-template": "give its options on the command line",
    "--compute": "use -g, --cpu-core-request and --cpu-memory-request",
}
"""Refused, since the job would differ without them; with what to use instead."""


def options(function: _Function) -> _Function:
    for flag in reversed(_SWITCHES):
        function = click.option(flag, is_flag=True, cls=NoEffect)(function)
    for flag in reversed(_VALUES):
        function = click.option(flag, metavar="VALUE", cls=NoEffect)(function)
    for flag in _REFUSED:
        function = click.option(flag, metavar="VALUE", hidden=True)(function)
    return click.option(
        "-v",
        "--volume",
        cls=NoEffect,
        multiple=True,
        metavar="SOURCE:TARGET[:ro]",
        help="Accepted; a job here sees this machine's own files.",
    )(function)


def refuse(given: Mapping[str, Any]) -> None:
    """Raise a UsageError for the first option that is not supported, and for a malformed volume."""
    for flag, instead in _REFUSED.items():
        if given[_name(flag)] is not None:
            raise click.UsageError(f"{flag} is not supported: {instead}.")
    for text in given["volume"]:
        parts = text.split(":")
        if not 2 <= len(parts) <= 4 or not all(parts[:2]) or not parts[1].startswith("/"):
            raise click.UsageError(f"-v {text}: expected SOURCE:TARGET, as in -v /data:/data.")


def note(session: Session, given: Mapping[str, Any]) -> None:
    """Print which given options have no effect."""
    vain = [flag for flag in (*_SWITCHES, *_VALUES) if given[_name(flag)]]
    if vain:
        verb = "has" if len(vain) == 1 else "have"
        session.note(f"Note: {', '.join(vain)} {verb} no effect: jobs run as processes of this machine.")
    for text in given["volume"]:
        source, target = text.split(":")[:2]
        if source.rstrip("/") != target.rstrip("/"):
            session.note(f"Note: {source} is not mounted at {target}; the job sees it as {source}.")


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
