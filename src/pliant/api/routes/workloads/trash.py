"""Routes for files of deleted workloads, while they can be restored."""

from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from pliant.api.context import Context, Here
from pliant.api.guard import Target, about, known_workload, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.times import stamp
from pliant.api.responses.workloads import Item
from pliant.control.errors import NotFound
from pliant.control.ports import Kept
from pliant.model.rights import TENANT
from pliant.wire.trash import KeptList, Restored

router = Router(prefix="/api/v1/trash", tags=["workloads"])

_listing: Listing[Kept] = Listing(
    {
        "name": lambda kept: kept.name,
        "projectName": lambda kept: kept.project,
        "deletedAt": lambda kept: stamp(kept.deleted),
    },
    searched=("name", "projectName"),
)


@router.get("", dependencies=[needs("workloads:files")], **answers(200, KeptList))
def kept_files(here: Here, caller: Caller, asked: Annotated[Window, Depends(_listing.asked)]) -> Response:
    """What deleted workloads left, oldest first."""
    keep = here.service.files.keep
    found = [kept for kept in here.service.files.kept() if _sees(here, caller, kept)]
    return answer(_listing.page("files", found, asked, lambda kept: kept_item(kept, keep)))


def _sees(here: Context, caller: Principal, kept: Kept) -> bool:
    """True if the caller may see the files; of a workload that is no longer remembered, an administrator."""
    if caller.admin:
        return True
    row, board = known_workload(here, kept.workload), here.service.board
    return row is not None and caller.may_with("workloads:files", row, board)


async def _kept(request: Request, here: Context, caller: Principal) -> Target:
    """The target; files may be kept longer than their workload is remembered."""
    identity = request.path_params["identity"]
    row = await run_in_threadpool(known_workload, here, identity)
    if row is not None:
        return about(row, identity, here.service.board, caller)
    return Target("workloads:read", TENANT, NotFound(f"There are no files of {identity[:60]!r}."))


@router.post("/{identity}/restore", dependencies=[needs("workloads:delete", _kept)], **answers(200, Restored))
def restore(identity: str, here: Here, caller: Caller) -> Response:
    """Bring back what the workload with that id left."""
    kept, path = here.service.files.restore(identity, caller.user)
    return answer({"name": kept.name, "bytes": kept.size, "path": path})


def kept_item(kept: Kept, keep: int) -> Item:
    """`keep`: ms for which files are kept."""
    return {
        "workloadId": kept.workload,
        "name": kept.name,
        "projectName": kept.project,
        "deletedAt": stamp(kept.deleted),
        "keptUntil": stamp(kept.deleted + keep),
        "bytes": kept.size,
        "path": kept.path,
    }
