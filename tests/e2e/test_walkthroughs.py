"""Types every page of docs/walkthroughs and docs/guide as printed, in each of its editions."""

import fcntl
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from examples.walkthrough import PAGES, Stage, editions, parse, play
from tests.e2e.witness import Snapshot, observe, reference

FOLDERS = (PAGES, PAGES.parent / "guide")
SESSIONS = [
    pytest.param(page, edition, id=f"{page.stem}-{edition}" if edition else page.stem)
    for folder in FOLDERS
    for page in sorted(folder.glob("*.md"))
    if page.name != "README.md" and "```console" in page.read_text("utf-8")
    for edition in editions(page.read_text("utf-8"))
]


@pytest.fixture
def alone(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Editions of one page take turns: they use fixed ports of this machine."""
    with (tmp_path_factory.getbasetemp().parent / f"{page.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.timeout(600)  # it may wait for the other edition
@pytest.mark.parametrize(("page", "edition"), SESSIONS)
def test_page(page: Path, edition: str, alone: None, stage: Stage) -> None:
    snapshots = []
    for seen in play(parse(page.read_text("utf-8"), edition), stage):
        assert not seen.problem, f"{page.name}, line {seen.command.line}: {seen.command.text}\n{seen.problem}"
        expected = seen.command.expected
        if expected and expected.kind == "rows":
            snapshots.append(observe(stage))
    assert stage.close() == {}, "the page's last command is to leave nothing behind"
    FURTHER.get(page.stem, lambda _: None)(snapshots)


def stretches(snapshots: list[Snapshot]) -> None:
    """elastic1 goes from 2 GPUs to 1, elastic2 from 1 to 2: the same jobs, no lost step, and the reasons."""
    for name, gpus in (("elastic1", [2, 1]), ("elastic2", [1, 2])):
        before, after = [snapshot for snapshot in snapshots if name in snapshot.items][:2]
        assert [before.gpus(name), after.gpus(name)] == gpus
        assert [len(before.workers[name]), len(after.workers[name])] == gpus
        for key in ("id", "name", "createdAt"):
            assert before.items[name][key] == after.items[name][key]
        attempts = after.losses[name]
        assert len(attempts) == 2, "one start, one resize"
        (last, _), (resumed, _) = attempts[0][-1], attempts[1][0]
        assert resumed > last
        whole = reference(attempts[1][-1][0] + 1)
        for step, loss in (*attempts[0], *attempts[1]):
            assert abs(loss - whole[step]) < 1e-6, f"{name}: step {step} after a resize at {resumed}"
    why = {event["reason"]: event for event in _events(snapshots, "elastic1")}
    assert why["Shrunk"]["code"] and "filler1" in why["Shrunk"]["message"]
    assert why["Shrunk"]["numbers"], "the reason has its numbers"
    why = {event["reason"]: event for event in _events(snapshots, "elastic2")}
    assert (why["Grown"]["code"], why["Grown"]["numbers"]["gpus"]) == ("grown", 1000)


def waits_for_its_time(snapshots: list[Snapshot]) -> None:
    """a1 lost its GPU, but not before it had run for 40 seconds, counted from its real start, which a busy
    server may have seen later."""
    (lost,) = [event for event in _events(snapshots, "a1") if event["reason"] == "Reclaimed"]
    (pod,) = snapshots[-1].pods["a1"]
    assert pod["attempt"] == 1
    began, ended = (
        datetime.fromisoformat(at) for at in (pod["containers"][0]["startedAt"], lost["createdAt"])
    )
    assert (ended - began).total_seconds() >= 39.9


def says_by_whose_right(snapshots: list[Snapshot]) -> None:
    """a1's history names the project that took its GPU; one job was moved for a2 and continued."""
    taken = next(event for event in _events(snapshots, "a1") if event["reason"] == "Reclaimed")
    assert "team-b" in taken["message"]
    final = snapshots[-1]
    moved = [name for name in ("a1", "b1") if any(e["reason"] == "Moved" for e in final.events[name])]
    assert len(moved) == 1, "one job was moved for a2, not both"
    (name,) = moved
    attempts = final.losses[name]
    whole = reference(attempts[-1][-1][0] + 1)
    assert abs(attempts[-1][0][1] - whole[attempts[-1][0][0]]) < 1e-6, "it went on where it was"


def resumes(snapshots: list[Snapshot]) -> None:
    """The resumed job continued where it was suspended, under the same id."""
    first, stopped, last = snapshots[:3]
    assert first.items["train1"]["id"] == last.items["train1"]["id"]
    before, after = last.losses["train1"][-2:]
    assert after[0][0] > before[-1][0]
    assert abs(after[0][1] - reference(after[0][0] + 1)[after[0][0]]) < 1e-6
    assert stopped.workers["train1"] == []


def shares_one_device(snapshots: list[Snapshot]) -> None:
    """Both fractions have the right portions, to the thousandth."""
    last = snapshots[-1]
    assert sorted(item["allocatedResources"]["gpu"] for item in last.items.values()) == [0.292, 0.5]


def _events(snapshots: list[Snapshot], name: str) -> list[dict[str, str]]:
    return next(snapshot.events[name] for snapshot in reversed(snapshots) if name in snapshot.events)


FURTHER: dict[str, Callable[[list[Snapshot]], None]] = {
    "elasticity": stretches,
    "elasticity-node-types": stretches,
    "elasticity-filler": stretches,
    "minimum-run-time": waits_for_its_time,
    "over-quota": says_by_whose_right,
    "suspend-resume": resumes,
    "fractions": shares_one_device,
}
"""Page -> the check of what its tables cannot show."""
