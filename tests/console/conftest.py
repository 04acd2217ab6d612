"""One server and one real browser for all tests of a module."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from examples.walkthrough import Stage
from tests.house.gaps import gap

PATIENCE = 120_000
"""Milliseconds for a page to show what is expected: so long that only a page that never does fails."""

expect.set_options(timeout=PATIENCE)

AXE = Axe().axe_script
"""Half a megabyte of script that the browser compiles."""


@contextmanager
def played(folder: Path, *commands: str) -> Iterator[Stage]:
    """A server on which these commands were run."""
    stage = Stage(folder / "stage")
    stage.env.pop("PYTEST_CURRENT_TEST", None)  # NiceGUI does not compress answers if it sees this
    try:
        for command in commands:
            typed(stage, command)
        yield stage
    finally:
        left = stage.close()
    assert left == {}, "these processes outlived `pliant down`"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with one node of two GPUs and project team-a (quota 2)."""
    project = ("pliant project create team-a --quota 2", "pliant project set team-a")
    with played(tmp_path_factory.mktemp("console"), "pliant up --simulate 1x2", *project) as stage:
        yield stage


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # The first takes a fifth less processor time than the second.
    programs = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        gap("no Chromium", "apt install chromium-headless-shell fonts-dejavu-core")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            timeout=3 * PATIENCE,
        )
        yield browser
        browser.close()


def url_of(stage: Stage) -> str:
    """The server's URL, without a slash at the end."""
    port = (stage.state / "port").read_text().strip()
    return f"http://127.0.0.1:{port}"


class Reading:
    """Records what a page must never do: errors of scripts or the console, requests to other hosts."""

    def __init__(self, page: Page, home: str) -> None:
        self.wrong: list[str] = []
        self.away = False  # the server is down: errors on the console do not count
        page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        page.on("console", lambda it: self._said(it.type, it.text))
        page.on("request", lambda it: self._asked(it.url, home))

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and not self.away:
            self.wrong.append(f"console: {text}")

    def _asked(self, url: str, home: str) -> None:
        if not url.startswith((f"{home}/", "data:", "blob:")):
            self.wrong.append(f"another host: {url}")


def profile(browser: Browser, stage: Stage) -> BrowserContext:
    """A new browser context without cookies or cache."""
    context = browser.new_context(
        base_url=url_of(stage),
        viewport={"width": 1360, "height": 900},
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE)
    return context


@contextmanager
def read(context: BrowserContext, stage: Stage) -> Iterator[Page]:
    """A new page; asserts at its end that Reading has recorded nothing."""
    page = context.new_page()
    reading = Reading(page, url_of(stage))
    page.reading = reading  # type: ignore[attr-defined]
    yield page
    page.close()
    assert reading.wrong == []


@pytest.fixture
def anew(browser: Browser, stage: Stage) -> Iterator[Page]:
    """A page in a new browser context."""
    context = profile(browser, stage)
    with read(context, stage) as page:
        yield page
    context.close()


@pytest.fixture(scope="module")
def known(browser: Browser, stage: Stage) -> Iterator[BrowserContext]:
    """A context that keeps the compiled scripts of pages: loading them would take most of many tests."""
    context = profile(browser, stage)
    yield context
    context.close()


@pytest.fixture
def page(known: BrowserContext, stage: Stage) -> Iterator[Page]:
    """The table of workloads, logged in by a one-time link."""
    done = stage.run("pliant console --print-url")
    assert done.code == 0, done.said
    known.clear_cookies()
    with read(known, stage) as page:
        page.goto(done.out.strip())
        expect(page.get_by_role("heading", name="Workloads")).to_be_visible()
        yield page


def typed(stage: Stage, command: str) -> str:
    """Runs a command, which must succeed; returns what it prints."""
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}"
    return done.out


def gone(stage: Stage, project: str = "") -> None:
    """Deletes all workloads (of a project). One that the test has deleted may go between list and delete."""
    option = f"-p {project} " if project else ""
    while names := " ".join(typed(stage, f"pliant list {option}-o name").split()):
        done = stage.run(f"pliant delete {option}{names}")
        if done.code == 0:
            return
        assert "does not exist" in done.said, done.said


def written(path: Path) -> str:
    return path.read_text("utf-8")


def serious(page: Page, options: dict[str, Any] | None = None) -> str:
    """The violations that axe rates serious or critical, with their elements."""
    # Of rules that hold, axe sends one element each: sending hundreds takes longer than the check.
    if not page.evaluate("'axe' in window"):  # the script stays until another page is loaded
        page.evaluate(AXE)
    wanted = json.dumps({"resultTypes": ["violations"], **(options or {})})
    found = page.evaluate(f"axe.run({wanted}).then(it => it.violations)")
    return "\n".join(
        f"{it['id']}: {[(node['html'][:99], node['failureSummary']) for node in it['nodes']]}"
        for it in found
        if it["impact"] in ("serious", "critical")
    )
