"""The documents, parts for a user interface: clicked by their labels, seen by the command line."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from examples.walkthrough import Stage, table
from tests.console.conftest import played, serious, typed, written

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

IMAGE = "runai.jfrog.io/demo/quickstart"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One node of four GPUs; projects are made by the tests."""
    with played(tmp_path_factory.mktemp("documents"), "pliant up --simulate 1x4") as stage:
        yield stage


@pytest.fixture
def page(anew: Page, stage: Stage) -> Page:
    """Logged in at the login page."""
    anew.goto("/")
    anew.get_by_label("Password or token").fill(written(stage.state / "token").strip())
    anew.get_by_role("button", name="Log in").click()
    expect(anew.get_by_role("heading", name="Workloads")).to_be_visible()
    return anew


@pytest.fixture(autouse=True)
def left(stage: Stage) -> Iterator[None]:
    """Workloads of a test go with it, projects stay."""
    yield
    for project in re.findall(r"team-\w", typed(stage, "pliant project list -o name")):
        if names := " ".join(typed(stage, f"pliant list -p {project} -o name").split()):
            typed(stage, f"pliant delete -p {project} {names}")


def press(page: Page | Locator, label: str) -> None:
    """A button by its label; case does not matter."""
    page.get_by_role("button", name=re.compile(rf"^{re.escape(label)}$", re.IGNORECASE)).click()


def add_project(page: Page, stage: Stage, name: str) -> None:
    """Go to Projects, add one, allocate 2 GPUs to it; once per server."""
    if name in typed(stage, "pliant project list -o name").split():
        return
    page.goto("/projects")
    press(page, "+ New project")
    page.get_by_label("Project name").fill(name)
    page.get_by_label("GPU quota").fill("2")
    press(page, "Create project")
    expect(page.get_by_role("cell", name=name, exact=True)).to_be_visible()


def begin(page: Page, project: str, name: str, kind: str = "Training") -> None:
    page.get_by_role("link", name="Workloads").click()
    press(page, "+ NEW WORKLOAD")
    page.get_by_role("menuitem", name=kind).click()
    expect(page.get_by_label("Cluster")).to_be_visible()
    page.get_by_label("Project").click()
    page.get_by_role("option", name=project).click()
    page.get_by_role("radio", name="Start from scratch").click()
    page.get_by_label(f"{kind} name").fill(name)
    press(page, "CONTINUE")


def environment(page: Page, name: str) -> None:
    press(page, "+ NEW ENVIRONMENT")
    sheet = page.get_by_role("dialog")
    expect(sheet.get_by_label("Cluster")).to_be_visible()
    expect(sheet.get_by_label("Scope")).to_be_visible()
    sheet.get_by_label("Environment name").fill(name)
    sheet.get_by_label("Image URL").fill(IMAGE)
    press(sheet, "CREATE ENVIRONMENT")
    expect(page.get_by_role("radio", name=name)).to_be_checked()


def submit(page: Page, project: str, name: str, compute: str, label: str = "CREATE TRAINING") -> None:
    begin(page, project, name)
    environment(page, f"for-{name}")
    page.get_by_role("radio", name=compute).click()
    expect(page.get_by_role("radio", name=compute)).to_be_checked()
    press(page, label)
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()


def seen(stage: Stage, *rows: tuple[str, str, str]) -> None:
    """`runai list -A` shows these (workload, status, allocation), after a while."""
    header = ("Workload", "Status", "GPU Alloc.")
    for _ in range(600):
        found, _done = table(stage, "runai list -A", header)
        if sorted(map(tuple, found)) == sorted(rows):
            return
    raise AssertionError(f"{found} is not {rows}")


def test_a_project_is_added_and_gpus_are_allocated_to_it(page: Page, stage: Stage) -> None:
    page.get_by_role("link", name="Projects").click()
    expect(page.get_by_role("heading", name="Projects")).to_be_visible()
    press(page, "+ New project")
    page.get_by_label("Project name").fill("Team A")
    press(page, "Create project")
    expect(page.get_by_role("dialog").get_by_role("alert").first).to_be_visible()
    page.get_by_label("Project name").fill("team-x")
    page.get_by_label("GPU quota").fill("2")
    press(page, "Create project")
    expect(page.get_by_role("cell", name="team-x", exact=True)).to_be_visible()
    assert re.search(r"team-x +\S+ +2", typed(stage, "pliant project list"))
    assert serious(page) == ""

    # Somebody else changes it while the form is open: this one is told, and nothing is lost.
    press(page, "Edit team-x")
    page.get_by_label("GPU quota").fill("3")
    typed(stage, "pliant project update team-x --quota 1")
    page.reading.away = True  # type: ignore[attr-defined]
    press(page, "Save")
    expect(page.get_by_role("dialog")).to_contain_text("(412)")
    press(page, "Close")
    expect(page.get_by_role("row", name="team-x")).to_contain_text("1.00")
    press(page, "Delete team-x")
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_role("cell", name="team-x", exact=True)).to_have_count(0)


def test_over_quota_and_fairness(page: Page, stage: Stage) -> None:
    for name in ("team-a", "team-b"):
        add_project(page, stage, name)
    submit(page, "team-a", "a2", "two-gpus")
    begin(page, "team-a", "a2")
    expect(page.get_by_text("a2 exists in project team-a")).to_be_visible()
    page.get_by_label("Training name").fill("a1")
    press(page, "CONTINUE")
    environment(page, "for-a1")
    press(page, "+ NEW COMPUTE RESOURCE")
    sheet = page.get_by_role("dialog")
    sheet.get_by_label("Compute resource name").fill("one-gpu-of-mine")
    sheet.get_by_label("GPU devices per pod").fill("1")
    expect(sheet.get_by_label("GPU memory per device")).to_have_value("% (of device)")
    sheet.get_by_label("Request").fill("100")
    expect(sheet.get_by_label("CPU compute per pod")).to_have_value("0.1")
    expect(sheet.get_by_label("CPU memory per pod")).to_have_value("100")
    press(sheet, "CREATE COMPUTE RESOURCE")
    expect(page.get_by_role("radio", name="one-gpu-of-mine")).to_be_checked()
    expect(page.get_by_text("It starts now")).to_be_visible()
    assert serious(page) == ""
    press(page, "CREATE TRAINING")
    submit(page, "team-b", "b1", "one-gpu")
    seen(stage, ("a2", "Running", "2.00"), ("a1", "Running", "1.00"), ("b1", "Running", "1.00"))

    begin(page, "team-b", "b2")
    environment(page, "for-b2")
    page.get_by_role("radio", name="one-gpu").click()
    expect(page.get_by_text("a1 (team-a): evict, 1.00 → 0.00 GPU")).to_be_visible()
    press(page, "CREATE TRAINING")
    running = [("a2", "Running", "2.00"), ("b1", "Running", "1.00"), ("b2", "Running", "1.00")]
    seen(stage, *running, ("a1", "Pending", "0.00"))


def test_fractions_and_exact_memory(page: Page, stage: Stage) -> None:
    add_project(page, stage, "team-a")
    submit(page, "team-a", "frac05", "half-gpu")
    submit(page, "team-a", "frac05-2", "half-gpu")
    seen(stage, ("frac05", "Running", "0.50"), ("frac05-2", "Running", "0.50"))
    begin(page, "team-a", "exact", "Workspace")
    environment(page, "for-exact")
    press(page, "+ NEW COMPUTE RESOURCE")
    sheet = page.get_by_role("dialog")
    sheet.get_by_label("Compute resource name").fill("five-gb")
    sheet.get_by_label("GPU memory per device").click()
    page.get_by_role("option", name="GB").click()
    sheet.get_by_label("Request").fill("5")
    press(sheet, "CREATE COMPUTE RESOURCE")
    expect(page.get_by_role("radio", name="five-gb")).to_be_checked()
    press(page, "CREATE WORKSPACE")
    expect(page.get_by_role("link", name="exact")).to_be_visible()
    assert "5G" in typed(stage, "pliant describe job exact -p team-a")

    press(page, "Actions for frac05")
    page.get_by_role("menuitem", name="Make a copy").click()
    expect(page.get_by_label("Training name")).to_have_value("frac05-copy")
    press(page, "CONTINUE")
    expect(page.get_by_role("radio", name="As in frac05").first).to_be_checked()
    press(page, "CREATE TRAINING")
    expect(page.get_by_role("link", name="frac05-copy")).to_be_visible()
