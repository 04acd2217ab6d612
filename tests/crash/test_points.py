"""kill -9 of the server at each named point, for start, stop and resize."""

import pytest

from tests.crash.rig import Rig

STARTING = ("recorded:start", "ordered", "claimed", "forked")
STOPPING = ("recorded:stop", "stop-ordered", "stop-signalled", "exited", "reported")
RESIZING = ("recorded:resize", "stop-ordered", "stop-signalled", "exited", "reported")
RESIZED = ("recorded:start", "ordered", "claimed", "forked")
ENDING = ("exited", "reported")
BRIEF = (
    'echo "$PLIANT_ATTEMPT start $CUDA_VISIBLE_DEVICES" >> "$JOURNAL"; '
    'until [ -e "$JOURNAL.end" ]; do sleep 0.05; done'
)
"""A job that ends by itself once it is allowed to."""


def die(rig: Rig) -> None:
    rig.until(rig.died, "the server dies at the point")
    rig.restart()


@pytest.mark.parametrize("point", STARTING)
def test_start(rig: Rig, point: str) -> None:
    rig.start(halt=point)
    rig.submit("job", 1)
    die(rig)
    names = {"job": "Running"} if "job" in rig.items() else {}
    assert names or "job" not in rig.submitted
    rig.settled(names)
    rig.verify()
    assert max(rig.starts().values(), default=0) <= 1


@pytest.mark.parametrize("point", ENDING)
def test_end(rig: Rig, point: str) -> None:
    """A job that ends by itself ends once, whichever server sees it."""
    rig.start(halt=point)
    rig.submit("job", 1, BRIEF)
    rig.submit("next", 4)
    rig.journal.with_name("journal.end").touch()
    die(rig)
    rig.settled({"job": "Completed", "next": "Running"})
    rig.verify()
    rig.until(lambda: len(rig.starts()) == 2, "both have noted their start")
    assert list(rig.starts().values()) == [1, 1]


@pytest.mark.parametrize("point", STOPPING)
def test_stop(rig: Rig, point: str) -> None:
    rig.start(halt=point)
    rig.submit("job", 1)
    rig.submit("other", 1)
    rig.settled({"job": "Running", "other": "Running"})
    rig.delete("job")
    die(rig)
    # Both run if the server died before it accepted the request. The list includes one that still stops.
    ends = ({"other": "Running"}, {"job": "Running", "other": "Running"})
    rig.until(lambda: rig.phases() in ends, f"one of {ends}", seen=rig.phases)
    rig.verify()


@pytest.mark.parametrize("point", RESIZING)
def test_resize(rig: Rig, point: str) -> None:
    rig.start(halt=point)
    rig.submit("elastic", 1, elastic=True)
    rig.until(lambda: rig.items()["elastic"]["allocatedResources"]["gpu"] == 4, "stretched over the node")
    rig.settled({"elastic": "Running"})
    rig.submit("filler", 2)
    die(rig)
    assert "filler" in rig.items() or "filler" not in rig.submitted
    if "filler" in rig.items():
        items = rig.settled({"elastic": "Running", "filler": "Running"})
        assert items["elastic"]["allocatedResources"]["gpu"] == 2
    rig.verify()


@pytest.mark.parametrize("point", RESIZED)
def test_restart_after_resize(rig: Rig, point: str) -> None:
    rig.start(halt=f"{point}#2")  # the first start is the elastic job's own
    rig.submit("elastic", 1, elastic=True)
    rig.settled({"elastic": "Running"})
    rig.submit("filler", 2)
    die(rig)
    items = rig.settled({"elastic": "Running", "filler": "Running"})
    assert items["elastic"]["allocatedResources"]["gpu"] == 2
    rig.verify()
