"""What the tasks of a distributed workload find in their environment and folder on this machine."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.engines import meeting
from pliant.engines.local.rendezvous import HOST
from pliant.engines.meeting import WORKER, member
from pliant.model.workload import Workload


def variables(
    workload: Workload, task: str, present: Sequence[str], port: int, folder: Path
) -> dict[str, str]:
    """As in `meeting`; `folder`: the attempt's own."""
    found = meeting.variables(workload, task, present, port, lambda _task: HOST)
    if workload.framework == "MPI" and member(workload, task).group.name != WORKER:
        found |= _mpi(folder)
    return found


def _mpi(folder: Path) -> dict[str, str]:
    """The launcher's mpirun starts ranks inside the workers by an agent, where elsewhere it would use ssh."""
    hosts, agent = str(folder / "hostfile"), str(folder / "rsh")
    return {
        "OMPI_MCA_orte_default_hostfile": hosts,
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_default_hostfile": hosts,
        "PRTE_MCA_plm_ssh_agent": agent,
        "HYDRA_HOST_FILE": str(folder / "hostfile.hydra"),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_ENV": "none",  # ranks have the worker's environment, not the launcher's
    }


def files(workload: Workload, task: str, present: Sequence[str], folder: Path) -> dict[str, tuple[str, int]]:
    """What the launcher finds in its folder: (text, mode) by name; nothing for anybody else."""
    if workload.framework != "MPI" or member(workload, task).group.name == WORKER:
        return {}
    workers = [f"{workload.name}-{name}" for name in present if name.startswith(f"{WORKER}-")]
    agent = Path(__file__).with_name("mpi_agent.py")
    attempts = folder.parent.parent
    sealed = attempts.parent.parent / "sealed" / attempts.name
    words = [sys.executable, "-S", "-E", str(agent), str(attempts), str(sealed), workload.name]
    return {
        "hostfile": ("".join(f"{name} slots={workload.slots}\n" for name in workers), 0o600),
        "hostfile.hydra": ("".join(f"{name}:{workload.slots}\n" for name in workers), 0o600),
        "rsh": (f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', 0o700),
    }
