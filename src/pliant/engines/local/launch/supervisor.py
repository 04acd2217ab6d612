"""Starts the supervisor: the process that runs an attempt and outlives the server."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pliant.engines.local.folder.layout import Folder

_LOCAL = Path(__file__).parents[1]
NATIVE = _LOCAL / "bin" / "pliant-supervise"
FALLBACK = (sys.executable, "-S", "-E", str(_LOCAL / "fallback" / "supervise.py"))
"""The command of the supervisor in Python, for machines where the native one was not built."""

READY_SECONDS = 60  # for a supervisor to report that the task runs; then it is watched like an adopted one


def command() -> tuple[tuple[str, ...], str]:
    """(command of the supervisor, why it is not the native one or '')."""
    if os.access(NATIVE, os.X_OK):
        return (str(NATIVE),), ""
    return (
        FALLBACK,
        "tasks run under the Python supervisor, about 10 MiB each: the native one was not built "
        "(install a C compiler and install Pliant again)",
    )


def spawn(
    program: Sequence[str],
    folder: Folder,
    order: Mapping[str, Any],
    env: Mapping[str, str],
    lock: int,
    log_max: int,
    log_keep: int,
) -> tuple[int, int]:
    """(its pidfd, descriptor to read its answer from). It shares the lock. Raises OSError, ValueError.

    The environment is passed as the supervisor's environment and is never part of an argument.
    """
    answer, said = os.pipe()
    argv = [
        *program,
        f"--dir={folder.path}",
        f"--lock-fd={lock}",
        f"--ready-fd={said}",
        f"--grace-ms={order['grace_ms']}",
        f"--log-max={log_max}",
        f"--log-keep={log_keep}",
        f"--cwd={order['cwd']}",
        *([f"--read-only={order['read_only']}"] if order.get("read_only") else []),
        *(["--tty"] if order["tty"] else []),
        *(["--stdin"] if order["stdin"] else []),
        "--",
        *order["argv"],
    ]
    try:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock, said),
            start_new_session=True,
        )
        process.returncode = 0  # it is reaped by its pidfd, also by an engine that did not start it
        pidfd = os.pidfd_open(process.pid)
    except BaseException:
        os.close(answer)
        raise
    finally:
        os.close(said)
    return pidfd, answer


def answered(answer: int) -> str | None:
    """The supervisor's answer: 'started PID', 'error …', '' if it died; None if it took too long.

    Closes `answer`.
    """
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    deadline, text = time.monotonic() + READY_SECONDS, b""
    try:
        while not text.endswith(b"\n"):
            if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                return None
            more = os.read(answer, 4096)
            if not more:
                break
            text += more
    finally:
        os.close(answer)
    return text.decode(errors="replace").strip()


def reap(pidfd: int) -> int | None:
    """Reap an ended child; its exit code, or None if it was killed or is not a child of this process."""
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None  # started by an earlier server
    return found.si_status if found is not None and found.si_code == os.CLD_EXITED else None
