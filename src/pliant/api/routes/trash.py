"""Files of deleted workloads, as long as they can be brought back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from pliant.api.auth import Caller
from pliant.api.context import Here
from pliant.api.listing import Listing, Window, window
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.times import stamp
from pliant.api.responses.workloads import Item
from pliant.control.ports import Kept
from pliant.wire.trash import KeptList, Restored

router = APIRouter(prefix="/api/v1/trash", tags=["workloads"])

_listing: Listing[Kept] = Listing(
    {
        "name": lambda kept: kept.name,
        "projectName": lambda kept: kept.project,
        "deletedAt": lambda kept: stamp(kept.deleted),
    },
    searched=("name", "projectName"),
)


@router.get("", **answers(200, KeptList))
def kept_files(here: Here, asked: Annotated[Window, Depends(window)]) -> Response:
    """What deleted workloads left, oldest first."""
    keep = here.service.files.keep
    return answer(
        _listing.page("files", here.service.files.kept(), asked, lambda kept: kept_item(kept, keep))
    )


@router.post("/{identity}/restore", **answers(200, Restored))
def restore(identity: str, here: Here, caller: Caller) -> Response:
    """Bring back what the workload with that id left."""
    kept, path = here.service.files.restore(identity, caller.user)
    return answer({"name": kept.name, "bytes": kept.size, "path": path})


def kept_item(kept: Kept, keep: int) -> Item:
    """`keep` in ms: for how long it is kept."""
    return {
        "workloadId": kept.workload,
        "name": kept.name,
        "projectName": kept.project,
        "deletedAt": stamp(kept.deleted),
        "keptUntil": stamp(kept.deleted + keep),
        "bytes": kept.size,
        "path": kept.path,
    }
