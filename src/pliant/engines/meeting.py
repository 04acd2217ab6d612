"""How the tasks of a workload find one another: the variables and files of each framework, for any engine."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.model.order import Start
from pliant.model.workload import TaskGroup, Workload

WORKER = "worker"
HostOf = Callable[[str], str]
"""Maps the name of a task to the address at which the other tasks reach it."""


@dataclass(frozen=True, slots=True)
class Member:
    """One task's place among those of its workload."""

    group: TaskGroup
    index: int  # in its group
    rank: int  # in the workload; the leader is 0


def member(workload: Workload, task: str) -> Member:
    """The place of the task of that name. Raises ValueError if there is none."""
    before = 0
    for group in workload.groups:
        name, _, index = task.rpartition("-")
        if name == group.name and index.isdigit() and int(index) < group.max:
            return Member(group, int(index), before + int(index))
        before += group.max
    raise ValueError(f"{workload.name} has no task {task!r}")


def ports_needed(workload: Workload) -> int:
    """The number of ports that its tasks must agree on if they share a machine; 0: none."""
    if workload.framework == "TF":
        return sum(group.max for group in workload.groups)
    return 1 if workload.framework and workload.framework != "MPI" else 0


def variables(
    workload: Workload, task: str, present: Sequence[str], port: int, host_of: HostOf
) -> dict[str, str]:
    """`present`: names of the tasks that it starts with, itself included; `port`: the first agreed port."""
    if workload.framework == "MPI":
        return {"RUNAI_MPI_NUM_WORKERS": str(workload.group(WORKER).wanted)}
    place = member(workload, task)
    if workload.framework == "TF":
        return {"TF_CONFIG": json.dumps(_tf(workload, place, port, host_of))}
    host, world, rank = host_of(leader(workload)), str(max(len(present), 1)), str(place.rank)
    env = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "RANK": rank, "WORLD_SIZE": world}
    if workload.framework == "PyTorch":
        return env | _torch(workload, place, env)
    if workload.framework == "JAX":
        return {
            "COORDINATOR_ADDRESS": host,
            "COORDINATOR_PORT": str(port),
            "NUM_PROCESSES": world,
            "PROCESS_ID": rank,
        }
    return env


def mpi_variables(hosts: str, hydra: str, agent: str) -> dict[str, str]:
    """Variables that make the launcher's mpirun (Open MPI 4 and 5, or Hydra) start ranks inside the workers
    with `agent` instead of ssh."""
    return {
        "OMPI_MCA_orte_default_hostfile": hosts,
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_default_hostfile": hosts,
        "PRTE_MCA_plm_ssh_agent": agent,
        "HYDRA_HOST_FILE": hydra,
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_ENV": "none",  # ranks have the worker's environment, not the launcher's
    }


def hostfiles(workload: Workload, present: Sequence[str], host_of: HostOf) -> dict[str, str]:
    """Host files of its workers, text by file name: for Open MPI and for Hydra."""
    hosts = [host_of(name) for name in present if name.startswith(f"{WORKER}-")]
    return {
        "hostfile": "".join(f"{host} slots={workload.slots}\n" for host in hosts),
        "hostfile.hydra": "".join(f"{host}:{workload.slots}\n" for host in hosts),
    }


def leader(workload: Workload) -> str:
    """The task of rank 0."""
    return f"{next(group for group in workload.groups if group.max).name}-0"


def _torch(workload: Workload, place: Member, env: dict[str, str]) -> dict[str, str]:
    """A task sees only its own GPUs: it is local rank 0; torchrun reads PET_* and starts a rank per GPU."""
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
        "PET_RDZV_ENDPOINT": f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}",
        "PET_RDZV_ID": workload.id,
    }


def _tf(workload: Workload, place: Member, port: int, host_of: HostOf) -> dict[str, object]:
    """Every task listens on a port of its own; the master is TensorFlow's chief."""
    role = {"master": "chief"}
    cluster: dict[str, list[str]] = {}
    for group in workload.groups:
        entries = cluster.setdefault(role.get(group.name, group.name), [])
        for index in range(group.max):
            entries.append(f"{host_of(f'{group.name}-{index}')}:{port}")
            port += 1
    kind = role.get(place.group.name, place.group.name)
    return {"cluster": cluster, "task": {"type": kind, "index": place.index}, "environment": "cloud"}


def allocation(order: Start) -> dict[str, Any]:
    """The first allocation document of a task that has none yet."""
    return {
        "version": 1,
        "epoch": order.epoch,
        "tasks": [
            {
                "id": order.attempt.task,
                "attempt": order.attempt.number,
                "node": order.placement.node,
                "gpus": list(order.placement.uuids),
                "state": "active",
                "deadline": None,
            }
        ],
    }


def present(document: Mapping[str, Any]) -> list[str]:
    """Names of the tasks in an allocation document that are not draining."""
    return [*dict.fromkeys(task["id"] for task in document["tasks"] if task["state"] != "draining")]
