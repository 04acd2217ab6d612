"""The user interface parts of the four documents: clicks their labels in order, checks by the command line.

Opens by address only what a document names: the login page and `/projects`.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from examples.walkthrough import Stage, table
from tests.console.conftest import gone, played, serious, typed, written

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

IMAGE = "runai.jfrog.io/demo/quickstart"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two nodes of two GPUs; the projects of the documents are made by the tests, in any order."""
    others = "pliant project create others --quota 2"
    with played(tmp_path_factory.mktemp("documents"), "pliant up --simulate 2x2:16G", others) as stage:
        yield stage


@pytest.fixture
def page(anew: Page, stage: Stage) -> Page:
    """A page that is logged in at the login page."""
    log_in(anew, stage, "/")
    expect(anew.get_by_role("heading", name="Workloads")).to_be_visible()
    return anew


@pytest.fixture(autouse=True)
def left(stage: Stage) -> Iterator[None]:
    """Removes a test's workloads and the documents' projects at its end."""
    yield
    for project in typed(stage, "pliant project list -o name").split():
        gone(stage, project)
    for project in re.findall(r"team-\w", typed(stage, "pliant project list -o name")):
        done = stage.run(f"pliant project delete {project}")
        while done.code != 0 and "workloads" in done.said:  # they are being stopped
            done = stage.run(f"pliant project delete {project}")
        assert done.code == 0, done.said


def log_in(page: Page, stage: Stage, where: str) -> None:
    page.goto(where)
    page.get_by_label("Password or token").fill(written(stage.state / "token").strip())
    page.get_by_role("button", name="Log in").click()


def press(page: Page | Locator, label: str) -> None:
    """Presses a button by its label; case does not matter."""
    page.get_by_role("button", name=re.compile(rf"^{re.escape(label)}$", re.IGNORECASE)).click()


def go(page: Page, label: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=label, exact=True).click()
    expect(page.get_by_role("heading", name=label, exact=True)).to_be_visible()


def add_project(page: Page, name: str) -> None:
    """Adds a project with 2 GPUs on the page of projects."""
    press(page, "+ New project")
    page.get_by_label("Project name").fill(name)
    page.get_by_label("GPU quota").fill("2")
    press(page, "Create project")
    expect(page.get_by_role("cell", name=name, exact=True)).to_be_visible()


def begin(page: Page, project: str, name: str, kind: str = "Training") -> None:
    """Begins a workload in the Workload Manager, up to the name in the first step."""
    expect(page.get_by_role("navigation")).to_contain_text("Workload manager")
    go(page, "Workloads")
    press(page, "+ NEW WORKLOAD")
    page.get_by_role("menuitem", name=kind).click()
    page.get_by_label("Cluster").click()
    page.get_by_role("option", name="default").click()
    page.get_by_label("Project").click()
    page.get_by_role("option", name=project).click()
    page.get_by_role("radio", name="Start from scratch").click()
    page.get_by_label(f"{kind} name").fill(name)
    press(page, "CONTINUE")


def environment(page: Page, name: str) -> None:
    press(page, "+ NEW ENVIRONMENT")
    sheet = page.get_by_role("dialog")
    expect(sheet.get_by_label("Cluster")).to_have_value("default")
    expect(sheet.get_by_label("Scope")).to_be_visible()
    sheet.get_by_label("Environment name").fill(name)
    sheet.get_by_label("Image URL").fill(IMAGE)
    press(sheet, "CREATE ENVIRONMENT")
    expect(page.get_by_role("radio", name=name)).to_be_checked()


def finish(page: Page, name: str, compute: str, label: str = "CREATE TRAINING") -> None:
    page.get_by_role("radio", name=compute).click()
    expect(page.get_by_role("radio", name=compute)).to_be_checked()
    press(page, label)
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()


def seen(stage: Stage, command: str, *rows: tuple[str, str, str]) -> None:
    """Waits until the command shows these (workload, status, allocation)."""
    header = ("Workload", "Status", "GPU Alloc.")
    found: list[list[str]] = []
    for _ in range(600):
        found, _done = table(stage, command, header)
        if sorted(map(tuple, found)) == sorted(rows):
            return
    raise AssertionError(f"{found} is not {rows}")


def elastic(stage: Stage) -> None:
    """The command line of both documents on elasticity, on one node of two GPUs: the other node is filled."""
    typed(stage, "pliant submit rest -p others -i ubuntu -g 2 --interactive -- sleep infinity")
    typed(stage, "runai submit elastic1 -i gcr.io/run-ai-demo/quickstart -g 1 --elastic")
    rest = ("rest", "Running", "2.00")
    seen(stage, "runai list -A", rest, ("elastic1", "Running", "2.00"))
    typed(stage, "runai submit filler1 -i ubuntu -g 1 --interactive --command -- sleep infinity")
    seen(stage, "runai list -A", rest, ("elastic1", "Running", "1.00"), ("filler1", "Running", "1.00"))
    typed(stage, "runai delete elastic1 filler1")


def test_000_login_go_to_projects_add_one_and_allocate_gpus(page: Page, stage: Stage) -> None:
    go(page, "Projects")
    add_project(page, "team-a")
    assert re.search(r"team-a( \(current\))? +\S+ +2", typed(stage, "pliant project list"))
    typed(stage, "runai project set team-a")
    elastic(stage)


def test_001_login_at_the_address_of_projects(anew: Page, stage: Stage) -> None:
    log_in(anew, stage, "/projects")
    expect(anew.get_by_role("heading", name="Projects")).to_be_visible()
    add_project(anew, "team-a")
    assert re.search(r"team-a( \(current\))? +\S+ +2", typed(stage, "pliant project list"))
    typed(stage, "runai config project team-a")
    elastic(stage)


def test_002_over_quota_and_fairness(page: Page, stage: Stage) -> None:
    go(page, "Projects")
    for name in ("team-a", "team-b"):
        add_project(page, name)
    begin(page, "team-a", "a2")
    environment(page, "for-a2")
    finish(page, "a2", "two-gpus")

    begin(page, "team-a", "a2")
    taken = page.get_by_text("a2 exists in project team-a")
    expect(taken).to_be_visible()
    under_error = page.get_by_role("button", name="Continue").bounding_box()
    page.get_by_label("Training name").fill("a1")
    expect(taken).to_have_count(0)
    assert page.get_by_role("button", name="Continue").bounding_box() == under_error, "the button moved"
    press(page, "CONTINUE")
    environment(page, "for-a1")
    press(page, "+ NEW COMPUTE RESOURCE")
    sheet = page.get_by_role("dialog")
    expect(sheet.get_by_label("Cluster")).to_have_value("default")
    expect(sheet.get_by_label("Scope")).to_be_visible()
    sheet.get_by_label("Compute resource name").fill("one-gpu-of-mine")
    sheet.get_by_label("GPU devices per pod").fill("1")
    expect(sheet.get_by_label("GPU memory per device")).to_have_value("% (of device)")
    sheet.get_by_label("Request").fill("100")
    expect(sheet.get_by_label("CPU compute per pod")).to_have_value("0.1")
    expect(sheet.get_by_label("CPU memory per pod")).to_have_value("100")
    assert serious(page, {"rules": {"color-contrast": {"enabled": False}}}) == ""
    press(sheet, "CREATE COMPUTE RESOURCE")
    expect(page.get_by_role("radio", name="one-gpu-of-mine")).to_be_checked()
    expect(page.get_by_text("It starts now")).to_be_visible()
    assert serious(page) == ""
    press(page, "CREATE TRAINING")
    expect(page.get_by_role("link", name="a1", exact=True)).to_be_visible()

    begin(page, "team-b", "b1")
    environment(page, "for-b1")
    finish(page, "b1", "one-gpu")
    running = [("a2", "Running", "2.00"), ("b1", "Running", "1.00")]
    seen(stage, "runai list -A", *running, ("a1", "Running", "1.00"))

    begin(page, "team-b", "b2")
    environment(page, "for-b2")
    page.get_by_role("radio", name="one-gpu").click()
    expect(page.get_by_text("a1 (team-a): evict, 1 → 0 GPUs")).to_be_visible()
    press(page, "CREATE TRAINING")
    expect(page.get_by_role("link", name="b2", exact=True)).to_be_visible()
    seen(stage, "runai list -A", *running, ("b2", "Running", "1.00"), ("a1", "Pending", "0.00"))
    # What A2 continues with: once a2 is gone, a1 runs again by itself.
    typed(stage, "runai delete a2 -p team-a")
    seen(stage, "runai list -A", *((name, "Running", "1.00") for name in ("a1", "b1", "b2")))


def test_004_fractions_and_exact_memory(page: Page, stage: Stage) -> None:
    typed(stage, "pliant project create team-a --quota 2")
    typed(stage, "pliant project set team-a")
    for name in ("frac05", "frac05-2"):
        go(page, "Workloads")
        press(page, "+ New Workload")
        page.get_by_role("menuitem", name="Training").click()
        expect(page.get_by_label("Cluster")).to_have_value("default")
        expect(page.get_by_role("radio", name="Start from scratch")).to_be_checked()
        page.get_by_label("Project").click()  # `others` comes before it here
        page.get_by_role("option", name="team-a").click()
        page.get_by_label("Training name").fill(name)
        press(page, "CONTINUE")
        if name == "frac05":
            environment(page, "quickstart")
        else:
            page.get_by_role("radio", name="quickstart").click()
        finish(page, name, "half-gpu")
    seen(stage, "runai list -A", ("frac05", "Running", "0.50"), ("frac05-2", "Running", "0.50"))
    half = typed(stage, "runai exec frac05 nvidia-smi")
    assert re.search(r"/ +8192MiB", half), half
    go(page, "Workloads")
    for name in ("frac05", "frac05-2"):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(row).to_contain_text("Training")

    begin(page, "team-a", "exact")
    page.get_by_role("radio", name="quickstart").click()
    press(page, "+ NEW COMPUTE RESOURCE")
    sheet = page.get_by_role("dialog")
    sheet.get_by_label("Compute resource name").fill("five-gb")
    sheet.get_by_label("GPU devices per pod").fill("1")
    sheet.get_by_label("GPU memory per device").click()
    page.get_by_role("option", name="GB").click()
    sheet.get_by_label("Request").fill("5")
    press(sheet, "CREATE COMPUTE RESOURCE")
    finish(page, "exact", "five-gb")
    assert "5G" in typed(stage, "pliant describe job exact -p team-a")

    press(page, "Actions for frac05")
    page.get_by_role("menuitem", name="Make a copy").click()
    expect(page.get_by_label("Training name")).to_have_value("frac05-copy")
    press(page, "CONTINUE")
    expect(page.get_by_role("radio", name="As in frac05").first).to_be_checked()
    press(page, "CREATE TRAINING")
    expect(page.get_by_role("link", name="frac05-copy")).to_be_visible()


def test_two_people_edit_one_quota(page: Page, stage: Stage) -> None:
    go(page, "Projects")
    press(page, "+ New project")
    page.get_by_label("Project name").fill("Team A")
    page.get_by_label("GPU quota").fill("-1")
    expect(page.get_by_role("dialog")).to_contain_text("Use small letters")  # as soon as the field is left
    press(page, "Create project")
    expect(page.get_by_role("dialog")).to_contain_text("Enter 0 or more.")
    page.get_by_label("Project name").fill("team-x")
    page.get_by_label("GPU quota").fill("2")
    press(page, "Create project")
    expect(page.get_by_role("cell", name="team-x", exact=True)).to_be_visible()
    # Another user changes it while the form is open: the form says so, and nothing is lost.
    press(page, "Actions for team-x")
    page.get_by_role("menuitem", name="Edit").click()
    page.get_by_label("GPU quota").fill("3")
    typed(stage, "pliant project update team-x --quota 1")
    press(page, "Save")
    expect(page.get_by_role("dialog")).to_contain_text("(412)")
    press(page, "Close")
    expect(page.get_by_role("row", name="team-x")).to_contain_text("1.00")
    assert serious(page) == ""
    press(page, "Actions for team-x")
    page.get_by_role("menuitem", name="Delete").click()
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_role("cell", name="team-x", exact=True)).to_have_count(0)
