"""The page that follows one reclaim through the code names existing files and names, in call order."""

import ast
import re

import pytest

from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from tests.house.test_core_levels import SCHED, imports, modules
from tests.sched.worlds import NOW, world

ROOT = SCHED.parents[2]
PAGE = (ROOT / "docs/reference/scheduling/how-a-decision-is-made.md").read_text("utf-8")
STEPS = re.findall(r"^## \d+\. `([\w/]+\.py)`[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
FILES = [path for path, _ in STEPS]
MOST_FILES = 8


def module(path: str) -> str:
    return "pliant.sched." + path.removesuffix(".py").replace("/", ".")


def defined(path: str) -> set[str]:
    """Names that a file defines at top level, and in its classes as Class.name."""
    found = set()
    for node in ast.parse((SCHED / path).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{it.name}" for it in node.body if isinstance(it, ast.FunctionDef)}
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_eight_files_at_most() -> None:
    assert 5 <= len(FILES) == len(set(FILES)) <= MOST_FILES


@pytest.mark.parametrize(("path", "text"), STEPS, ids=FILES)
def test_each_step_names_what_its_file_defines(path: str, text: str) -> None:
    own = defined(path)
    classes = {name for name in own if "." not in name}
    named = [name for name in re.findall(r"`([A-Za-z_][\w.]*)`", text) if name.partition(".")[0] in classes]
    assert named, f"the step says nothing about what {path} defines"
    assert [name for name in named if name not in own] == []


def test_every_name_in_code_style_is_defined_in_the_core_or_is_one_of_the_example() -> None:
    words = {"a", "b", "a1", "a2", "b1", "n1", "control"}
    known = {name for path in SCHED.rglob("*.py") for name in defined(str(path.relative_to(SCHED)))}
    known |= {"Settings.actions", *FILES, "src/pliant/sched"}
    assert [name for name in re.findall(r"`([^`\n]+)`", PAGE) if name not in known | words] == []


def test_always_forward() -> None:
    graph = imports(modules())
    for at, path in enumerate(FILES):
        earlier = {module(other) for other in FILES[:at]}
        assert not graph[module(path)] & earlier, f"{path} uses a file that comes before it"
        assert not at or any(module(path) in graph[other] for other in earlier), f"nothing before uses {path}"


def test_the_example_is_decided_as_the_page_says() -> None:
    told = dict(re.findall(r"^(nodes|projects|jobs): (.*)$", PAGE, re.M))
    scene = world(told["nodes"], told["projects"], *told["jobs"].split("; "))
    plan = decide(scene.world(), NOW, Settings())
    lines = [
        f"{made.verb} {made.workload}" + (f" for {made.beneficiary}" if made.beneficiary else "")
        for made in plan.decisions
    ]
    lines += [f"stop {stop.attempt.workload}" for stop in plan.stops]
    assert re.search(r"```plan\n(.*?)\n```", PAGE, re.S).group(1).splitlines() == lines  # type: ignore[union-attr]
