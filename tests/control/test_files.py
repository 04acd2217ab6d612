"""Files of deleted workloads: when they are removed, and what the cluster's history says about it."""

import pytest

from pliant.control.board.view import CLUSTER
from pliant.control.errors import NotFound, Unavailable
from pliant.control.ports import Kept
from pliant.control.usecases.files import LEAST_FREE, Files
from tests.control.stage import Stage

DAY = 86_400_000


class Trash:
    """The part of an engine that concerns files."""

    def __init__(self, *kept: Kept) -> None:
        self.kept = list(kept)
        self.asked: list[tuple[int, int]] = []

    def trash(self) -> list[Kept]:
        return self.kept

    def sweep(self, before: int, room: int) -> list[Kept]:
        self.asked.append((before, room))
        gone, self.kept = self.kept, []
        return gone

    def restore(self, kept: Kept) -> str:
        raise PermissionError(1, "Operation not permitted")


def kept(stage: Stage, age: int) -> Kept:
    return Kept("w-1", "t", "default", stage.timeline.now() - age, 3 * 2**20, "/state/trash/t-w-1")


def told(stage: Stage) -> list[tuple[str, str]]:
    return [(event.kind.value, event.message) for _, event in stage.service.history(CLUSTER)]


def test_what_was_kept_for_long_enough_is_removed_and_told(stage: Stage) -> None:
    engine = Trash(kept(stage, 8 * DAY))
    Files(stage.loop, {"it": engine}).tidy()  # type: ignore[dict-item]
    assert engine.asked == [(stage.timeline.now() - 7 * DAY, LEAST_FREE)]
    said = "Files of the deleted job t (3Mi) were removed after 7d."
    assert told(stage)[-1] == ("Deleted", said)


def test_what_goes_early_is_told_with_the_reason(stage: Stage) -> None:
    Files(stage.loop, {"it": Trash(kept(stage, DAY))}).tidy()  # type: ignore[dict-item]
    said = "Files of the deleted job t (3Mi) were removed early: the disk has less than 5% free."
    assert told(stage)[-1] == ("Warning", said)


def test_the_time_is_a_setting(stage: Stage) -> None:
    engine = Trash()
    stage.service.tune({"keep_deleted": DAY}, "me")
    Files(stage.loop, {"it": engine}).tidy()  # type: ignore[dict-item]
    assert engine.asked[0][0] == stage.timeline.now() - DAY


def test_what_cannot_be_restored(stage: Stage) -> None:
    files = Files(stage.loop, {"it": Trash(kept(stage, DAY))})  # type: ignore[dict-item]
    with pytest.raises(NotFound, match="No files of workload 'w-2' are kept"):
        files.restore("w-2", "me")
    with pytest.raises(Unavailable, match=r"Operation not permitted.*They are in /state/trash"):
        files.restore("w-1", "me")
