"""Captures the working directory and environment of the submitting shell for a submission."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pliant.cli.session import Session

if TYPE_CHECKING:
    from pliant.wire.submission import Captured, Spec

_Function = TypeVar("_Function", bound=Callable[..., Any])

JOB_FOLDER = "@job"
MOST_BYTES = 128 * 1024
"""Most bytes of a captured environment; the server refuses more."""

LEFT_OUT = (
    "DISPLAY", "XAUTHORITY", "SSH_*", "DBUS_*", "XDG_SESSION_*", "XDG_RUNTIME_DIR", "TERM*", "TMUX*", "STY",
    "SHLVL", "PWD", "OLDPWD", "_", "PS1", "LS_COLORS", "BASH_FUNC_*", "SUDO_*", "LD_PRELOAD", "PLIANT_*",
    "RUNAI_*", "SLURM_*", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE",
    "LOCAL_RANK", "MASTER_*",
)  # fmt: skip
"""Variables of a terminal, a session or another job, which are not captured unless --export names them."""


def options(function: _Function) -> _Function:
    for decorate in reversed(
        (
            click.option(
                "--working-dir",
                metavar="DIR",
                help="Directory to start in (default: the current one); @job: the job's own folder.",
            ),
            click.option(
                "--export",
                metavar="ALL|NONE|NAMES",
                help="Variables of this shell for the job: ALL (default on the server's machine), NONE or "
                "NAME[,NAME=VALUE].",
            ),
            click.option(
                "--env-file",
                multiple=True,
                metavar="FILE",
                help="Variables from a file, NAME=VALUE per line.",
            ),
            click.option(
                "--secret",
                multiple=True,
                metavar="K[=@FILE]",
                help="Variable whose value is taken from this shell, or from a file (repeatable).",
            ),
        )
    ):
        function = decorate(function)
    return function


def spec(session: Session, given: Mapping[str, Any]) -> Spec:
    """The fields of a request for the working directory and environment. Raises UsageError."""
    made = _folder(given["working_dir"])
    if found := _variables(given["env_file"], given["environmentVariables"], given["secret"]):
        made["environmentVariables"] = [{"name": name, "value": value} for name, value in found.items()]
    # By default a server that was found by its URL gets no environment: only a Unix socket proves the account
    # of the server.
    local = session.endpoint.socket is not None
    export = given["export"] or ("ALL" if local else "NONE")
    if (captured := _captured(session, export)) is not None:
        made["capturedEnvironment"] = captured
    return made


def _folder(asked: str | None) -> Spec:
    if asked == JOB_FOLDER:
        return {"workingDir": JOB_FOLDER}
    try:
        here = _current()
    except FileNotFoundError:
        raise click.UsageError("the current directory no longer exists: change to another one.") from None
    path = here if asked is None else os.path.normpath(os.path.join(here, os.path.expanduser(asked)))
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise click.UsageError(f"working directory {path} does not exist.") from None
    except OSError as error:
        raise click.UsageError(f"working directory {path} is not accessible: {error.strerror}.") from None
    if not os.path.isdir(path):
        raise click.UsageError(f"working directory {path} is not a directory.")
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    made: Spec = {
        "submittedFrom": {"path": path, "device": found.st_dev, "inode": found.st_ino, "bootId": boot}
    }
    if asked is not None:
        made["workingDir"] = path
    return made


def _current() -> str:
    """The current directory: the shell's name for it (PWD) if that is right, else its real path."""
    path, said = os.getcwd(), os.environ.get("PWD", "")
    try:
        return said if said.startswith("/") and os.path.samefile(said, path) else path
    except OSError:
        return path


def _variables(files: Sequence[str], entries: Sequence[str], secrets: Sequence[str]) -> dict[str, str]:
    """Values by name; a later value wins, in the order --env-file, -e, --secret. Raises UsageError."""
    found: dict[str, str] = {}
    for path in files:
        for number, line in enumerate(_read(path, "--env-file").splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                name, value = _pair(line.strip(), f"--env-file {path}, line {number}:")
                found[name] = value
    for entry in entries:
        name, value = _pair(entry, "-e")
        found[name] = value
    for entry in secrets:
        name, equals, source = entry.partition("=")
        if equals and not source.startswith("@"):
            raise click.UsageError(
                f"--secret {name}: other users of this machine can read its value on the command line. "
                f"Use --secret {name}=@FILE, or --secret {name} to take it from this shell."
            )
        found[name] = _read(source[1:], "--secret").rstrip("\n") if equals else _own(name, "--secret")
    return found


def _pair(entry: str, flag: str) -> tuple[str, str]:
    """(name, value) of NAME=VALUE; NAME alone takes its value from this shell. Raises UsageError."""
    name, equals, value = entry.partition("=")
    if not name:
        raise click.UsageError(f"{flag} {entry}: expected NAME=VALUE.")
    return name, value if equals else _own(name, flag)


def _own(name: str, flag: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise click.UsageError(f"{flag} {name}: {name} is not set in this shell.")
    if not _is_text(value):
        raise click.UsageError(f"{flag} {name}: the value of {name} is not UTF-8 text.")
    return value


def _read(path: str, flag: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{flag} {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{flag} {path}: not UTF-8 text.") from None


def _captured(session: Session, export: str) -> Captured | None:
    """The environment that --export selects; None for none. Raises UsageError."""
    first, _, rest = export.partition(",")
    if first in ("NONE", "NIL"):
        if not rest:
            return None
        export = rest  # only these, as without NONE
    whole = first == "ALL"
    found: dict[str, str] = {}
    if whole:
        unsaid = []
        for name, value in os.environ.items():
            if any(fnmatchcase(name, pattern) for pattern in LEFT_OUT):
                continue
            if _is_text(name) and _is_text(value):
                found[name] = value
            else:
                unsaid.append(name.encode(errors="replace").decode())
        if unsaid:
            session.note(f"Note: {', '.join(unsaid)} is left out: not UTF-8 text.")
    for entry in (rest if whole else export).split(","):
        if entry:
            name, value = _pair(entry, "--export")
            found[name] = value
    size = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in found.items())
    if size > MOST_BYTES:
        raise click.UsageError(
            f"The environment is {size // 1024} KiB; at most {MOST_BYTES // 1024} KiB can be captured. "
            "Use --export NAME,..."
        )
    return {"variables": found, "whole": whole}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
