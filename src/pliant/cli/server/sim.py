"""sim: what the scheduler does with a trace. The simulator runs as a process of its own: docs/adr/0022."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, structured
from pliant.cli.session import Session, pass_session
from pliant.client.errors import BadRequest, PliantError

WRONG_INPUT = 2

sim = LazyGroup(
    {"Commands": {"packing": "pliant.cli.server.sim:packing"}},
    name="sim",
    help="Run the scheduler on a trace. No server is needed.",
)


@click.command(
    "packing", cls=Command, short_help="Measure how full a cluster gets before a job no longer fits."
)
@click.option("--nodes", required=True, type=click.Path(), metavar="FILE", help="CSV with one line per node.")
@click.option(
    "--pods", required=True, type=click.Path(), metavar="FILE", help="CSV, one line per pod, as they come."
)
@output_options
@pass_session
def packing(session: Session, nodes: str, pods: str) -> None:
    """Let pods arrive one by one, none of which ends, and print how many of all GPUs are allocated.

    The files have the columns of the openb trace: sn, cpu_milli, memory_mib, gpu, model for nodes and
    cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec for pods, plain or with names that end in .gz. A pod
    that fits nowhere when it arrives goes away. Nothing is moved.
    """
    words = [sys.executable, "-m", "pliant.sim", "packing", "--nodes", nodes, "--pods", pods]
    if sys.stderr.isatty() and not session.quiet:
        words.append("--progress")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, WRONG_INPUT):
        raise PliantError(f"The simulator ended with code {done.returncode}.")
    found = cast("dict[str, Any]", json.loads(done.stdout))
    if done.returncode == WRONG_INPUT:
        raise BadRequest(found["error"])
    if not structured(session, found):
        click.echo(_table(found))


def _table(found: Mapping[str, Any]) -> str:
    def percent(name: str) -> str:
        share = found[name]
        return "never reached" if share is None else f"{share:.2f} %"

    lines = (
        ("Nodes", found["nodes"]),
        ("GPUs", found["gpus"]),
        ("Pods", f"{found['pods']}, {found['placed']} placed"),
        ("GPUs asked for", percent("arrived")),
        ("Allocated when 100 % had arrived", percent("allocated_at_100")),
        ("Allocated when 130 % had arrived", percent("allocated_at_130")),
        ("Allocated at the end", percent("allocated")),
        ("Mean decision", f"{found['mean_decision_ms']:.2f} ms"),
        ("Longest decision", f"{found['longest_decision_ms']:.2f} ms"),
    )
    return "\n".join(f"{name + ':':35}{value}" for name, value in lines)
