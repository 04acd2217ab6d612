"""The volumes of a submission: read from a request, and shown in an answer."""

from collections.abc import Iterator, Sequence
from typing import Any

from pliant.model.volume import GIT, HOST_PATH, NFS, Volume
from pliant.wire.submission import Storage


def volumes_of(storage: Storage) -> tuple[Volume, ...]:
    """The volumes, in the order git, host paths, NFS."""
    found = [
        Volume(
            GIT,
            entry["repository"],
            entry.get("path", ""),
            branch=entry.get("branch", ""),
            revision=entry.get("revision", ""),
            login="credentialId" in entry,
            name=entry.get("name", ""),
        )
        for entry in storage.get("git", ())
        if not entry.get("exclude")
    ]
    found += [
        Volume(
            HOST_PATH,
            entry["path"],
            entry.get("mountPath", ""),
            read_only=entry.get("readOnly", True),
            name=entry.get("name", ""),
        )
        for entry in storage.get("hostPath", ())
        if not entry.get("exclude")
    ]
    found += [
        Volume(
            NFS,
            entry["path"],
            entry.get("mountPath", ""),
            server=entry["server"],
            read_only=entry.get("readOnly", True),
            name=entry.get("name", ""),
        )
        for entry in storage.get("nfs", ())
        if not entry.get("exclude")
    ]
    return tuple(found)


def logins(storage: Any) -> Iterator[tuple[int, Any]]:
    """(index among the volumes, entry) of the repositories that need a login."""
    entries = [entry for entry in storage.get("git", ()) if not entry.get("exclude")]
    return ((place, entry) for place, entry in enumerate(entries) if "credentialId" in entry)


def storage_told(volumes: Sequence[Volume]) -> dict[str, Any] | None:
    """The storage as a request has it, without credentials of repositories: a new request must name them."""
    told: dict[str, Any] = {}
    for volume in volumes:
        if volume.kind == GIT:
            entry: dict[str, Any] = {"repository": volume.source, "path": volume.target}
            entry |= {"branch": volume.branch, "revision": volume.revision}
        else:
            entry = {"path": volume.source, "mountPath": volume.target, "readOnly": volume.read_only}
            entry |= {"server": volume.server}
        entry |= {"name": volume.name}
        told.setdefault(volume.kind, []).append({key: it for key, it in entry.items() if it != ""})
    return told or None
