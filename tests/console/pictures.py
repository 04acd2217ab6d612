"""Takes pictures of every page of a server with much history.

python -m tests.console.pictures docs/guide/console     those of the guide
python -m tests.console.pictures FOLDER all [NAME...]   each light and dark, as wide as a desktop and a phone
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from examples.walkthrough import Stage
from tests.console.conftest import PATIENCE, played, typed, url_of
from tests.console.test_rights import PAGES

SLEEP = "-i ubuntu -- sleep infinity"

TRAIN = """
import json, math, os, time, urllib.request
attempt, token = os.environ["PLIANT_ATTEMPT"], open(os.environ["PLIANT_TOKEN_FILE"]).read().strip()
for step in range(0, 4000, 100):
    said = {"state": "training", "step": step, "stepsTotal": 20000, "world": 2 if step > 1500 else 1,
            "goodput": 900.0 if step > 1500 else 480.0, "loss": 0.2 + 2 * math.exp(-step / 900)}
    body = json.dumps(said).encode()
    url = f"{os.environ['PLIANT_URL']}/api/v1/attempts/{attempt}/progress"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
    print(f"step {step:5}  loss {said['loss']:.4f}  {said['goodput']:.0f} records/s", flush=True)
time.sleep(1e6)
"""

COMMANDS = (
    "pliant up --simulate 2x4:16G",
    "pliant department create research --quota 6",
    "pliant project create vision --quota 4 --department research",
    "pliant project create speech --quota 2 --department research",
    "pliant project create team-a --quota 2",
    "pliant project set vision",
    "pliant user create alice",
    "pliant user create bob",
    "pliant access-rule create --user alice --role 'AI practitioner' --in-project vision",
    "pliant app create nightly",
    "pliant key create laptop",
    f"pliant submit embed -p speech -g 2 {SLEEP}",
    "pliant submit resnet -g 2 -- python3 train.py",
    "pliant submit notebook -g 0.5 --interactive -i ubuntu -- sleep infinity",
    f"pliant submit serve -g 0.25 {SLEEP}",
    f"pliant submit stretch -p team-a -g 1 --elastic {SLEEP}",
    f"pliant submit tune --array 0-11 -g 1 -p team-a {SLEEP}",
    "pliant submit broken -g 0.1 -- sh -c 'echo the data set is missing >&2; exit 3'",
    f"pliant submit parked -g 1 {SLEEP}",
    "pliant suspend parked",
    f"pliant submit large -g 4 {SLEEP}",
    f"pliant submit report -p speech -g 3 --priority build {SLEEP}",
    "echo '{image: pytorch:2.6, command: python train.py}' | pliant asset create environment pytorch -f -",
    "echo '{image: ubuntu}' | pliant asset create environment shell --in-project vision -f -",
    "echo '{gpuDevicesRequest: 1, gpuRequestType: memory, gpuMemoryRequest: 5GB}' "
    "| pliant asset create compute five-gb -f -",
    "echo '{image: pytorch:2.6, compute: {gpuDevicesRequest: 2}}' "
    "| pliant asset create training-template two-gpus-a-day -f -",
    "echo '{rules: {compute: {gpuDevicesRequest: {max: 4}}}}' | pliant policy set trainings -f -",
    "pliant notify add alice@lab.example --on end,failure",
)

SIZES = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


GUIDE = {"overview": ("wide", "dark"), "workloads": ("phone", "light")}
"""Pages that the guide shows a second time."""


def main() -> int:
    folder, everything, only = Path(sys.argv[1]), "all" in sys.argv[2:], set(sys.argv[3:])
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            timeout=3 * PATIENCE,
        )
        home = Path(place) / "stage" / "home"
        home.mkdir(parents=True)
        (home / "train.py").write_text(TRAIN)
        with played(Path(place), *COMMANDS) as stage:
            if everything:
                for size in SIZES:
                    for scheme in ("light", "dark"):
                        pictures(browser, stage, folder, size, scheme, only)
            else:
                own = set(SHOTS) - {"login-refused", "new", "dialog-project", "dialog-what-if"}
                pictures(browser, stage, folder, "wide", "light", own, "{name}.png")
                for name, (size, scheme) in GUIDE.items():
                    other = scheme if scheme == "dark" else size
                    pictures(browser, stage, folder, size, scheme, {name}, f"{{name}}-{other}.png")
        browser.close()
    return 0


def pictures(
    browser: Browser,
    stage: Stage,
    folder: Path,
    size: str,
    scheme: str,
    only: set[str],
    file: str = "{name}-{size}-{scheme}.png",
) -> None:
    context = browser.new_context(
        base_url=url_of(stage),
        viewport=SIZES[size],  # type: ignore[arg-type]
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page = context.new_page()

    def taken(name: str) -> None:
        page.wait_for_load_state("networkidle")
        page.evaluate("document.fonts.ready")
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if over > 0:
            print(f"{name} {size} {scheme}: {over} pixels wider than the screen", flush=True)
        whole = size == "phone" and name != "workloads"
        page.screenshot(path=folder / file.format(name=name, size=size, scheme=scheme), full_page=whole)

    first(page, stage)
    for name, reach in SHOTS.items():
        if not only or name in only:
            reach(page, stage)
            taken(name)
    context.close()


Reach = Callable[[Page, Stage], None]


def opened(path: str) -> Reach:
    def reach(page: Page, stage: Stage) -> None:
        page.goto(f"/console/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()

    return reach


def door(page: Page, stage: Stage) -> None:
    page.context.clear_cookies()
    page.goto("/console/login")


def refused(page: Page, stage: Stage) -> None:
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password or token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()


def first(page: Page, stage: Stage) -> None:
    page.goto(typed(stage, "pliant console --print-url").strip())
    expect(page.get_by_role("heading", name="Workloads")).to_be_visible()


def of_workload(name: str) -> Reach:
    def reach(page: Page, stage: Stage) -> None:
        identity = json.loads(typed(stage, f"pliant describe {name} -o json"))["id"]
        page.goto(f"/console/workloads/{identity}")
        expect(page.get_by_role("region", name="Details")).to_contain_text("Node pools")

    return reach


def of_metrics(page: Page, stage: Stage) -> None:
    of_workload("resnet -p vision")(page, stage)
    expect(page.get_by_role("img", name="Loss by step")).to_be_visible()
    page.get_by_role("heading", name="Details").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('[aria-label=Metrics]').scrollIntoView()")


def terminal(page: Page, stage: Stage) -> None:
    shell = page.get_by_role("region", name="Terminal")
    shell.get_by_role("button", name="Open a terminal").click()
    expect(shell.get_by_role("textbox")).to_be_focused()
    page.keyboard.type("nvidia-smi\n")
    expect(shell).to_contain_text("Processes")
    shell.scroll_into_view_if_needed()


def second(page: Page, stage: Stage) -> None:
    opened("new/trainings")(page, stage)
    page.get_by_label("Training name").fill("resnet-2")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("radio", name="one-gpu")).to_be_visible()


def flexible(page: Page, stage: Stage) -> None:
    page.get_by_role("button", name="Flexible").click()
    expect(page.get_by_label("Image URL")).to_be_visible()


def dialog(path: str, *labels: str) -> Reach:
    def reach(page: Page, stage: Stage) -> None:
        opened(path)(page, stage)
        for label in labels:
            found = page.get_by_role("menuitem", name=label).or_(page.get_by_role("button", name=label))
            found.first.click()
        expect(page.get_by_role("dialog")).to_be_visible()

    return reach


SHOTS: dict[str, Reach] = {
    "login": door,
    "login-refused": refused,
    "workloads": first,
    **{path: opened(path) for path in PAGES if path != "workloads"},
    "settings": opened("settings"),
    "welcome": opened("welcome"),
    "workload-waits": of_workload("report -p speech"),
    "workload": of_metrics,
    "terminal": terminal,
    "new": opened("new/trainings"),
    "new-second": second,
    "new-flexible": flexible,
    "dialog-project": dialog("projects", "+ New project", "Create project"),
    "dialog-drain": dialog("nodes", "Drain"),
    "dialog-what-if": dialog("what-if", "+ More nodes"),
}


if __name__ == "__main__":
    sys.exit(main())
