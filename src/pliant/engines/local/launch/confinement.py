"""Whether a task can be given a view of the files in which what the node wrote for it is read-only."""

import subprocess
import tempfile
from collections.abc import Sequence

SECONDS = 10


def writable(program: Sequence[str]) -> str:
    """Why a task here could change what the node wrote, for people; empty: it can be kept from that.

    `program` is the supervisor; only the native one can do it, and only where namespaces may be made.
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
    """How a command is run with the view of a task whose folder `read_only` is."""
    return [*program, "--confine", read_only, "--", *argv] if read_only else list(argv)
