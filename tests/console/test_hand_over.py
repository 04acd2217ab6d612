"""The leader is killed: an open page finds the second server by itself and shows the current state."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from examples.walkthrough import Stage
from tests.console.conftest import played, typed, written
from tests.store.postgres import server

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

SLEEP = "-i ubuntu -- sleep infinity"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder, server(Path(folder)) as database:
        commands = (
            f"pliant up --simulate 1x2 --database '{database.place()}'",
            "pliant up --standby",
            "pliant project create team-a --quota 2",
            "pliant project set team-a",
        )
        with played(tmp_path_factory.mktemp("two"), *commands) as stage:
            yield stage


def test_a_page_goes_on_with_the_second_server(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit before -g 1 {SLEEP}")
    expect(page.get_by_role("row", name="before")).to_contain_text("Running")
    page.reading.away = True  # type: ignore[attr-defined]
    led = json.loads(written(stage.state / "server.json"))["pid"]
    os.kill(led, signal.SIGKILL)
    while stage.run(f"pliant submit after -g 1 {SLEEP}").code != 0:  # until the other one leads
        continue
    expect(page.get_by_role("row", name="after")).to_contain_text("Running")
    expect(page.get_by_role("row", name="before")).to_contain_text("Running")
    assert json.loads(written(stage.state / "server.json"))["pid"] != led
    page.get_by_role("button", name="Actions for after").click()
    page.get_by_role("menuitem", name="Stop").click()
    expect(page.get_by_role("row", name="after")).to_contain_text("Suspended")
    typed(stage, "pliant delete before after")
