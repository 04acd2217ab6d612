"""The environment and files by which the tasks of a distributed workload find one another on this machine."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.engines import meeting
from pliant.engines.local.launch.rendezvous import HOST
from pliant.engines.meeting import WORKER, member
from pliant.model.workload import Workload


def variables(
    workload: Workload, task: str, present: Sequence[str], port: int, folder: Path
) -> dict[str, str]:
    """As `meeting.variables`; `folder`: the attempt's folder."""
    found = meeting.variables(workload, task, present, port, lambda _task: HOST)
    if workload.framework == "MPI" and member(workload, task).group.name != WORKER:
        hosts, hydra = str(folder / "hostfile"), str(folder / "hostfile.hydra")
        found |= meeting.mpi_variables(hosts, hydra, str(folder / "rsh"))
    return found


def files(workload: Workload, task: str, present: Sequence[str], folder: Path) -> dict[str, tuple[str, int]]:
    """The files in the folder of an MPI launcher: (text, mode) by name; {} for any other task."""
    if workload.framework != "MPI" or member(workload, task).group.name == WORKER:
        return {}
    hosts = meeting.hostfiles(workload, present, lambda name: f"{workload.name}-{name}")
    agent = Path(__file__).with_name("mpi_agent.py")
    attempts = folder.parent.parent
    sealed = attempts.parent.parent / "sealed" / attempts.name
    words = [sys.executable, "-S", "-E", str(agent), str(attempts), str(sealed), workload.name]
    return {
        **{name: (text, 0o600) for name, text in hosts.items()},
        "rsh": (f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o700),
    }
