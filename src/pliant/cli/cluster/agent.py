"""node agent: runs the process that publishes and watches the limits of parts of GPUs on one cluster node."""

from __future__ import annotations

import os
import sys

import click

from pliant.cli.lazy import Command


@click.command("agent", cls=Command, short_help="Run the agent of this node of a Kubernetes cluster.")
@click.option("--node", metavar="NAME", help="Name of this node (default: NODE_NAME).")
@click.option("--kubeconfig", metavar="FILE", help="kubeconfig file (default: that of the pod it runs in).")
@click.option("--port", type=int, help="Port of /metrics and /readyz (default: 9440).")
@click.option("--audit", is_flag=True, help="Report GPU processes outside of all jobs; it needs hostPID.")
def agent(node: str | None, kubeconfig: str | None, port: int | None, audit: bool) -> None:
    """Run the agent of this node in the foreground. The Helm chart does that on each node with GPUs
    (nodeAgent.enabled).

    It writes the limits of parts of GPUs into /run/pliant-fractions, where the pods of this node read them,
    exports metrics for Prometheus, and writes events about what exceeds its limit. It needs root.
    """
    words = [sys.executable, "-m", "pliant.node_agent"]
    for name, value in (("--node", node), ("--kubeconfig", kubeconfig), ("--port", port)):
        words += [] if value is None else [name, str(value)]
    os.execv(words[0], [*words, "--audit"] if audit else words)
