"""The actions on a workload, from the table and from its own page."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from pliant.console.forms import sure
from pliant.console.frame import Frame
from pliant.console.rights import Rights

PLURAL = {
    "Training": "trainings",
    "Workspace": "workspaces",
    "Distributed": "distributed",
    "Inference": "inferences",
}

_ASKS = {
    "Cancel": "It ends for good. Its record, log and files stay.",
    "Delete": "It ends, and its record goes. Its files are kept for a while.",
}


RIGHTS = ("workloads:update", "workloads:delete", "workloads:create")


def possible(item: Mapping[str, Any], rights: Rights) -> list[str]:
    """The labels of the actions that apply now and that the reader may do; `rights` has learned RIGHTS."""
    place = (item["departmentId"], item["projectId"])
    own = item["submittedBy"] == rights.name
    needed = {"Delete": "workloads:delete", "Make a copy": "workloads:create"}
    found = []
    for label in _sensible(item):
        right = needed.get(label, "workloads:update")
        mine = own and right != "workloads:create"  # a submitter needs no right, except to copy
        if mine or rights.where(right).covers(*place, mine=own):
            found.append(label)
    return found


def _sensible(item: Mapping[str, Any]) -> list[str]:
    if item["desiredPhase"] == "Deleted":
        return []
    support = item["actionsSupport"]
    stopped = item["desiredPhase"] == "Stopped"
    found = [("Run", support["suspend"] and stopped), ("Stop", support["suspend"] and not stopped)]
    found += [("Cancel", support["suspend"]), ("Make a copy", True), ("Delete", support["delete"])]
    return [label for label, makes_sense in found if makes_sense]


async def act(frame: Frame, label: str, identity: str, name: str, kind: str) -> None:
    """Do the action; ask for confirmation first if it cannot be undone."""
    if label == "Make a copy":
        ui.navigate.to(f"/new/{PLURAL[kind]}?copy={identity}")
        return
    if label in _ASKS and not await sure(f"{label} {name}?", _ASKS[label], label):
        return
    path = f"/api/v1/workloads/{identity}"
    method, path, done = {
        "Stop": ("POST", f"/api/v1/workloads/{PLURAL[kind]}/{identity}/suspend", "stops"),
        "Run": ("POST", f"/api/v1/workloads/{PLURAL[kind]}/{identity}/resume", "runs as soon as it can"),
        "Cancel": ("POST", f"{path}/cancel", "is cancelled"),
        "Delete": ("DELETE", path, "is deleted"),
    }[label]
    await frame.attempt(lambda: frame.calls.send(method, path), f"{name} {done}.")
