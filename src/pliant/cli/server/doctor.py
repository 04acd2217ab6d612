"""doctor: checks this shell, a job or a cluster, and which limits of GPU shares are enforced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, cast

import click

from pliant.cli.lazy import Command
from pliant.cli.output.formats import output_options, project_option, show
from pliant.cli.output.tables import table
from pliant.cli.server import checks
from pliant.cli.session import Session, pass_session
from pliant.client.errors import PliantError, Unreachable
from pliant.client.locate import state_folder


@click.command("doctor", cls=Command, short_help="Check this shell and this machine.")
@click.option("--job", metavar="NAME", help="Check what this job needs to start again instead.")
@click.option("--kube", is_flag=True, help="Check a Kubernetes cluster instead: rights, resources, nodes.")
@click.option(
    "--kubeconfig", metavar="FILE", help="With --kube: kubeconfig file (default: the one that kubectl uses)."
)
@project_option
@output_options
@pass_session
def doctor(session: Session, job: str | None, kube: bool, kubeconfig: str | None) -> int:
    """Check what jobs of this shell need, and show which limits of GPU shares are enforced on this machine.

    Returns 1 if a check fails. Without a running server the command checks the machine itself.
    """
    if job is not None:
        return _one_job(session, job)
    if kube:
        return _cluster(session, kubeconfig)
    try:
        found: list[Any] = list(session.client.doctor()["findings"])
    except Unreachable:
        if session.server:
            raise
        found = of_machine(state_folder(session.state))
    own = checks.of_shell(
        state_folder(session.state), not (session.server or os.environ.get("PLIANT_SERVER"))
    )

    def rows() -> str:
        lines = [[one["what"], "yes" if one["holds"] else "no", one["text"]] for one in found]
        shares = table(("WHAT", "HOLDS", "HOW, OR WHY NOT"), lines, headers=session.headers)
        mine = [[one.what, one.status, one.text] for one in own]
        return f"{table(('CHECK', 'STATUS', 'DETAILS'), mine, headers=session.headers)}\n\n{shares}"

    told = [
        *(
            {"what": one.what, "holds": one.status == "ok", "status": one.status, "text": one.text}
            for one in own
        ),
        *({**one, "status": "ok" if one["holds"] else "warn"} for one in found),
    ]
    show(session, told, rows)
    return int(any(one.status == "fail" for one in own))


def _one_job(session: Session, name: str) -> int:
    item = session.find(name)
    found = checks.of_job(item, session.client.folders(item["id"])["workingDir"] or "")
    show(
        session,
        [
            {"what": one.what, "holds": one.status == "ok", "status": one.status, "text": one.text}
            for one in found
        ],
        lambda: table(("CHECK", "STATUS", "DETAILS"), found, headers=session.headers),
    )
    return int(any(one.status == "fail" for one in found))


def _cluster(session: Session, kubeconfig: str | None) -> int:
    words = ["--kube", *(("--kubeconfig", kubeconfig) if kubeconfig else ())]
    found = of_machine(state_folder(session.state), *words)
    lines = [[one["what"], "yes" if one["holds"] else "no", one["text"]] for one in found]
    show(session, found, lambda: table(("WHAT", "HOLDS", "HOW, OR WHY NOT"), lines, headers=session.headers))
    return int(not all(one["holds"] for one in found))


def of_machine(state: str, *more: str) -> list[Any]:
    """What the server's program finds; needs no running server. Raises PliantError."""
    words = [sys.executable, "-m", "pliant.app", "doctor", "--state", state, *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        if more:
            raise PliantError(said[-1].removeprefix("pliant: "))
        raise PliantError(f"This machine cannot be examined: {said[-1]}", "Start a server with `pliant up`.")
    return cast("list[Any]", json.loads(done.stdout))
