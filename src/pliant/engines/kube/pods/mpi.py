"""What mpirun needs in the pods of a job: the list of workers, and a program that starts ranks in them."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from pliant.engines.meeting import WORKER, HostOf, hostfiles, member, mpi_variables
from pliant.model.workload import Workload

FOLDER = "/pliant/mpi"
VOLUME = "pliant-mpi"
SERVE = """\
command -v python3 >/dev/null || { echo "mpirun on a cluster needs python3 in the image" >&2; exit 127; }
exec python3 /pliant/mpi/rsh serve"""
"""Command of a worker: it waits, and starts what mpirun sends."""


@cache
def _shell() -> str:
    return files("pliant.engines.kube.pods").joinpath("mpi_shell.py").read_text("utf-8")


def join(
    pod: dict[str, Any], workload: Workload, task: str, present: Sequence[str], host_of: HostOf
) -> Mapping[str, str]:
    """Adds the files of MPI to that task's pod; returns the variables that it needs besides."""
    launches = member(workload, task).group.name != WORKER
    texts = {"rsh": _shell()} | (hostfiles(workload, present, host_of) if launches else {})
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    items = []
    for name, text in texts.items():
        note = f"pliant/mpi-{name}"
        pod["metadata"]["annotations"][note] = text
        field = {"fieldPath": f"metadata.annotations['{note}']"}
        items.append({"path": name, "fieldRef": field, "mode": 0o755 if name == "rsh" else 0o444})
    spec["volumes"] = [*spec.get("volumes", ()), {"name": VOLUME, "downwardAPI": {"items": items}}]
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    main["volumeMounts"] = [*main.get("volumeMounts", ()), mount]
    if launches:
        return mpi_variables(f"{FOLDER}/hostfile", f"{FOLDER}/hostfile.hydra", f"{FOLDER}/rsh")
    main["command"] = ["sh", "-c", SERVE]
    return {}
