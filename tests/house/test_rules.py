"""The rules of this repository that no linter knows."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.house.gaps import gap

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "pliant"
MODULES = sorted(SRC.rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


def tracked() -> list[Path]:
    """Files that git tracks, and untracked ones that it does not ignore."""
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        gap("no git checkout", "run the tests in a clone, with git installed")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


INSIDE = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields of statements that hold other statements."""


def imported(module: Path) -> Iterator[str]:
    """First parts of the names that a module imports absolutely, anywhere in it."""
    left: list[ast.AST] = [ast.parse(module.read_text(encoding="utf-8"))]
    while left:  # statements only: walking expressions too would take half as long again
        node = left.pop()
        left += [inner for part in INSIDE for inner in getattr(node, part, ())]
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_folder_holds_many_more_than_20_modules() -> None:
    """The base packages (model, wire) are flat: each module is one kind of thing."""
    folders = Counter(str(it.parent.relative_to(SRC)) for it in MODULES if it.name != "__init__.py")
    assert len(folders) > 60
    assert {name: count for name, count in folders.items() if count > 22} == {"wire": 25}


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = [path.relative_to(ROOT) for path in tracked() if path.suffix == ".py"]
    assert [str(name) for name in names if VAGUE & {part.removesuffix(".py") for part in name.parts}] == []


def test_no_file_names_the_machine_it_was_written_on() -> None:
    roots = [
        r"(?<![\w.~-])/" + "work" + r"(?![\w-])",
        r"\.\./" + "shared",
        "/tmp/" + "brief",
        "/opt/" + "wheels",
    ]
    private = re.compile("|".join(roots))
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in private.finditer(text)]
    assert found == []


def test_every_package_says_what_it_is_for() -> None:
    packages = [path for path in MODULES if path.name == "__init__.py"]
    assert [
        str(p.relative_to(ROOT)) for p in packages if not ast.get_docstring(ast.parse(p.read_text("utf-8")))
    ] == []


@pytest.mark.parametrize("room", ["model", "sched", "client"])
def test_standard_library_only(room: str) -> None:
    allowed = sys.stdlib_module_names | {"pliant"}
    found = {name for path in (SRC / room).rglob("*.py") for name in imported(path)}
    assert found - allowed == set()


def declared(*extras: str) -> set[str]:
    """Distributions that pyproject.toml names: base dependencies and those of extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ]
    return {re.split(r"[\[~>=<]", line)[0].lower().replace("_", "-") for line in lines}


@pytest.mark.parametrize(
    ("folders", "extras"),
    [
        (["src"], ["kubernetes", "mcp", "postgres", "train"]),
        (["tests", "benchmarks", "examples"], ["postgres", "dev"]),
    ],
    ids=["the package", "its tests"],
)
def test_every_import_is_a_declared_dependency(folders: list[str], extras: list[str]) -> None:
    # Starlette is part of FastAPI's interface, pydantic-core of pydantic's; torch is brought by the user.
    known = declared(*extras) | {"starlette", "pydantic-core", "torch"}
    modules = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    own = {"pliant", "runai", "tests", "examples", "benchmarks", "hatch_build"}
    own |= {path.stem for path in modules}
    homes = packages_distributions()
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules
        for name in imported(path)
        if name not in sys.stdlib_module_names | own
        and not (known | beside(path)) & {home.lower().replace("_", "-") for home in homes.get(name, [name])}
    }
    assert missing == set()


def beside(module: Path) -> set[str]:
    """Distributions installed for a test program that has its own environment."""
    file = module.with_name("requirements.txt")
    return {line.split("==")[0].lower() for line in file.read_text().splitlines()} if file.exists() else set()


def test_adrs_are_numbered_once_and_listed() -> None:
    folder = ROOT / "docs" / "adr"
    pages = sorted(folder.glob("[0-9]*.md"))
    numbers = [page.name[:4] for page in pages]
    assert len(set(numbers)) == len(numbers)  # gaps are fine: pages are written in parallel
    index = (folder / "README.md").read_text("utf-8")
    for page in pages:
        assert page.read_text("utf-8").startswith(f"# {page.name[:4]}. "), page
        assert f"({page.name})" in index, f"docs/adr/README.md does not list {page.name}"


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for page in (path for path in tracked() if path.suffix == ".md"):
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_skips_go_through_gap() -> None:
    silent = re.compile(r"pytest\.(skip|importorskip|xfail)\(|mark\.(skip|skipif|xfail)\b|unittest\.skip")
    here = ROOT / "tests"
    own = {here / "house" / "gaps.py", here / "house" / "test_gaps.py", Path(__file__)}
    tests = [path for path in here.rglob("*.py") if path not in own]
    assert [str(path.relative_to(ROOT)) for path in tests if silent.search(path.read_text("utf-8"))] == []


def test_no_loop_waits_by_wait_for() -> None:
    """In Python 3.11 it swallows a cancellation that comes together with the awaited result, so the loop
    continues and a stopping server waits for it for ever. `asyncio.timeout` does not.
    """
    loops = (ast.While, ast.For, ast.AsyncFor)
    found = {
        str(path.relative_to(ROOT))
        for path in MODULES
        if "asyncio.wait_for" in (text := path.read_text(encoding="utf-8"))
        for loop in ast.walk(ast.parse(text))
        if isinstance(loop, loops)
        if any("asyncio.wait_for" in ast.unparse(inner) for inner in loop.body)
    }
    assert found == set()
