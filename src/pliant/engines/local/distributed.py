"""What the tasks of a distributed workload find in their environment, by the habits of each framework."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pliant.engines.local.rendezvous import HOST
from pliant.model.workload import TaskGroup, Workload

WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Member:
    """One task's place among those of its workload."""

    group: TaskGroup
    index: int  # in its group
    rank: int  # in the workload; the leader is 0


def member(workload: Workload, task: str) -> Member:
    """The place of the task of that name. Raises ValueError."""
    before = 0
    for group in workload.groups:
        name, _, index = task.rpartition("-")
        if name == group.name and index.isdigit() and int(index) < group.max:
            return Member(group, int(index), before + int(index))
        before += group.max
    raise ValueError(f"{workload.name} has no task {task!r}")


def ports_needed(workload: Workload) -> int:
    """How many ports its tasks must agree on; 0: none."""
    if workload.framework == "TF":
        return sum(group.max for group in workload.groups)
    return 1 if workload.framework and workload.framework != "MPI" else 0


def variables(
    workload: Workload, task: str, present: Sequence[str], port: int, folder: Path
) -> dict[str, str]:
    """`present`: names of the tasks it starts with, itself included; `port`: the first that was agreed on;
    `folder`: the attempt's own."""
    place = member(workload, task)
    if workload.framework == "MPI":
        return _mpi(workload, place, folder)
    if workload.framework == "TF":
        return {"TF_CONFIG": json.dumps(_tf(workload, place, port))}
    world, rank = str(max(len(present), 1)), str(place.rank)
    env = {"MASTER_ADDR": HOST, "MASTER_PORT": str(port), "RANK": rank, "WORLD_SIZE": world}
    if workload.framework == "PyTorch":
        return env | _torch(workload, place, env)
    if workload.framework == "JAX":
        return {
            "COORDINATOR_ADDRESS": HOST,
            "COORDINATOR_PORT": str(port),
            "NUM_PROCESSES": world,
            "PROCESS_ID": rank,
        }
    return env


def _torch(workload: Workload, place: Member, env: dict[str, str]) -> dict[str, str]:
    """A task sees its own GPUs only, so it is local rank 0; torchrun reads PET_* and starts one per GPU."""
    least = sum(group.min for group in workload.groups)
    most = sum(group.max for group in workload.groups)
    found = {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": env["RANK"],
        "PET_NPROC_PER_NODE": str(max(place.group.request.devices, 1)),
        "PET_NODE_RANK": env["RANK"],
        "PET_MASTER_ADDR": env["MASTER_ADDR"],
        "PET_MASTER_PORT": env["MASTER_PORT"],
        "PET_NNODES": env["WORLD_SIZE"],
    }
    if least == most:
        return found
    return found | {
        "PET_NNODES": f"{least}:{most}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{HOST}:{env['MASTER_PORT']}",
        "PET_RDZV_ID": workload.id,
    }


def _tf(workload: Workload, place: Member, port: int) -> dict[str, object]:
    """Every task listens on a port of its own; the master is TensorFlow's chief."""
    role = {"master": "chief"}
    cluster: dict[str, list[str]] = {}
    for group in workload.groups:
        entries = cluster.setdefault(role.get(group.name, group.name), [])
        for _ in range(group.max):
            entries.append(f"{HOST}:{port}")
            port += 1
    kind = role.get(place.group.name, place.group.name)
    return {"cluster": cluster, "task": {"type": kind, "index": place.index}, "environment": "cloud"}


def _mpi(workload: Workload, place: Member, folder: Path) -> dict[str, str]:
    """The launcher's mpirun starts ranks inside the workers by an agent, where elsewhere it would use ssh."""
    env = {"RUNAI_MPI_NUM_WORKERS": str(workload.group(WORKER).wanted)}
    if place.group.name == WORKER:
        return env
    hosts, agent = str(folder / "hostfile"), str(folder / "rsh")
    return env | {
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
