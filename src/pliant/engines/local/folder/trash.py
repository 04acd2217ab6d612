"""Keeps folders and logs of deleted workloads for a while, restores them, or removes them for good.

<state>/trash/<name>-<first 8 digits of the id>/
    trash.json    what it is
    files/        the job folder
    attempts/     logs and exit records, by task and attempt
"""

import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pliant.control.ports import Kept
from pliant.engines.local.folder.layout import Layout, read_json, write_json
from pliant.model.workload import Workload

log = logging.getLogger(__name__)

COUNTED = 100_000
"""At most so many files of a folder are measured; the rest is left out."""


class Trash:
    """The trash of one state folder, on the same file system, so that a move is a rename."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.path = layout.state / "trash"

    def preview(self, workload: Workload, project: str, now: int) -> Kept | None:
        """What `put` would keep of it now; None if it has neither files nor logs."""
        folders = self._folders(workload)
        if not any(map(_holds, folders.values())):
            return None
        size = size_of(folders["files"])
        return Kept(workload.id, workload.name, project, now, size, str(self._place(workload)))

    def put(self, workload: Workload, project: str, now: int) -> None:
        """Move its files and logs here. May be repeated after a crash. Raises OSError."""
        place = self._place(workload)
        folders = self._folders(workload)
        self.unlink(workload, project)
        if not any(map(_holds, folders.values())):
            for folder in folders.values():
                shutil.rmtree(folder, ignore_errors=True)
            return
        self.path.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if not (place / "trash.json").exists():
            document = {"version": 1, "id": workload.id, "name": workload.name, "project": project, "at": now}
            write_json(place / "trash.json", document, durable=True)
        for name, folder in folders.items():
            with suppress(FileNotFoundError):
                folder.rename(place / name)
        for secret in ("token", "order.json"):  # an order of an older release has values of variables in it
            for path in (place / "attempts").glob(f"*/*/{secret}"):
                path.unlink(missing_ok=True)

    def entries(self) -> list[Kept]:
        """Oldest first. Folders without a trash.json are skipped."""
        found = []
        for place in self.path.iterdir() if self.path.exists() else ():
            said = read_json(place / "trash.json")
            if said is None:
                continue
            if "bytes" not in said:  # counted once: the files do not change any more
                said["bytes"] = size_of(place / "files")
                with suppress(OSError):  # on a full disk it is counted again, so that `sweep` can make room
                    write_json(place / "trash.json", said)
            found.append(
                Kept(said["id"], said["name"], said["project"], said["at"], said["bytes"], str(place))
            )
        return sorted(found, key=lambda kept: (kept.deleted, kept.path))

    def restore(self, kept: Kept) -> str:
        """Move files and logs out of the trash to the user; returns their new path. Raises OSError."""
        target = self._layout.jobs / kept.project / kept.name
        if target.exists() or target.is_symlink():  # a newer workload has the name
            target = target.with_name(Path(kept.path).name)
        place = Path(kept.path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / "files").mkdir(mode=0o700, exist_ok=True)
        logs = place / "files" / "logs"
        if logs.exists():  # the job has a folder of that name
            logs = logs.with_name(f"logs-{kept.workload}")
        if (place / "attempts").exists():
            (place / "attempts").rename(logs)
        (place / "files").rename(target)
        shutil.rmtree(place, ignore_errors=True)
        return str(target)

    def sweep(self, before: int, room: int) -> list[Kept]:
        """Remove what was deleted before that time (ms), and the oldest while the disk has less than `room`
        thousandths free; returns what it removed."""
        gone = []
        for kept in self.entries():
            usage = shutil.disk_usage(self.path)
            if kept.deleted < before or usage.free * 1000 < usage.total * room:
                shutil.rmtree(kept.path, ignore_errors=True)
                if not Path(kept.path).exists():
                    gone.append(kept)
        return gone

    def link(self, workload: Workload, project: str) -> None:
        """Link its job folder under a name that people can type. Its tasks may call this at the same time.

        Raises OSError.
        """
        target = self._layout.checkpoint_folder(workload.id)
        link = self._layout.jobs / project / workload.name
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if link.exists() and not link.is_symlink():  # restored files have the name
            link = link.with_name(self._place(workload).name)
        fresh = link.with_name(f".{workload.id}-{secrets.token_hex(8)}")  # another task's stays as it is
        fresh.symlink_to(os.path.relpath(target, link.parent))
        fresh.replace(link)

    def unlink(self, workload: Workload, project: str) -> None:
        folder = self._layout.jobs / project
        for link in (folder / workload.name, folder / self._place(workload).name):
            with suppress(OSError):
                if Path(os.readlink(link)).name == workload.id:
                    link.unlink()

    def _folders(self, workload: Workload) -> dict[str, Path]:
        """What is kept of it, by the names that it has in the trash."""
        return {
            "files": self._layout.checkpoint_folder(workload.id),
            "attempts": self._layout.attempts / workload.id,
        }

    def _place(self, workload: Workload) -> Path:
        return self.path / f"{workload.name}-{workload.id[:8]}"


def size_of(folder: Path) -> int:
    """Bytes of the files below it; see COUNTED."""
    total = 0
    for path in islice(_files(folder), COUNTED):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def _holds(folder: Path) -> bool:
    return next(_files(folder), None) is not None


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)
