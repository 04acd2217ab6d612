"""The table of workloads and the page of one, as a user sees and uses them in a browser."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from examples.walkthrough import Stage
from tests.console.conftest import gone, serious, typed, written

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

SLEEP = "-i ubuntu -- sleep infinity"


@pytest.fixture(autouse=True)
def empty(stage: Stage) -> Iterator[None]:
    """Removes what a test submitted before the next one begins."""
    yield
    gone(stage)


def row(page: Page, name: str) -> object:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_a_password_that_is_wrong_and_a_token_that_is_right(anew: Page, stage: Stage) -> None:
    anew.goto("/")
    anew.get_by_label("User name").fill("alice")
    anew.get_by_label("Password or token").fill("wrong")
    anew.reading.away = True  # type: ignore[attr-defined]  # 401 is what is asked for
    anew.get_by_role("button", name="Log in").click()
    expect(anew.get_by_role("alert")).to_contain_text("not valid")
    anew.reading.away = False  # type: ignore[attr-defined]
    anew.get_by_label("User name").fill("")
    anew.get_by_label("Password or token").fill(written(stage.state / "token").strip())
    anew.get_by_role("button", name="Log in").click()
    expect(anew.get_by_role("heading", name="Workloads")).to_be_visible()
    anew.get_by_role("button", name="Log out").click()
    expect(anew.get_by_role("button", name="Log in")).to_be_visible()
    anew.goto("/console/workloads")
    expect(anew.get_by_role("button", name="Log in")).to_be_visible()


def test_what_the_command_line_does_is_seen_and_what_is_clicked_happens(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit live -g 1 {SLEEP}")
    expect(row(page, "live")).to_contain_text("Running")
    expect(row(page, "live")).to_contain_text("1.00")

    page.get_by_role("button", name="Actions for live").click()
    page.get_by_role("menuitem", name="Stop").click()
    expect(row(page, "live")).to_contain_text("Suspended")
    assert "Suspended" in typed(stage, "pliant list")

    page.get_by_role("button", name="Actions for live").click()
    page.get_by_role("menuitem", name="Run").click()
    expect(row(page, "live")).to_contain_text("Running")

    page.get_by_role("button", name="Actions for live").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    expect(row(page, "live")).to_contain_text("Running")
    page.get_by_role("button", name="Actions for live").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row(page, "live")).to_have_count(0)
    assert "live" not in typed(stage, "pliant list -o name")


def test_an_open_menu_and_the_focus_stay_while_the_table_changes(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit first -g 1 {SLEEP}")
    expect(row(page, "first")).to_contain_text("Running")
    menu = page.get_by_role("button", name="Actions for first")
    menu.click()
    typed(stage, f"pliant submit second -g 1 {SLEEP}")
    expect(row(page, "second")).to_contain_text("Running")
    page.get_by_role("menuitem", name="Stop").click()
    expect(row(page, "first")).to_contain_text("Suspended")
    menu.focus()
    typed(stage, "pliant delete second")
    expect(row(page, "second")).to_have_count(0)
    expect(menu).to_be_focused()


def test_search_filters_columns_pages_and_csv(page: Page, stage: Stage, tmp_path: Path) -> None:
    typed(stage, f"pliant submit many --array 0-59 -g 2 {SLEEP}")
    typed(stage, f"pliant submit other -g 2 --label x==1+1 {SLEEP}")
    expect(page.get_by_text("1-50 of 61")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("51-61 of 61")).to_be_visible()
    page.get_by_label("Search").fill("other")
    expect(page.get_by_text("1-1 of 1")).to_be_visible()
    expect(row(page, "other")).to_be_visible()

    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="Department").click()
    expect(page.get_by_role("columnheader", name="Department")).to_be_visible()
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    download.value.save_as(tmp_path / "workloads.csv")
    head, line = written(tmp_path / "workloads.csv").splitlines()
    assert head.startswith("Workload,Status,Type,Project") and line.startswith(
        "other,Pending,Training,team-a"
    )

    page.get_by_label("Search").fill("")
    page.get_by_label("Status").click()
    page.get_by_role("option", name="Failed").click()
    expect(page.get_by_text("No workloads here.")).to_be_visible()


def test_why_it_waits_what_happened_and_what_it_prints(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit blocker -g 1 {SLEEP}")
    typed(stage, f"pliant submit waiter -g 2 {SLEEP}")
    page.get_by_role("link", name="waiter").click()
    expect(page.get_by_role("heading", name="waiter")).to_be_visible()
    why = page.get_by_role("region", name="Why")
    expect(why).to_contain_text("Needs 2 GPUs")
    expect(why).to_contain_text("blocker")
    expect(page.get_by_role("region", name="Event history")).to_contain_text("submitted waiter")
    typed(stage, "pliant delete blocker")
    expect(why).to_contain_text("Allocated 2 GPUs")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("region", name="Event history")).to_contain_text("ancelled")


EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
ESCAPES = "\x1b]0;owned\x07\x1b[31mred"


def test_what_people_write_is_text(page: Page, stage: Stage) -> None:
    """Each text that a submitter chooses: arguments, a variable, a line of the log, an escape."""
    lines = (f"print({EVIL!r})", f"print({ESCAPES!r}, flush=True)", "import time", "time.sleep(1e6)")
    (stage.home / "evil.py").write_text("\n".join(lines))
    typed(stage, f"pliant submit evil -g 1 --environment 'X={EVIL}' -- python3 evil.py '{EVIL}'")
    dialogs: list[str] = []
    page.on("dialog", lambda it: (dialogs.append(it.message), it.dismiss()))
    page.get_by_role("link", name="evil").click()
    expect(page.get_by_role("region", name="Details")).to_contain_text(EVIL)
    log = page.get_by_role("log")
    expect(log).to_contain_text(EVIL)
    expect(log).to_contain_text(ESCAPES.encode("unicode_escape").decode())
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert dialogs == []


def test_a_script_that_gets_in_does_not_run(page: Page) -> None:
    """The second defence: if something were shown as HTML, the page's policy would not run it."""
    page.reading.away = True  # type: ignore[attr-defined]  # Chromium says that it refused
    ran = page.evaluate(
        """() => new Promise(done => {
            window.ran = false
            const div = document.createElement('div')
            document.body.append(div)
            div.innerHTML = '<img src="data:," onerror="window.ran = true">'
            const script = document.createElement('script')
            script.textContent = 'window.ran = true'
            div.append(script)
            document.addEventListener('securitypolicyviolation', () => done(window.ran), {once: true})
        })"""
    )
    assert ran is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_is_wrong_for_those_who_do_not_see(page: Page, stage: Stage, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    name = f"seen-{scheme}"
    typed(stage, f"pliant submit {name} -g 1 {SLEEP}")
    expect(row(page, name)).to_contain_text("Running")
    # While the page fetches: Quasar's own progress bar would have no name for a screen reader.
    page.route("**/slow", lambda _: None)
    page.evaluate("(window.slow = new XMLHttpRequest()).open('GET', '/slow'); window.slow.send()")
    assert serious(page) == ""
    page.get_by_role("button", name=f"Actions for {name}").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    # Axe takes no background from elements that let clicks through; the next page has the same buttons.
    assert serious(page, {"rules": {"color-contrast": {"enabled": False}}}) == ""
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("region", name="Details")).to_contain_text("ubuntu")
    assert serious(page) == ""


def test_nodes_gpus_and_what_waits(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit sits -g 1 --max-runtime 1h {SLEEP}")
    typed(stage, f"pliant submit waits -g 2 {SLEEP}")
    page.get_by_role("link", name="Overview").click()
    why = page.get_by_role("region", name="Why is anything waiting")
    expect(why).to_contain_text("waits (team-a)")
    expect(why).to_contain_text("Expected to start between")
    expect(page.get_by_role("link", name="Allocated/total GPUs")).to_contain_text("1.00/2")
    assert serious(page) == ""
    page.get_by_role("link", name="Nodes", exact=True).click()
    node = page.get_by_role("region", name="Node sim-0")
    expect(node).to_contain_text("sits")
    assert serious(page) == ""

    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text("sits (team-a)")
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    page.get_by_role("button", name="Cordon").click()
    expect(node).to_contain_text("Cordoned")
    assert "SchedulingDisabled" in typed(stage, "pliant node list")
    page.get_by_role("button", name="Uncordon").click()
    expect(page.get_by_role("button", name="Cordon", exact=True)).to_be_visible()


def test_a_server_that_starts_again_is_found_again(page: Page, stage: Stage) -> None:
    typed(stage, f"pliant submit before -g 1 {SLEEP}")
    expect(row(page, "before")).to_contain_text("Running")
    page.reading.away = True  # type: ignore[attr-defined]
    typed(stage, "pliant restart")
    typed(stage, f"pliant submit after -g 1 {SLEEP}")
    expect(row(page, "after")).to_contain_text("Running")
    expect(row(page, "before")).to_contain_text("Running")

    os.kill(json.loads(written(stage.state / "server.json"))["pid"], signal.SIGKILL)
    expect(page.get_by_text("Connection lost")).to_be_visible()
    typed(stage, "pliant up --simulate 1x2")
    expect(page.get_by_text("Connection lost")).not_to_be_visible()
    typed(stage, "pliant delete before")
    expect(row(page, "before")).to_have_count(0)
    expect(row(page, "after")).to_contain_text("Running")
