"""The core's structure: no import cycle, few levels, few top-level packages; type-only imports count."""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
SCHED = SRC / "pliant" / "sched"
MOST_LEVELS = 8
MOST_ENTRIES = 14
MOST_LINES_OF_THE_VICTIM_SEARCH = 1250


def modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text("utf-8")
        )
        for path in sorted(SCHED.rglob("*.py"))
    }


def imports(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The modules of `trees` that each imports, also in functions and for type checkers only."""
    found: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & trees.keys()
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & trees.keys()
                found[name] |= inner or ({node.module} & trees.keys())
    return found


def longest_chain(graph: Mapping[str, set[str]]) -> list[str]:
    """The longest chain of imports from top to bottom. Raises ValueError, naming the cycle, if any."""
    known: dict[str, list[str]] = {}

    def below(name: str, above: tuple[str, ...]) -> list[str]:
        if name in above:
            raise ValueError(" > ".join([*above[above.index(name) :], name]))
        if name not in known:
            chains = [below(other, (*above, name)) for other in sorted(graph[name])]
            known[name] = [name, *max(chains, key=len, default=[])]
        return known[name]

    return max((below(name, ()) for name in graph), key=len)


def test_no_circle_and_few_levels() -> None:
    chain = longest_chain(imports(modules()))
    assert len(chain) <= MOST_LEVELS, " > ".join(chain)


def test_few_entries_at_the_top() -> None:
    entries = [path.name for path in SCHED.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_the_victim_search_stays_small() -> None:
    """Does not count disruption budgets (churn.py), which every action uses."""
    files = [path for path in (SCHED / "preemption").glob("*.py") if path.name != "churn.py"]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= MOST_LINES_OF_THE_VICTIM_SEARCH


def test_imports_for_types_and_in_functions_count() -> None:
    code = "if TYPE_CHECKING:\n    from a import b\n\ndef f():\n    import a.c\n    from a.d import X\n"
    trees = {name: ast.parse("") for name in ("a.b", "a.c", "a.d")} | {"a": ast.parse(code)}
    assert imports(trees)["a"] == {"a.b", "a.c", "a.d"}


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match="b > c > b"):
        longest_chain({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    assert longest_chain({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == ["a", "b", "c"]
