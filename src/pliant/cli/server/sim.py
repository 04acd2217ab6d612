"""sim: runs the scheduler on a trace. The simulator is a separate process: docs/adr/0022."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import duration
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import BadRequest, PliantError

WRONG_INPUT = 2

MOST_PROJECTS = 30
"""Most lines of the table of fairness."""

sim = LazyGroup(
    {
        "Commands": {
            "run": "pliant.cli.server.sim:run",
            "compare": "pliant.cli.server.sim:compare",
            "packing": "pliant.cli.server.sim:packing",
        }
    },
    name="sim",
    help="Run the scheduler on a trace. No server is needed.",
)


@click.command(
    "packing", cls=Command, short_help="Measure how full a cluster gets before a job no longer fits."
)
@click.option("--nodes", required=True, type=click.Path(), metavar="FILE", help="CSV with one line per node.")
@click.option(
    "--pods",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="CSV with one line per pod, in order of arrival.",
)
@click.option(
    "--moves",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Maximum number of moves of running pods in any 1,000 arrivals (default: 0, no pod is moved).",
)
@output_options
@pass_session
def packing(session: Session, nodes: str, pods: str, moves: int) -> None:
    """Submit pods one by one, without ending any, and print the share of allocated GPUs.

    The files have the columns of the openb trace: sn, cpu_milli, memory_mib, gpu, model for nodes and
    cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec for pods, plain or with names that end in .gz. A pod
    that does not fit when it arrives is dropped. With --moves, the scheduler first tries to move running pods
    so that it fits (consolidation).
    """
    found = _simulated(session, ["packing", "--nodes", nodes, "--pods", pods, "--moves", str(moves)])
    if not structured(session, found):
        click.echo(_table(found))


@click.command("run", cls=Command, short_help="Run the scheduler on a trace of jobs.")
@click.argument("trace", type=click.Path())
@click.option("--nodes", type=click.Path(), metavar="FILE", help="CSV with the nodes, for Philly and openb.")
@click.option("--policy", type=click.Path(), metavar="FILE", help="TOML: settings, quotas, nodes to add.")
@click.option("--config", metavar="NAME", help="Configuration of Kueue's generator (default: the first).")
@click.option(
    "--seed",
    type=int,
    default=0,
    metavar="N",
    help="Random seed of the order of simultaneous jobs; 0: the order of the file.",
)
@click.option(
    "--checkpoint", metavar="TIME", help="Time between checkpoints of a job (default: none is lost)."
)
@click.option("--restart", metavar="TIME", help="Time that a stopped job needs to restart (default: 0s).")
@click.option("--out", type=click.Path(), metavar="FOLDER", help="Folder for JSON, CSV and one HTML page.")
@output_options
@pass_session
def run(session: Session, trace: str, **given: Any) -> None:
    """Run the server's scheduling loop on a trace with a virtual clock, and print the results.

    TRACE is a folder with jobs.csv, nodes.csv and projects.csv; a state folder or its record (what happened
    on that server); a debug bundle; Philly's jobs; openb's pods; or the configuration of Kueue's generator.
    The same trace, policy and seed give the same bytes. With --out, an interrupted run continues when it is
    run again.
    """
    words = ["run", trace]
    for name in ("nodes", "policy", "config", "out"):
        words += [f"--{name}", given[name]] if given[name] else []
    for name in ("checkpoint", "restart"):
        words += [f"--{name}", str(round(duration(given[name], f"--{name}") * 1000))] if given[name] else []
    found = _simulated(session, [*words, "--seed", str(given["seed"])])
    facts = found.pop("facts")
    for warning in found["warnings"]:
        click.echo(f"Warning: {warning}.", err=True)
    if not structured(session, found):
        click.echo("\n".join(f"{name + ':':35}{value}" for name, value in facts))
        click.echo("\n" + _fairness(found["fairness"]["projects"]) + "\n")
        if given["out"]:
            click.echo(f"{'Results:':35}{given['out']}/report.html, result.json, jobs.csv, decisions.csv")


@click.command("compare", cls=Command, short_help="Compare the results of two runs.")
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@output_options
@pass_session
def compare(session: Session, a: str, b: str) -> None:
    """Print the results of two runs side by side, and the first decision that differs. A and B are folders
    written by `pliant sim run --out`.
    """
    found = _simulated(session, ["compare", a, b], counts=False)
    if structured(session, found):
        return
    click.echo(f"{'':35}{'A':>28}{'B':>28}")
    for name, mine, theirs in found["facts"]:
        click.echo(f"{name:35}{mine:>28}{theirs:>28}{'' if mine == theirs else '  *'}")
    differs = found["firstDifference"]
    if differs is None:
        click.echo("The decisions are equal, or were not recorded.")
        return
    for side in ("a", "b"):
        row = differs[side]
        said = (
            "none" if row is None else f"{row['verb']} {row['workload']} ({row['reason']}) at {row['ms']} ms"
        )
        click.echo(f"Decision {differs['number']} of {side.upper()}: {said}")


def _simulated(session: Session, words: list[str], *, counts: bool = True) -> dict[str, Any]:
    """The output of the simulator, which runs as a separate process. Raises PliantError, BadRequest."""
    line = [sys.executable, "-m", "pliant.sim", *words]
    if counts and not session.quiet:
        line.append("--progress")
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, WRONG_INPUT):
        raise PliantError(f"The simulator ended with code {done.returncode}.")
    found = cast("dict[str, Any]", json.loads(done.stdout))
    if done.returncode == WRONG_INPUT:
        raise BadRequest(found["error"])
    return found


def _fairness(projects: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of what each project got and was entitled to; the projects longest below quota come first."""
    head = ("PROJECT", "QUOTA", "GPU-HOURS", "ENTITLED", "BELOW QUOTA", "LONGEST")
    order = sorted(projects.items(), key=lambda it: (-it[1]["belowQuotaSeconds"], it[0]))
    rows = [
        (name, f"{it['quota']}".removesuffix(".0"), f"{it['gpuHours']:.2f}", f"{it['entitledGpuHours']:.2f}",
         f"{it['belowQuotaSeconds']} s", f"{it['longestBelowSeconds']} s")
        for name, it in order[:MOST_PROJECTS]
    ]  # fmt: skip
    more = len(order) - len(rows)
    rest = f"\n{more} more projects are in the JSON output (-o json)." if more > 0 else ""
    return table(head, rows, right=head[1:]) + rest


def _table(found: Mapping[str, Any]) -> str:
    def percent(name: str) -> str:
        share = found[name]
        return "never reached" if share is None else f"{share:.2f} %"

    moved = f", {found['moves']} moved" if found["moves"] else ""
    lines = (
        ("Nodes", found["nodes"]),
        ("GPUs", found["gpus"]),
        ("Pods", f"{found['pods']}, {found['placed']} placed{moved}"),
        ("GPUs asked for", percent("arrived")),
        ("Allocated when 100 % had arrived", percent("allocated_at_100")),
        ("Allocated when 130 % had arrived", percent("allocated_at_130")),
        ("Allocated at the end", percent("allocated")),
        ("Mean decision", f"{found['mean_decision_ms']:.2f} ms"),
        ("Longest decision", f"{found['longest_decision_ms']:.2f} ms"),
    )
    return "\n".join(f"{name + ':':35}{value}" for name, value in lines)
