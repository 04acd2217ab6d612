"""The data of a submission: what is asked for, and how it is told again."""

from collections.abc import Iterator, Sequence
from typing import Any

from pliant.model.volume import GIT, HOST_PATH, NFS, Volume
from pliant.wire.submission import Storage


def volumes_of(storage: Storage) -> tuple[Volume, ...]:
    """In the order git, host paths, NFS."""
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
    """The repositories that need a login, with their places among the volumes."""
    entries = [entry for entry in storage.get("git", ()) if not entry.get("exclude")]
    return ((place, entry) for place, entry in enumerate(entries) if "credentialId" in entry)


def storage_told(volumes: Sequence[Volume]) -> dict[str, Any] | None:
    """Without the credential of a repository: to submit it again, name it again."""
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
