"""Names of our objects, labels and annotations on a cluster."""

import hashlib
import re
from functools import lru_cache

from pliant.model.workload import AttemptId

SCHEDULER = "pliant"
MANAGED_BY = "app.kubernetes.io/managed-by"
PREFIX = "runai-"
"""Prefix of the namespace of a project."""

OURS = "pliant/"
"""Prefix of the annotations that only we write on pods."""

CLUSTER = "pliant/cluster"
"""Label: the server that owns a pod. Servers that share a cluster treat each other's pods as foreign."""

WORKLOAD = "pliant/workload"
ATTEMPT = "pliant/attempt"
GPUS = "pliant/gpus"
ALLOCATION = "pliant/allocation"
"""Annotation: what the pod's workload has, and what it will lose."""

ORDER = "pliant/order"
"""Annotation: the rows that the pod's start follows from, for a server whose database is lost."""

ROW = "pliant/row"
"""Annotation of an object without a spec: the row that it shows, for a server whose database is lost."""

HOLDS = "pliant/holds"
"""Annotation of a pod of ours that holds a device for GPU fractions: which device."""

GPU_CONF = "pliant/gpu-conf"
"""Annotation of a pod with GPU fractions: the content of its /etc/pliant/gpu.conf."""

DEVICES = "pliant/devices"
"""Annotation: UUIDs of the devices that a holder holds, or of which a pod has fractions."""

LEDGER = "/run/pliant/ledger"
"""File in a pod with GPU fractions: what its processes use of its GPUs."""

AGENT = "pliant/node-agent"
"""Label of the agent of a node (agents.py); annotation of a pod whose limits that agent writes."""

FINALIZER = "pliant/recorded"
"""Keeps a deleted pod until its end is on the server's disk. Without it, a pod that never existed and one
that ran and vanished look the same, and an attempt could be started twice."""


_DIGEST = re.compile(r"-[0-9a-f]{10}$")


@lru_cache(maxsize=1024)  # called for each workload, twice a second
def namespace_of(project: str) -> str:
    """The namespace of that project; no two projects share one."""
    if project == "default":
        return "default"
    plain = _label(project, 57)
    digest = hashlib.sha256(project.encode()).hexdigest()[:10]
    as_it_stands = plain == project and not _DIGEST.search(plain)  # else another project could have this name
    return f"{PREFIX}{plain if as_it_stands else f'{plain[:46]}-{digest}'}"


def pod_name(cluster: str, attempt: AttemptId, workload: str) -> str:
    """Equal for equal attempts, so that an attempt cannot be created twice."""
    digest = hashlib.sha256(f"{cluster}/{attempt}".encode()).hexdigest()[:10]
    return f"{_label(f'{workload}-{attempt.task}-{attempt.number}', 52)}-{digest}"


def holder_name(cluster: str, device: str) -> str:
    """The same for the same device, so that it cannot be held twice."""
    digest = hashlib.sha256(f"{cluster}/{device}".encode()).hexdigest()[:10]
    return f"pliant-{_label(device, 44)}-{digest}"


def variables_name(workload: str) -> str:
    """Name of the secret with the values of a workload's environment variables."""
    return f"pliant-{_label(workload, 50)}-env"


def meeting_name(workload: str) -> str:
    """Name of the service by which pods of a workload find each other, and of the secret that they share."""
    return f"pliant-{_label(workload, 50)}"


def _label(text: str, most: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "x"


def lease_name(cluster: str) -> str:
    """Name of the lease that records which server of that name leads."""
    return f"pliant-{cluster[:40]}"
