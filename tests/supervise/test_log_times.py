"""The times that a supervisor records beside the log."""

import time
from pathlib import Path

import pytest

from pliant.engines.local.folder.layout import Folder
from pliant.engines.local.folder.log_times import MARK, Times
from tests.supervise.starter import FALLBACK, Attempt

WAIT = "until [ -e go ]; do sleep 0.01; done"


def now() -> int:
    return time.time_ns() // 1_000_000


def times_of(attempt: Attempt, name: str = "log") -> dict[str, int | None]:
    """The time (ms) of each line of that file of the log."""
    found, at = {}, 0
    with attempt.path(name).open("rb") as file:
        times = Times(Folder(attempt.folder), file.fileno())
        for line in file:
            found[line.decode().rstrip("\r\n")] = times.at(at)
            at += len(line)
        times.close()
    found.pop(FALLBACK.rstrip("\n"), None)
    return found


@pytest.mark.parametrize("options", [(), ("--tty",)])
def test_a_line_has_the_time_of_its_arrival(
    attempt: Attempt, tmp_path: Path, options: tuple[str, ...]
) -> None:
    begun = now()
    attempt.shell(f"echo one; printf half; {WAIT}; echo ' a line'; echo two", *options)
    attempt.says("half")
    between = now()
    (tmp_path / "go").touch()
    attempt.wait()
    came = times_of(attempt)
    assert list(came) == ["one", "half a line", "two"]
    assert begun <= came["one"] <= came["half a line"] <= between <= came["two"] <= now()


def test_every_line_of_a_flood_has_a_time_in_order(attempt: Attempt) -> None:
    attempt.shell("seq -f 'line %06g' 0 1999", "--log-max", "5000", "--log-keep", "2")
    attempt.wait()
    assert sorted(it.name for it in attempt.folder.glob("log-*")) == [
        "log-times",
        "log-times.1",
        "log-times.2",
    ]
    came = [when for name in ("log.2", "log.1", "log") for when in times_of(attempt, name).values()]
    assert len(came) > 800
    assert came == sorted(came)


def test_a_log_that_starts_again(attempt: Attempt) -> None:
    attempt.shell("seq -f 'line %06g' 0 999", "--log-max=5000", "--log-keep=0")
    attempt.wait()
    came = list(times_of(attempt).values())
    assert came
    assert came == sorted(came)


def test_a_log_that_somebody_cuts_short(attempt: Attempt, tmp_path: Path) -> None:
    attempt.shell(f"echo one; {WAIT}; echo two")
    attempt.says("one\n")
    with attempt.path("log").open("r+") as log:
        log.truncate()
    between = now()
    (tmp_path / "go").touch()
    attempt.wait()
    came = times_of(attempt)
    assert list(came) == ["two"]
    assert between <= came["two"]


def test_many_short_lines_do_not_fill_the_disk(attempt: Attempt) -> None:
    """A mark has 16 bytes, a line of these one."""
    attempt.shell("i=0; while [ $i -lt 500 ]; do echo; sleep 0.001; i=$((i+1)); done")
    record = attempt.wait()
    seconds = (record["ended_ms"] - record["started_ms"]) // 1000
    most = attempt.path("log").stat().st_size + 4096 + MARK * (seconds + 2)
    assert MARK < attempt.path("log-times").stat().st_size <= most


def test_times_that_cannot_be_written_cost_nothing_else(attempt: Attempt) -> None:
    attempt.path("log-times").mkdir()
    attempt.shell("seq -f 'line %06g' 0 9999")
    assert attempt.wait()["log_dropped"] == 0
    assert attempt.output().count("\n") == 10000


def test_a_start_that_fails_is_noted_too(attempt: Attempt) -> None:
    begun = now()
    attempt.launch("/nonexistent/program")
    attempt.wait()
    (came,) = times_of(attempt).values()
    assert begun <= came <= now()
