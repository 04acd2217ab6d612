"""The link between a job and its server: what it hears and reports through all failures of the server."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from pliant.train.agent.link import ALONE, Link, NoTask, report_of
from tests.house.waiting import until
from tests.link.conftest import ATTEMPT, A, B, Scheduler, entry, write


def test_it_registers_and_hears_of_changes_at_once(scheduler: Scheduler, link: Link) -> None:
    scheduler.tell(1, entry("active", A, B))
    held = until(lambda: link.wait(-1, 1), "the first document")
    assert (held.version, held.devices, held.draining) == (1, (A, B), ())
    assert [(body["protocol"], body["pid"], body["liveResize"]) for body in scheduler.said("link")] == [
        (1, 4711, True)
    ]
    scheduler.tell(2, entry("active", A), entry("draining", B, deadline=scheduler.now + 600_000))
    held = until(lambda: link.wait(1, 1), "the second")
    assert held.devices == (A,)
    ((gpu, left),) = held.draining
    assert gpu == B and 500_000 < left <= 600_000
    assert link.wait(2, 0.05) is None


def test_others_do_not_concern_it(scheduler: Scheduler, link: Link) -> None:
    scheduler.tell(
        1,
        entry("active", "x", task="task-1"),
        entry("active", A),
        entry("active", B, attempt=2),
        entry("pending", "y"),
    )
    held = until(lambda: link.wait(-1, 1), "the document")
    assert (held.devices, held.draining) == ((A,), ())


def test_a_task_without_gpus_has_one_place(scheduler: Scheduler, link: Link) -> None:
    scheduler.tell(1, entry("active"))
    assert until(lambda: link.wait(-1, 1), "the document").devices == (ALONE,)
    link.ack(1, "joined", [ALONE])
    until(lambda: scheduler.said("acks"), "the word")
    assert scheduler.said("acks") == [{"version": 1, "kind": "joined", "gpus": []}]


def test_clocks_that_differ_do_not_move_a_deadline(
    scheduler: Scheduler, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scheduler.ahead_ms = 3_600_000
    scheduler.tell(1, entry("active", A), entry("draining", B, deadline=scheduler.now + 600_000))
    link = Link(ATTEMPT, folder, scheduler.url, "secret")
    link.start()
    held = until(lambda: link.wait(-1, 1), "the document")
    assert 500_000 < held.draining[0][1] <= 600_000
    write(folder, 2, entry("active", A), entry("draining", B, deadline=scheduler.now + 600_000))
    held = until(lambda: link.wait(1, 1), "the file")
    assert 500_000 < held.draining[0][1] <= 600_000, "the file's deadlines are by the server's clock, too"
    link.close(0.2)
    assert re.search(r"clock here is -36\d\d s from the server's", capfd.readouterr().err)


def test_with_the_server_gone_the_file_tells_and_nothing_said_is_lost(
    scheduler: Scheduler, folder: Path, link: Link
) -> None:
    scheduler.tell(1, entry("active", A, B))
    until(lambda: link.wait(-1, 1), "the document")
    port = scheduler.server.server_address[1]
    scheduler.close()
    write(folder, 2, entry("active", A), entry("draining", B, deadline=scheduler.now + 20_000))
    held = until(lambda: link.wait(1, 1), "the file")
    assert (held.version, held.devices) == (2, (A,))
    link.ack(2, "drained", [B])
    link.progress({"step": 7})
    again = Scheduler(port)
    try:
        again.tell(3, entry("active", A))
        until(lambda: again.said("acks"), "what was said meanwhile")
        assert again.said("acks") == [{"version": 2, "kind": "drained", "gpus": [B]}]
        until(lambda: again.said("progress"), "how far it is")
        assert again.said("progress")[-1]["step"] == 7
        assert until(lambda: link.wait(2, 1), "what is new").version == 3
        assert len(again.said("link")) == 1, "it says again who it is"
    finally:
        again.close()


def test_a_server_that_came_back_on_another_port_is_found(folder: Path) -> None:
    gone = Scheduler()
    gone.close()
    other = Scheduler()
    link = Link(ATTEMPT, folder, gone.url, "secret")
    try:
        other.tell(5, entry("active", A))
        (folder.parents[3] / "server.json").write_text(json.dumps({"url": other.url}))
        link.start()
        assert until(lambda: link.wait(-1, 1), "the document").version == 5
    finally:
        link.close(0.2)
        other.close()


def test_a_wrong_token_leaves_the_file_and_is_said_once(
    scheduler: Scheduler, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scheduler.refusal = (
        401,
        {"message": "The token is not valid.", "details": "Look there."},
    )
    write(folder, 1, entry("active", A))
    link = Link(ATTEMPT, folder, scheduler.url, "wrong")
    link.start()
    try:
        assert until(lambda: link.wait(-1, 1), "the file").devices == (A,)
        until(lambda: link.trouble, "the refusal")
        write(folder, 2, entry("active", A, B))
        assert until(lambda: link.wait(1, 1), "the file").devices == (A, B)
    finally:
        link.close(0.2)
    said = capfd.readouterr().err
    assert said.count("The token is not valid. Look there.") == 1


def test_a_server_of_another_version_is_said_with_the_cure(
    scheduler: Scheduler, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scheduler.refusal = (409, {"message": "The job speaks version 1.", "details": "Install the same."})
    link = Link(ATTEMPT, folder, scheduler.url, "secret")
    link.start()
    until(lambda: link.trouble, "the refusal")
    link.close(0.2)
    assert "Install the same." in capfd.readouterr().err


def test_only_the_newest_progress_is_sent_and_the_last_one_before_it_closes(
    scheduler: Scheduler, link: Link
) -> None:
    scheduler.tell(1, entry("active", A))
    until(lambda: scheduler.said("link"), "the link")
    for step in range(200):
        link.progress({"step": step, "loss": float("nan"), "step_ms_by_size": {"2": 30}})
    link.close(60)
    said = scheduler.said("progress")
    assert said[-1]["step"] == 199 and len(said) < 150
    assert said[-1]["loss"] is None and said[-1]["stepMsBySize"] == {"2": 30.0}


def test_what_is_said_while_the_link_is_made_is_sent_before_it_closes(
    scheduler: Scheduler, folder: Path
) -> None:
    scheduler.slow_s = 0.3
    link = Link(ATTEMPT, folder, scheduler.url, "secret")
    link.start()
    link.progress({"step": 7})
    link.close(60)
    assert [report["step"] for report in scheduler.said("progress")] == [7]


def test_a_server_that_is_away_is_not_waited_for(scheduler: Scheduler, folder: Path) -> None:
    scheduler.close()
    link = Link(ATTEMPT, folder, scheduler.url, "secret")
    link.start()
    link.progress({"step": 7})
    began = time.monotonic()
    link.close(60)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 3}', '{"version": 3, "tasks": 5}'])
def test_a_file_that_cannot_be_read_changes_nothing(folder: Path, text: str) -> None:
    link = Link(ATTEMPT, folder, "", "")
    write(folder, 1, entry("active", A))
    link.start()
    (folder / "allocation.json").write_text(text)
    held = link.wait(-1, 0.5)
    assert held is not None and held.devices == (A,)


@pytest.mark.parametrize(
    ("environment", "called"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": f"{A},{B}"}, (A, B)),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "PLIANT_DEVICES": f"{A},{B}"}, (A, B)),  # an agent without any
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, ("0", "1")),
        ({}, ("0", "1")),
    ],
)
def test_in_a_container_devices_are_those_that_it_was_shown(
    folder: Path, tmp_path: Path, environment: dict[str, str], called: tuple[str, str]
) -> None:
    told = tmp_path / "told"
    told.mkdir()
    write(told, 1, entry("active", "n/gpu-3"), entry("draining", "n/gpu-5", deadline=1))
    inside = {"PLIANT_ATTEMPT": ATTEMPT, "PLIANT_ATTEMPT_DIR": str(folder)}
    file = {"PLIANT_ALLOCATION_FILE": str(told / "allocation.json")}
    link = Link.from_environment(inside | file | environment)
    link.start()
    held = until(lambda: link.wait(-1, 1), "the document")
    assert (held.devices, [gpu for gpu, _ in held.draining]) == (called[:1], [called[1]])


def test_outside_of_a_task_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoTask, match="no task of the scheduler"):
        Link.from_environment({})


def test_a_token_that_cannot_be_read_leaves_the_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(folder, 1, entry("active", A))
    environment = {
        "PLIANT_ATTEMPT": ATTEMPT,
        "PLIANT_ATTEMPT_DIR": str(folder),
        "PLIANT_TOKEN_FILE": str(folder / "none"),
        "PLIANT_URL": "http://127.0.0.1:1",
    }
    link = Link.from_environment(environment)
    link.start()
    held = link.wait(-1, 1)
    link.close(0.1)
    assert held is not None and held.devices == (A,)
    assert "cannot be read" in capfd.readouterr().err


def test_reports_bear_whatever_a_master_says() -> None:
    assert report_of({}) == {
        "state": "",
        "step": 0,
        "stepsTotal": 0,
        "epoch": 0,
        "epochs": 0,
        "records": 0,
        "skipped": 0,
        "world": 0,
        "goodput": 0.0,
        "loss": None,
        "stepMsBySize": {},
    }
    assert report_of({"steps_total": None, "loss": 0.25})["loss"] == 0.25


def test_waiting_costs_no_processor(scheduler: Scheduler, link: Link) -> None:
    scheduler.tell(1, entry("active", A))
    until(lambda: link.wait(-1, 1), "the document")
    before, began = os.times(), time.monotonic()
    link.wait(1, 1.0)
    after = os.times()
    spent = after.user - before.user + after.system - before.system
    assert time.monotonic() - began >= 1 and spent < 0.5
