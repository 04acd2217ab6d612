"""Data of a task on a cluster: the volumes of its pod."""

from collections.abc import Sequence
from typing import Any

from pliant.control.errors import BadRequest
from pliant.model.volume import NFS, Volume

_WHY = {
    "git": "repositories are not cloned on a cluster yet",
    "hostPath": "a folder of a node would give every user the files of its root account",
}


def refused(volumes: Sequence[Volume]) -> BadRequest | None:
    """Why a pod cannot have these volumes; None if it can."""
    for volume in volumes:
        if volume.kind != NFS:
            field = f"spec.storage.{volume.kind}"
            return BadRequest(
                f"{field} is not available: {_WHY[volume.kind]}.", "Use spec.storage.nfs.", field=field
            )
        if not volume.target.startswith("/"):
            return BadRequest(
                "A volume of a pod needs an absolute mountPath.",
                "Give one, for example /data.",
                field="spec.storage.nfs.mountPath",
            )
    return None


def volumes(wanted: Sequence[Volume]) -> dict[str, Any]:
    """The part of a pod's specification."""
    found = [
        {"name": _name(place), "nfs": {"server": it.server, "path": it.source, "readOnly": it.read_only}}
        for place, it in enumerate(wanted)
    ]
    return {"volumes": found} if found else {}


def mounts(wanted: Sequence[Volume]) -> dict[str, Any]:
    """The part of a container."""
    found = [
        {"name": _name(place), "mountPath": it.target, "readOnly": it.read_only}
        for place, it in enumerate(wanted)
    ]
    return {"volumeMounts": found} if found else {}


def _name(place: int) -> str:
    return f"data-{place}"
