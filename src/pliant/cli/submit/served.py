"""The web programs of the submitter's shell that a session runs: how to start and recognize each."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class Served(NamedTuple):
    """A kind of web program, with its flag of `submit`."""

    flag: str
    title: str
    programs: tuple[str, ...]  # in the order of the search
    cure: str  # the error if none is installed
    secret: str  # variable that holds its token or password; '' if it has none


JUPYTER = Served(
    "jupyter",
    "Jupyter",
    ("jupyter-lab", "jupyter-notebook", "jupyter-server"),
    "No jupyter in the job's PATH. Run: pip install jupyterlab",
    "JUPYTER_TOKEN",
)
VSCODE = Served(
    "vscode",
    "VS Code",
    ("openvscode-server", "code-server", "code"),
    "No code-server in the job's PATH. Run: npm install --global --unsafe-perm code-server",
    "PASSWORD",
)
TENSORBOARD = Served(
    "tensorboard",
    "TensorBoard",
    ("tensorboard",),
    "No tensorboard in the job's PATH. Run: pip install tensorboard",
    "",
)
ALL = (JUPYTER, VSCODE, TENSORBOARD)
TUNNEL = "code"
"""VS Code's own program: it listens on no port, and prints its login address and its address."""

_PAGES = {"jupyter-lab": "lab", "jupyter-notebook": "tree"}
_WITH_TOKEN = (
    'umask 077; printf %s "$PASSWORD" > "$PLIANT_JOB_DIR/vscode-token"; unset PASSWORD; '
    "exec openvscode-server --host 127.0.0.1 --port {port} "
    '--connection-token-file "$PLIANT_JOB_DIR/vscode-token" --default-folder "$PWD"'
)
"""The token is passed in a file: every user of the machine can read a program's arguments."""


def asked(given: Mapping[str, Any]) -> Served | None:
    """The kind whose flag was given; None if none was. Raises UsageError for two."""
    found = [it for it in ALL if given[it.flag]]
    if len(found) > 1:
        raise click.UsageError(f"--{found[0].flag} and --{found[1].flag} exclude each other.")
    return found[0] if found else None


def command(program: str, port: int, given: Mapping[str, Any]) -> list[str]:
    if program == "openvscode-server":
        return ["sh", "-c", _WITH_TOKEN.format(port=port)]
    if program == TUNNEL:
        return [program, "tunnel", "--accept-server-license-terms"]
    if program == "code-server":
        quiet = ["--disable-telemetry", "--disable-update-check"]
        return [program, f"--bind-addr=127.0.0.1:{port}", "--auth=password", *quiet, "."]
    if program == "tensorboard":
        folder = os.path.abspath(given["tensorboard"])
        return [program, "--host=127.0.0.1", f"--port={port}", f"--logdir={folder}"]
    words = [program, "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    return [*words, "--allow-root"] if os.geteuid() == 0 else words


def of_command(line: str) -> tuple[Served, str] | None:
    """(kind, program) of a session that runs this command line; None for other command lines."""
    try:
        words = re.split(r"\s+", " ".join(shlex.split(line)))
    except ValueError:
        return None
    return next(((it, name) for it in ALL for name in it.programs if name in words), None)


def url(program: str, port: int, token: str) -> str:
    """The URL of the program, with the token if the program takes one in the URL."""
    base = f"http://127.0.0.1:{port}/"
    if program == "openvscode-server":
        return f"{base}?tkn={token}"
    if program in JUPYTER.programs:
        return f"{base}{_PAGES.get(program, '')}?token={token}"
    return base


def answers(program: str, port: int, token: str, argv: list[str]) -> bool:
    """True if this very program listens on the port and accepts the token."""
    import http.client

    path, headers = "/healthz", {}
    if program in JUPYTER.programs:
        path, headers = "/api/status", {"Authorization": f"token {token}"}
    elif program == "openvscode-server":
        path = f"/?tkn={token}"
    elif program == "tensorboard":
        path = "/data/environment"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if program == "tensorboard":
            return f"--logdir={json.loads(answer.read()).get('data_location')}" in argv
        return answer.status in (200, 302)  # VS Code sets a cookie and redirects
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        return False
    finally:
        connection.close()
