"""Folders of workloads, and files of deleted ones while they can be restored."""

from typing import TypedDict

from pliant.wire.shapes import Stamp
from pliant.wire.workload import Page


class FolderItem(TypedDict):
    """Null where a workload's tasks have no folders."""

    workingDir: str | None
    jobFolder: str | None
    logFolder: str | None


class KeptItem(TypedDict):
    workloadId: str
    name: str
    projectName: str
    deletedAt: Stamp
    keptUntil: str
    bytes: int
    path: str


class KeptList(Page):
    files: list[KeptItem]


class Restored(TypedDict):
    name: str
    bytes: int
    path: str


class Deleting(TypedDict):
    """Answer to a delete."""

    status: str
    kept: KeptItem | None  # where its files are from then on; null: it has none, or they are removed
