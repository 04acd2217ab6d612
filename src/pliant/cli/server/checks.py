"""Checks what jobs of this shell need; where something is missing, a check names the command to type."""

from __future__ import annotations

import os
import pwd
import resource
import shlex
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pliant.cli.output.amounts import counted, show_bytes
from pliant.cli.submit.served import JUPYTER, TENSORBOARD, VSCODE

if TYPE_CHECKING:
    from pliant.wire.workload import WorkloadItem

Status = Literal["ok", "warn", "fail"]
LEAST_FREE = 5
"""Free percent of the disk below which kept files of deleted jobs are removed early."""

LEAST_FILES = 1024
TRIED = (
    "import ctypes, importlib.util as u, sys\n"
    "t = u.find_spec('torch') and __import__('torch')\n"
    "newest = ctypes.c_int(0)\n"
    "try:\n"
    "    ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(newest))\n"
    "except (AttributeError, OSError):\n"
    "    pass\n"
    "print(sys.version.split()[0], (t.__version__ if t else '-'), (t.version.cuda if t else None) or '-',"
    " 'yes' if u.find_spec('safetensors') else 'no', newest.value)\n"
)
"""Code for the Python of the shell: prints the versions of Python, torch and torch's CUDA, whether
safetensors is installed, and the newest CUDA that the driver supports (13020 for 13.2; 0: no driver)."""


class Check(NamedTuple):
    what: str
    status: Status
    text: str


def of_shell(state: str, local: bool) -> list[Check]:
    """The checks of this shell; `local`: the server, found by its state folder, runs on this machine."""
    where = "on this machine" if local else "named by its address: jobs start in their job folder"
    return [
        Check("server", "ok" if local else "warn", where),
        *(_account(state) if local and os.path.isdir(state) else ()),
        _directory(),
        *_python(),
        _program("jupyter", JUPYTER.programs, "pip install jupyterlab"),
        _program("sshd", ("sshd", "/usr/sbin/sshd"), "install the OpenSSH server"),
        _program("VS Code", VSCODE.programs, "npm install --global --unsafe-perm code-server"),
        _program("tensorboard", TENSORBOARD.programs, "pip install tensorboard"),
        _disk("state folder", state),
        _disk("/dev/shm", "/dev/shm"),  # only read, never written  # nosec B108
        _files(),
    ]


def of_job(item: WorkloadItem, folder: str) -> list[Check]:
    """Checks what a job needs to start again on this machine; its tasks start in `folder`."""
    found = [_folder(folder)]
    words = shlex.split(f"{item['command']} {item['arguments']}")
    if words and not item["images"]:
        found.append(_command(words, folder))
    if names := item["environmentVariables"]:
        found.append(Check("variables", "ok", f"{counted(len(names), 'variable')}: {' '.join(names)}"))
    if item["phase"] == "Failed":
        found.append(Check("last failure", "fail", item["phaseMessage"] or "no reason was recorded"))
    return found


def _folder(folder: str) -> Check:
    if not os.path.isdir(folder):
        return Check("working directory", "fail", f"{folder} does not exist: create it, or submit again")
    if not os.access(folder, os.R_OK | os.X_OK):
        return Check("working directory", "fail", f"{folder} is not accessible")
    return Check("working directory", "ok", folder)


def _command(words: Sequence[str], folder: str) -> Check:
    """Checks that the program (in this shell's PATH) and its script exist."""
    program = os.path.join(folder, words[0]) if "/" in words[0] else shutil.which(words[0])
    if program is None or not os.access(program, os.X_OK):
        return Check("command", "fail", f"{words[0]} is not found or not executable")
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), None)
    if script is not None and not os.path.exists(os.path.join(folder, script)):
        return Check("command", "fail", f"{script} does not exist in {folder}")
    return Check("command", "ok", " ".join(words))


def _directory() -> Check:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return Check("directory", "fail", "the current directory no longer exists: change to another one")
    if not os.access(here, os.R_OK | os.X_OK):
        return Check("directory", "fail", f"{here} is not accessible")
    return Check("directory", "ok", here if os.access(here, os.W_OK) else f"{here}, which is read-only")


def _account(state: str) -> list[Check]:
    """Checks the account of the server, which jobs run as; it owns the state folder."""
    owner = os.stat(state).st_uid
    if owner == os.geteuid():
        return [Check("server account", "ok", "yours: jobs run as you")]
    try:
        entry = pwd.getpwuid(owner)
        name, groups = entry.pw_name, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        name, groups = str(owner), []
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return []  # the next check reports it
    closed = next((it for it in (*reversed(here.parents), here) if not _enters(it, owner, groups)), None)
    if closed is None:
        return [Check("server account", "ok", f"jobs run as {name}, which may enter {here}")]
    cure = f"chmod a+x {shlex.quote(str(closed))}, or submit with --working-dir @job"
    return [Check("server account", "fail", f"jobs run as {name}, which may not enter {closed}: {cure}")]


def _enters(folder: Path, uid: int, groups: Sequence[int]) -> bool:
    """True if the mode of the folder lets that account enter it; ACLs are ignored."""
    seen = folder.stat()
    if uid == seen.st_uid or uid == 0:
        return uid == 0 or bool(seen.st_mode & stat.S_IXUSR)
    return bool(seen.st_mode & (stat.S_IXGRP if seen.st_gid in groups else stat.S_IXOTH))


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
    version, torch, cuda, safe, newest = done.stdout.split()
    found = [Check("python", "ok", f"{program} {version}")]
    if torch == "-":
        return [*found, Check("torch", "warn", "not installed: pip install 'pliant[train]'")]
    found.append(_torch(torch, cuda, int(newest)))
    if safe == "no":
        found.append(Check("safetensors", "warn", "not installed: pip install 'pliant[train]'"))
    return found


def _torch(version: str, cuda: str, newest: int) -> Check:
    """Compares torch's CUDA with the driver; a driver with the same or a newer major version suffices."""
    if cuda == "-":
        text = f"{version}, built for the CPU only"
        return Check("torch", "warn", f"{text}: it uses no GPU") if newest else Check("torch", "ok", text)
    built, drives = f"{version}, built for CUDA {cuda}", f"{newest // 1000}.{newest % 1000 // 10}"
    if not newest:
        return Check("torch", "ok", f"{built}; there is no driver")
    if newest // 1000 < int(cuda.partition(".")[0]):
        cure = f"update the driver, or install a torch for CUDA {newest // 1000}"
        return Check("torch", "fail", f"{built}; the driver supports CUDA {drives} at most: {cure}")
    return Check("torch", "ok", f"{built}; the driver supports CUDA {drives}")


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
