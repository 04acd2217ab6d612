"""Remedies that would let a workload start, tried and then applied by clicks; logs of earlier attempts."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from examples.walkthrough import Stage
from pliant.console.remedies import can_be_made
from tests.console.conftest import gone, serious, typed
from tests.e2e.witness import statuses, until

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

SLEEP = "-i ubuntu -- sleep infinity"


@pytest.fixture(autouse=True)
def empty(stage: Stage) -> Iterator[None]:
    """Removes what a test submitted and resets the quota that it gave before the next one begins."""
    yield
    gone(stage)
    typed(stage, "pliant project update team-a --quota 2")


def test_a_quota_is_raised_after_its_dry_run(page: Page, stage: Stage) -> None:
    typed(stage, "pliant project update team-a --quota 1")
    typed(stage, f"pliant submit wants-two -g 2 --priority build {SLEEP}")
    page.get_by_role("link", name="wants-two").click()
    why = page.get_by_role("region", name="Why")
    trial = why.get_by_role("button", name="Dry run: raise the quota of project team-a from 1 to 2 GPUs")
    trial.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("wants-two (team-a): starts, 0 GPUs before, 2 GPUs after")
    expect(dialog).to_contain_text("Waiting workloads: 1 before, 0 after")
    assert serious(page, {"rules": {"color-contrast": {"enabled": False}}}) == ""
    dialog.get_by_role("button", name="Keep").click()
    expect(dialog).to_have_count(0)
    assert statuses(stage)["wants-two"] == "Pending"

    trial.click()
    dialog.get_by_role("button", name="Apply").click()
    expect(why).to_contain_text("Allocated 2 GPUs")
    until(lambda: statuses(stage)["wants-two"] == "Running", "it runs")


def test_another_workload_is_stopped_after_its_dry_run(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit holds -g 2 --priority build {SLEEP}")
    typed(stage, f"pliant submit next -g 1 {SLEEP}")
    page.get_by_role("link", name="next").click()
    why = page.get_by_role("region", name="Why")
    why.get_by_role("button", name="Dry run: holds (project team-a) ends and frees").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("next (team-a): starts")
    expect(dialog).to_contain_text("its record and files stay")
    dialog.get_by_role("button", name="Apply").click()
    expect(why).to_contain_text("Allocated 1 GPU")
    assert "Suspended" in typed(stage, "pliant list")


def test_the_log_of_an_attempt_before_the_newest(page: Page, stage: Stage) -> None:
    script = "echo this is attempt $PLIANT_ATTEMPT; sleep infinity"
    typed(stage, f"pliant submit twice -g 1 -i ubuntu -- bash -c '{script}'")
    page.get_by_role("link", name="twice").click()
    log = page.get_by_role("log")
    expect(log).to_contain_text("/1")
    typed(stage, "pliant suspend twice")
    typed(stage, "pliant resume twice")
    expect(log).to_contain_text("/2")
    page.get_by_label("Attempt").click()
    page.get_by_role("option", name="1", exact=True).click()
    expect(log).to_contain_text("/1")
    expect(log).not_to_contain_text("/2")
    page.get_by_label("Attempt").click()
    page.get_by_role("option", name="newest").click()
    expect(log).to_contain_text("/2")


def _step(kind: str, **more: Any) -> dict[str, Any]:
    whom = [{"kind": "project", "id": "1", "name": "a", "project": ""}]
    return {"kind": kind, "resource": "gpu", "where": "default", "whom": whom, **more}


@pytest.mark.parametrize(
    ("steps", "made"),
    [
        ([_step("quota")], True),
        ([_step("quota", resource="cpu")], False),
        ([_step("quota", whom=[{"kind": "project", "id": ""}])], False),  # its name is hidden
        ([_step("quota"), _step("end")], True),
        ([_step("quota"), _step("uncordon")], False),  # what-if knows no cordon
        ([_step("uncordon")], True),
        ([_step("taint")], True),
        ([_step("resume")], True),
        ([_step("machines")], False),
        ([_step("wait")], False),
    ],
)
def test_which_of_them_have_a_button(steps: list[dict[str, Any]], made: bool) -> None:
    assert can_be_made({"steps": steps}) is made
