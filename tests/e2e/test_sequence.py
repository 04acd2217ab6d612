"""An array, a job that depends on it, and a begin time, as a user types them."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.walkthrough import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    try:
        assert stage.run("pliant up --simulate 1x4:16G").code == 0
        yield stage
    finally:
        stage.close()


def test_an_array_and_what_depends_on_it(stage: Stage) -> None:
    script = "echo element $PLIANT_ARRAY_INDEX of $PLIANT_ARRAY_COUNT; exit $PLIANT_ARRAY_INDEX"
    made = stage.run(f"pliant submit sweep --backoff-limit 0 --array 0,3,7%2 -- sh -c '{script}'")
    assert made.code == 0, made.said
    assert "sweep is an array of 3 jobs: sweep-0 ... sweep-7." in made.err
    for line in (
        "pliant submit anyway --dependency afterany:sweep -- true",
        "pliant submit never --begin now+20h -- true",
    ):
        done = stage.run(line)
        assert done.code == 0, done.said
    waited = stage.run("pliant wait sweep anyway", 240.0)
    assert waited.code == 7, waited.said
    assert sorted(waited.out.splitlines()) == [
        "anyway succeeded",
        "sweep-0 succeeded",
        "sweep-3 failed (exit code 3)",
        "sweep-7 failed (exit code 7)",
    ]
    assert stage.run("pliant logs sweep-3").out == "element 3 of 3\n"
    rows = stage.run("pliant list --columns name,status --no-headers").out.splitlines()
    assert any(row.split() == ["sweep", "1", "succeeded,", "2", "failed"] for row in rows), rows
    held = json.loads(stage.run("pliant describe job never -o json").out)
    assert (held["status"], held["reason"]["code"]) == ("Pending", "begin-time")
    refused = stage.run("pliant submit late --after sweep -- true")
    assert refused.code == 2
    assert "can never be met" in refused.err
    past = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=2)).isoformat("T", "seconds")
    assert stage.run(f"pliant submit late --begin {past} -- true").code == 2
    entries = json.loads(stage.run("pliant history -o json").out)
    used = [entry["outcome"]["maxRssBytes"] for entry in entries if entry["name"] == "sweep-0"]
    assert 2**16 < used[0] < 2**30, "the memory of its largest process"
    assert stage.run("pliant delete sweep never").code == 0
    assert stage.run("pliant list -o name").out.split() == ["anyway"]
