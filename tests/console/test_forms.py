"""Every form shows errors at the field: its own before it is sent, the server's with a code."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from examples.walkthrough import Stage
from pliant.console.forms import meant
from tests.console.conftest import played, typed, written
from tests.console.test_door import ask, log_in

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

SLEEP = "-i ubuntu -- sleep infinity"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    commands = (
        "pliant up --simulate 1x4",
        "pliant project create team-a --quota 2",
        "pliant project create team-b --quota 1",
        "pliant project set team-a",
        f"pliant submit fixed -g 1 --priority build {SLEEP}",
        "pliant wait fixed --for running",
        "pliant user create alice",
        "pliant app create nightly",
    )
    with played(tmp_path_factory.mktemp("forms"), *commands) as stage:
        for kind, spec in (("environment", {"image": "ubuntu"}), ("compute", {"gpuDevicesRequest": 1})):
            kept(stage, f"asset/{kind}", spec)
        for name in ("taken", "other"):
            kept(stage, "workload-templates/trainings", {"image": "ubuntu"}, name)
        yield stage


def headers(stage: Stage) -> dict[str, str]:
    token = written(stage.state / "token").strip()
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def kept(stage: Stage, path: str, spec: dict[str, Any], name: str = "taken") -> None:
    """Stores an asset for the whole tenant."""
    body = {"meta": {"name": name, "scope": "tenant", "scopeId": None}, "spec": spec}
    told = ask(stage, "POST", f"/api/v1/{path}", headers(stage), text=json.dumps(body))
    assert told.status < 300, told.body


@dataclass(frozen=True, slots=True)
class Form:
    """How to open a form, what to type into it, and what it then shows at a field: (field, text)."""

    page: str
    opens: Sequence[str]  # buttons and entries of menus, one after the other
    sends: str  # its last button
    early: dict[str, str]  # field -> a value that the form refuses
    says: Sequence[tuple[str, str]]  # errors before anything is sent
    late: dict[str, str]  # field -> a value that only the server refuses
    refused: tuple[str, str, int]  # field, text, code
    then: dict[str, str] = field(default_factory=dict)  # field -> values for the other fields


FORMS = (
    Form(
        "projects", ("+ New project",), "Create project",
        {"Project name": "Team A", "GPU quota": "-1"},
        (("Project name", "Use small letters"), ("GPU quota", "Enter 0 or more.")),
        {"Project name": "team-a", "GPU quota": "1"}, ("Project name", "already exists", 409),
    ),
    Form(
        "departments", ("+ New department",), "Create department",
        {"Department name": "", "GPU quota": "-1"},
        (("Department name", "Enter a name."), ("GPU quota", "Enter 0 or more.")),
        {"Department name": "default", "GPU quota": "1"}, ("Department name", "already exists", 409),
    ),
    Form(
        "projects", ("Actions for team-a", "Edit"), "Save",
        {"Max GPU allocation": "1", "Over-quota weight": "-1"},
        (("Max GPU allocation", "Enter 2 or more."), ("Over-quota weight", "Enter 0 or more.")),
        {"GPU quota": "0", "Max GPU allocation": "", "Over-quota weight": ""},
        ("GPU quota", "for non-preemptible work", 409),
    ),
    Form(
        "projects", ("Actions for team-a", "Rules"), "Save",
        {"Trainings end after": "-1"}, (("Trainings end after", "Enter 0 or more."),),
        {"Trainings end after": "", "Node pools in order": "nowhere"},
        ("Node pools in order", "There is no node pool 'nowhere'", 404),
    ),
    Form(
        "node-pools", ("+ New node pool",), "Create node pool",
        {"Node pool name": "A"},
        (("Node pool name", "Use small letters"), ("Label key", "Enter the label key.")),
        {"Node pool name": "pool-b", "Label key": "a b", "Label value": "x"},
        ("Label key", "cannot be the key of a label", 400),
    ),
    Form(
        "node-pools", ("Actions for default", "Edit"), "Save",
        {"Minimum run time before it is taken from": "-1"},
        (("Minimum run time before it is taken from", "Enter 0 or more."),),
        {"Minimum run time before it is taken from": "1e300"},
        ("Minimum run time before it is taken from", "must be", 400),
    ),
    Form(
        "environments", ("+ New environment",), "Create environment",
        {"Environment name": "Mine"},
        (("Environment name", "Use small letters"), ("Image URL", "Enter the image URL.")),
        {"Environment name": "taken", "Image URL": "ubuntu"}, ("Environment name", "already", 409),
    ),
    Form(
        "compute-resources", ("+ New compute resource",), "Create compute resource",
        {"Compute resource name": "", "GPU devices per pod": "-1", "Request": "150"},
        (("GPU devices per pod", "Enter 0 or more."), ("Request", "Enter 100 or less.")),
        {"Compute resource name": "taken", "GPU devices per pod": "1", "Request": "50"},
        ("Compute resource name", "already", 409),
    ),
    Form(
        "templates", ("+ New template",), "Create template",
        {"Template name": "-"}, (("Template name", "Use small letters"),),
        {"Template name": "taken"}, ("Template name", "already", 409),
    ),
    Form(
        "templates", ("Actions for taken", "Edit"), "Save",
        {"Template name": ""}, (("Template name", "Enter a name."),),
        {"Template name": "other"}, ("Template name", "already", 409),
    ),
    Form(
        "users", ("+ New user",), "Create user",
        {"User name": " "}, (("User name", "Enter the user name."),),
        {"User name": "alice"}, ("User name", "already exists", 409),
    ),
    Form(
        "users", ("+ New user",), "Create user",
        {}, (("User name", "Enter the user name."),),
        {"User name": "a:b"}, ("User name", "cannot be a user's name", 400),
    ),
    Form(
        "service-accounts", ("+ New service account",), "Create service account",
        {}, (("Name", "Enter the name."),),
        {"Name": "nightly"}, ("Name", "already exists", 409),
    ),
    Form(
        "access-rules", ("+ New access rule",), "Create access rule",
        {}, (("Subject", "Enter the subject."),),
        {"Subject": "unknown"}, ("Subject", "There is no user 'unknown'", 404),
    ),
    Form(
        "settings", ("+ New access key",), "Create access key",
        {"Ends after (optional)": "5000"},
        (("Name", "Enter the name."), ("Ends after (optional)", "Enter 3650 or less.")),
        {"Name": "x" * 300, "Ends after (optional)": ""}, ("Name", "must have at most", 400),
    ),
    Form(
        "policies", ("+ New policy",), "Create policy",
        {"Policy as JSON": "{"}, (("Policy as JSON", "This is not JSON"),),
        {"Policy as JSON": '{"rules": {"image": {"wrong": 1}}}'},
        ("Policy as JSON", "unknown rule 'wrong'", 400),
    ),
    Form(
        "notifications", ("+ New notification",), "Create notification",
        {}, (("Address", "Enter the address."),),
        {"Address": "nowhere"}, ("Address", "is not a mail address", 400),
    ),
    Form(
        "notifications", ("Set the mail server",), "Save",
        {"Port (optional)": "70000"},
        (("Host", "Enter the host."), ("Port (optional)", "Enter 65535 or less.")),
        {"Host": "mail.example", "Port (optional)": "25", "From": "pliant"},
        ("From", "is not a mail address", 400),
    ),
    Form(
        "general-settings", ("Actions for stale-grace", "Edit"), "Save",
        {"Value": ""}, (("Value", "Enter the value."),),
        {"Value": "soon"}, ("Value", "stale-grace cannot be 'soon'", 400),
    ),
    Form(
        "what-if", ("+ Another quota",), "Suppose it",
        {"GPU quota": "-1"}, (("GPU quota", "Enter 0 or more."),),
        {"GPU quota": "1e300"}, ("GPU quota", "must be", 400),
    ),
    Form(
        "what-if", ("+ More nodes",), "Suppose it",
        {"Nodes": "-1"}, (("Nodes", "Enter 0 or more."),),
        {"Nodes": "1000000000"}, ("Nodes", "must be", 400),
    ),
)  # fmt: skip


def said_at(sheet: Page | Locator, label: str) -> Locator:
    """The field with that label and the text below it."""
    return sheet.get_by_label(label, exact=True).locator("xpath=ancestor::label")


def state(stage: Stage) -> dict[str, Any]:
    """The state of all that these forms can change."""
    paths = (
        "org-unit/projects", "org-unit/departments", "node-pools", "asset/environment", "asset/compute",
        "workload-templates/trainings", "users", "service-accounts", "authorization/access-rules",
        "access-keys", "notifications", "scheduling-settings", "workloads",
    )  # fmt: skip
    found = {path: json.loads(ask(stage, "GET", f"/api/v1/{path}", headers(stage)).body) for path in paths}
    found["policy"] = json.loads(ask(stage, "GET", "/api/v2/policy", headers(stage)).body)
    return found


def settled(told: Any) -> Any:
    """The same without what changes as time passes."""
    if isinstance(told, dict):
        passing = ("status", "lastLogin", "fairShareGpus", "totalRunningTimeSeconds")
        return {key: settled(value) for key, value in told.items() if key not in passing}
    return [settled(it) for it in told] if isinstance(told, list) else told


def test_every_form_explains_at_the_field_and_what_is_refused_changes_nothing(
    page: Page, stage: Stage
) -> None:
    before = settled(state(stage))
    for form in FORMS:
        page.goto(f"/console/{form.page}")
        for label in form.opens:
            entry = page.get_by_role("menuitem", name=label, exact=True)
            page.get_by_role("button", name=label, exact=True).or_(entry).click()
        sheet = page.get_by_role("dialog")
        send = sheet.get_by_role("button", name=form.sends, exact=True)
        for label, text in form.early.items():
            sheet.get_by_label(label, exact=True).fill(text)
        send.click()
        for label, text in form.says:
            expect(said_at(sheet, label)).to_contain_text(text)
        for label, text in form.late.items():
            sheet.get_by_label(label, exact=True).fill(text)
        send.click()
        label, text, code = form.refused
        expect(said_at(sheet, label)).to_contain_text(text)
        expect(said_at(sheet, label)).to_contain_text(f"({code})")
        expect(sheet.get_by_role("alert").filter(has_text="(")).to_have_count(1)  # shown once, at the field
        sheet.get_by_role("button", name="Close").click()
        expect(sheet).to_have_count(0)
    assert settled(state(stage)) == before


def test_a_new_workload_explains_at_the_field(page: Page, stage: Stage) -> None:
    page.goto("/console/new/trainings")
    page.get_by_label("Training name").fill("Bad name")
    page.get_by_role("button", name="Continue").click()
    expect(said_at(page, "Training name")).to_contain_text("Use small letters")
    page.get_by_label("Training name").fill("good")
    page.get_by_label("Workload architecture").click()
    page.get_by_role("option", name="Distributed").click()
    page.get_by_role("button", name="Continue").click()
    workers = page.get_by_role("spinbutton", name="Workers")
    workers.fill("0")
    expect(workers.locator("xpath=ancestor::label")).to_contain_text("Enter 1 or more.")
    workers.fill("1")
    page.get_by_role("button", name="Flexible").click()
    page.get_by_role("button", name="Create training").click()
    expect(said_at(page, "Image URL")).to_contain_text("Enter an image URL or a command.")
    for label, wrong, said in (
        ("Variables (optional)", "1=2, A", "Write each as NAME=value"),
        ("GPU devices per pod", "-1", "Enter 0 or more."),
        ("Limit (optional)", "50", "Enter 100 or more."),
    ):
        page.get_by_label(label).fill(wrong)
        page.get_by_label("Image URL").fill("ubuntu")
        page.get_by_role("button", name="Create training").click()
        expect(said_at(page, label)).to_contain_text(said)
        page.get_by_label(label).fill("1" if "GPU" in label else "")
    page.get_by_label("Request", exact=True).fill("150")
    page.get_by_role("button", name="Create training").click()
    expect(said_at(page, "Request")).to_contain_text("Enter 100 or less.")
    page.get_by_label("Request", exact=True).fill("100")
    page.get_by_label("Longest run time in seconds (optional)").fill("1e300")
    page.get_by_role("button", name="Create training").click()
    expect(said_at(page, "Longest run time in seconds (optional)")).to_contain_text("(400)")
    page.get_by_label("Longest run time in seconds (optional)").fill("")
    page.get_by_label("Node pools (optional)").fill("nowhere")
    page.get_by_role("button", name="Create training").click()
    expect(page.get_by_role("alert").filter(has_text="nowhere")).to_contain_text("(404)")
    assert "good" not in typed(stage, "pliant list -o name")


def test_the_first_steps_explain_at_the_field(page: Page) -> None:
    page.goto("/console/welcome")
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("GPU quota").fill("-1")
    page.get_by_role("button", name="Create project").click()
    expect(said_at(page, "GPU quota")).to_contain_text("Enter 0 or more.")
    page.get_by_label("GPU quota").fill("1")
    page.get_by_role("button", name="Create project").click()
    expect(said_at(page, "Project name")).to_contain_text("already exists")
    expect(said_at(page, "Project name")).to_contain_text("(409)")


def test_a_password_is_changed_by_who_has_one(anew: Page, stage: Stage) -> None:
    first = typed(stage, "pliant user create bob").split()[-1]
    typed(stage, "pliant access-rule create --user bob --role viewer")
    anew.goto("/")
    anew.get_by_label("User name").fill("bob")
    anew.get_by_label("Password or token").fill(first)
    anew.get_by_role("button", name="Log in").click()
    for label, text in (("Password that you were given", first), ("New password", "first of mine")):
        anew.get_by_label(label, exact=True).fill(text)
    anew.get_by_label("New password again").fill("first of mine")
    anew.get_by_role("button", name="Set the password").click()
    anew.get_by_role("link", name="bob").click()
    anew.get_by_role("button", name="Change password").click()
    sheet = anew.get_by_role("dialog")
    send = sheet.get_by_role("button", name="Change password")
    send.click()
    expect(said_at(sheet, "New password")).to_contain_text("Enter the new password.")
    sheet.get_by_label("Present password").fill("wrong one")
    sheet.get_by_label("New password").fill("second of mine")
    send.click()
    expect(said_at(sheet, "Present password")).to_contain_text("not valid")
    sheet.get_by_label("Present password").fill("first of mine")
    sheet.get_by_label("New password").fill("short")
    send.click()
    expect(said_at(sheet, "New password")).to_contain_text("at least 8")
    sheet.get_by_label("New password").fill("second of mine")
    send.click()
    expect(sheet).to_have_count(0)
    assert log_in(stage, "first of mine", name="bob").status == 401
    assert log_in(stage, "second of mine", name="bob").status == 303


def test_the_row_of_a_quota_that_another_user_has_changed_says_so(page: Page, stage: Stage) -> None:
    page.goto("/console/quotas")
    page.get_by_label("GPU quota of team-a").fill("3")
    page.get_by_label("GPU quota of team-b").fill("2")
    typed(stage, "pliant project update team-b --description changed")
    page.get_by_role("button", name="Save").click()
    expect(said_at(page, "GPU quota of team-b")).to_contain_text("refused (412)")
    expect(said_at(page, "GPU quota of team-a")).not_to_contain_text("refused")
    expect(
        page.get_by_role("alert").filter(has_text="team-b was changed since you read it").first
    ).to_be_visible()
    page.get_by_label("Max GPU allocation of team-a").fill("1")
    expect(said_at(page, "Max GPU allocation of team-a")).to_contain_text("Enter 3 or more.")
    found = json.loads(ask(stage, "GET", "/api/v1/org-unit/projects", headers(stage)).body)["projects"]
    quota = {it["name"]: it["resources"][0]["gpu"]["deserved"] for it in found}
    assert (quota["team-a"], quota["team-b"]) == (2, 1)


def test_what_cannot_be_done_is_said_with_its_code(page: Page, stage: Stage) -> None:
    page.goto("/console/projects")
    page.get_by_role("button", name="Actions for team-a").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    told = page.get_by_role("alert").filter(has_text="still has workloads: fixed")
    expect(told).to_contain_text("(409)")
    assert "team-a" in typed(stage, "pliant project list -o name")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("name", "name"),
        ("meta.name", "name"),
        ("spec.compute.gpuDevicesRequest", "devices"),
        ("resources[0].gpu.deserved", "deserved"),
        ("rules.compute.gpuDevicesRequest", "devices"),
        ("elsewhere", None),
    ],
)
def test_the_field_that_the_api_speaks_of(path: str, key: str | None) -> None:
    assert meant(path, ("name", "devices", "deserved"), {"gpuDevicesRequest": "devices"}) == key
