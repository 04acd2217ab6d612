"""What our objects are called on a cluster, and how they are told from those of others."""

import hashlib
import re
from functools import lru_cache

from pliant.model.workload import AttemptId

SCHEDULER = "pliant"
MANAGED_BY = "app.kubernetes.io/managed-by"
PREFIX = "runai-"
"""Of the namespace of a project."""

OURS = "pliant/"
"""Begins the names of annotations that we write on pods, and nobody else."""

CLUSTER = "pliant/cluster"
"""Label: whose a pod is. Several servers may use one cluster; the pods of the others are foreign to each."""

WORKLOAD = "pliant/workload"
ATTEMPT = "pliant/attempt"
GPUS = "pliant/gpus"
ALLOCATION = "pliant/allocation"
"""Annotation: what the workload of the pod has, and what it will lose."""

ORDER = "pliant/order"
"""Annotation: the rows that the start of the pod follows from, for a server whose database is lost."""

ROW = "pliant/row"
"""Annotation of an object without a spec: the row that it shows, for a server whose database is lost."""

HOLDS = "pliant/holds"
"""Annotation of a pod of ours that holds a device for those who have parts of it: which one."""

GPU_CONF = "pliant/gpu-conf"
"""Annotation of a pod with parts of GPUs: what its file /etc/pliant/gpu.conf says."""

DEVICES = "pliant/devices"
"""Annotation: UUIDs of the devices that such a pod holds, or of which a pod has parts."""

LEDGER = "/run/pliant/ledger"
"""In such a pod: what its processes have of its GPUs."""

AGENT = "pliant/node-agent"
"""Label of the agent of a node (agents.py); annotation of a pod whose limits that agent writes."""

FINALIZER = "pliant/recorded"
"""Keeps a pod that was deleted until its end is on the server's disk. Without it nobody could tell a pod that
never was from one that ran and vanished, and an attempt could be started twice."""


_DIGEST = re.compile(r"-[0-9a-f]{10}$")


@lru_cache(maxsize=1024)  # asked for each workload, twice a second
def namespace_of(project: str) -> str:
    """Of the project of that name; no two have one together."""
    if project == "default":
        return "default"
    plain = _label(project, 57)
    digest = hashlib.sha256(project.encode()).hexdigest()[:10]
    as_it_stands = plain == project and not _DIGEST.search(plain)  # else it could be that of another project
    return f"{PREFIX}{plain if as_it_stands else f'{plain[:46]}-{digest}'}"


def pod_name(cluster: str, attempt: AttemptId, workload: str) -> str:
    """The same for the same attempt, so that it cannot be created twice."""
    digest = hashlib.sha256(f"{cluster}/{attempt}".encode()).hexdigest()[:10]
    return f"{_label(f'{workload}-{attempt.task}-{attempt.number}', 52)}-{digest}"


def holder_name(cluster: str, device: str) -> str:
    """The same for the same device, so that it cannot be held twice."""
    digest = hashlib.sha256(f"{cluster}/{device}".encode()).hexdigest()[:10]
    return f"pliant-{_label(device, 44)}-{digest}"


def variables_name(workload: str) -> str:
    """The secret with the values of a workload's environment variables."""
    return f"pliant-{_label(workload, 50)}-env"


def meeting_name(workload: str) -> str:
    """The service by which the pods of a workload find one another, and the secret that they share."""
    return f"pliant-{_label(workload, 50)}"


def _label(text: str, most: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "x"


def lease_name(cluster: str) -> str:
    """Of the lease that says which server of that name leads."""
    return f"pliant-{cluster[:40]}"
