"""What mpirun calls instead of ssh: starts a command inside a worker of the same workload, on this machine.

Usage: python -S -E mpi_agent.py FOLDER SEALED NAME [ssh options] HOST COMMAND...

FOLDER is <state>/attempts/<workload id>, SEALED <state>/sealed/<workload id>; HOST is NAME-<task>. The
command gets the environment of that task: it sees the task's GPUs, belongs to its attempt and ends with it.
Standard library only.
"""

import json
import os
import re
import sys
from pathlib import Path


def order_of(folder: Path, sealed: Path, task: str) -> tuple[dict[str, str], str]:
    """(environment, working directory) of the task's living attempt. Raises LookupError."""
    found = [path for path in folder.glob(f"{task}/*") if path.name.isdigit()]
    newest = max(found, key=lambda path: int(path.name), default=None)
    if newest is None or not (newest / "claim").exists() or (newest / "exit.json").exists():
        raise LookupError(f"{task} does not run")
    env: dict[str, str] = json.loads((sealed / f"{task}.{newest.name}").read_text())
    return env, json.loads((newest / "order.json").read_text())["cwd"]


def main(words: list[str]) -> int:
    """Becomes the command; returns an exit status only if it cannot."""
    folder, sealed, name, *rest = words
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if re.fullmatch("-[bceFiIlmopRSw]", rest[0]) else rest[1:]
    if len(rest) < 2:
        print("mpi_agent: HOST COMMAND... is missing", file=sys.stderr)
        return 255
    host, *command = rest
    try:
        env, cwd = order_of(Path(folder), Path(sealed), host.removeprefix(f"{name}-"))
    except (LookupError, OSError, ValueError) as error:
        print(f"mpi_agent: {host}: {error}", file=sys.stderr)
        return 255  # as ssh does without a connection
    os.chdir(cwd)
    os.execve("/bin/sh", ["sh", "-c", " ".join(command)], env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
