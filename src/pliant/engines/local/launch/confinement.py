"""Checks whether a task can get a view of the file system in which the node's files for it are read-only."""

import subprocess
import tempfile
from collections.abc import Sequence

SECONDS = 10


def writable(program: Sequence[str]) -> str:
    """Why a task here could change what the node wrote for it, for people; empty if it cannot.

    `program` is the supervisor; only the native one prevents it, and only where namespaces may be created.
    """
    if len(program) != 1:
        return "the native supervisor was not built, so that its limits lie in a file that it could change"
    with tempfile.TemporaryDirectory(prefix="pliant-") as folder:
        try:
            done = subprocess.run(
                [*program, "--confine", folder], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        else:
            if done.returncode == 0:
                return ""
            said = done.stdout.strip() or f"exit code {done.returncode}"
    return f"its limits lie in a file that it could change, because this machine refuses {said}"


def inside(program: Sequence[str], read_only: str | None, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` in the view of a task whose read-only folder is `read_only`."""
    return [*program, "--confine", read_only, "--", *argv] if read_only else list(argv)
