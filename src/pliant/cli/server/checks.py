"""What jobs of this shell need: checks with a status, and a command to type where something is missing."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from typing import Literal, NamedTuple

from pliant.cli.output.amounts import show_bytes

Status = Literal["ok", "warn", "fail"]
LEAST_FREE = 5
"""Percent of the disk below which kept files of deleted jobs are removed early."""

LEAST_FILES = 1024
TRIED = (
    "import importlib.util as u, sys\n"
    "t = u.find_spec('torch') and __import__('torch')\n"
    "print(sys.version.split()[0], (t.__version__ if t else '-'), (t.version.cuda if t else None) or '-',"
    " 'yes' if u.find_spec('safetensors') else 'no')\n"
)
"""Run by the Python of the shell: its version, torch, the CUDA that torch was built for, safetensors."""


class Check(NamedTuple):
    what: str
    status: Status
    text: str


def of_shell(state: str, local: bool) -> list[Check]:
    """`local`: the server is found by its state folder, so it runs on this machine."""
    where = "on this machine" if local else "named by its address: jobs start in their job folder"
    return [
        Check("server", "ok" if local else "warn", where),
        _directory(),
        *_python(),
        _program("jupyter", ("jupyter-lab", "jupyter-notebook", "jupyter-server"), "pip install jupyterlab"),
        _program("sshd", ("sshd", "/usr/sbin/sshd"), "install the OpenSSH server"),
        _program("VS Code", ("code",), "install the `code` command line"),
        _disk("state folder", state),
        _disk("/dev/shm", "/dev/shm"),
        _files(),
    ]


def _directory() -> Check:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return Check("directory", "fail", "the current directory no longer exists: change to another one")
    if not os.access(here, os.R_OK | os.X_OK):
        return Check("directory", "fail", f"{here} is not accessible")
    return Check("directory", "ok", here if os.access(here, os.W_OK) else f"{here}, which is read-only")


def _python() -> list[Check]:
    program = shutil.which("python")
    if program is None:
        return [Check("python", "warn", "not in PATH: activate an environment, or use python3")]
    try:
        words = [program, "-c", TRIED]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Check("python", "fail", f"{program} does not run: {error}")]
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [Check("python", "fail", f"{program}: {lines[-1]}")]
    version, torch, cuda, safe = done.stdout.split()
    found = [Check("python", "ok", f"{program} {version}")]
    if torch == "-":
        return [*found, Check("torch", "warn", "not installed: pip install 'pliant[train]'")]
    found.append(
        Check("torch", "ok", f"{torch}, built for {'the CPU only' if cuda == '-' else f'CUDA {cuda}'}")
    )
    if safe == "no":
        found.append(Check("safetensors", "warn", "not installed: pip install 'pliant[train]'"))
    return found


def _program(what: str, names: tuple[str, ...], cure: str) -> Check:
    found = next((path for name in names if (path := shutil.which(name))), None)
    return Check(what, "ok" if found else "warn", found or f"not found: {cure}")


def _disk(what: str, folder: str) -> Check:
    path = folder
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        seen = os.statvfs(path)
    except OSError as error:
        return Check(what, "fail", f"{folder}: {error.strerror}")
    free, whole = seen.f_bavail * seen.f_frsize, max(1, seen.f_blocks * seen.f_frsize)
    text = f"{folder}: {show_bytes(free)} of {show_bytes(whole)} free"
    if not free:
        return Check(what, "fail", f"{text}: remove files there")
    return Check(what, "warn" if free * 100 < whole * LEAST_FREE else "ok", text)


def _files() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < LEAST_FILES:
        return Check("open files", "warn", f"at most {soft} for a process: ulimit -n {LEAST_FILES}")
    return Check("open files", "ok", "no limit" if soft < 0 else f"at most {soft} for a process")
