"""Ends a test run with lines that say what passed, what was left out, why, and what installs it.

A test that cannot run here calls `gap(reason, hint)`, the only allowed way to skip. With PLIANT_STRICT_GAPS=1
(CI) every other skip, and every gap but those of ALLOWED, fails the run.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

ALLOWED = frozenset({"no GPU", "no kubelet"})  # what a build machine may lack
BY_MARK = {"long": "make test-long", "slow": "make test", "kubernetes": "make test-kubernetes"}
"""Marker of tests that some runs leave out for their duration -> the command that runs them."""

WHOLE = {
    "slow": {"benchmarks", "box", "console", "crash", "e2e", "images", "openid", "runai_names", "train"},
    "kubernetes": {"kubernetes"},
}
"""Marker -> folders of tests/ whose tests all carry it, because they run whole servers and jobs. A run that
leaves them out does not import them, which saves a third of the imports of each process."""

TESTS = Path(__file__).parents[1]

_LEFT = pytest.StashKey[Counter[str]]()  # by marker, the number of tests left out for it
_TEXT = re.compile(r"gap \[(?P<reason>[^\]]+)\] (?P<hint>.+)")


def gap(reason: str, hint: str) -> NoReturn:
    """Leaves the calling test or module out: reason in two or three words, hint says what installs it."""
    __tracebackhide__ = True
    pytest.skip(f"gap [{reason}] {hint}", allow_module_level=True)


def left_out(stats: dict[str, list[Any]]) -> Counter[tuple[str, str]]:
    """How many tests were skipped for each (reason, hint); a skip that is no gap is an `undeclared skip`."""
    found: Counter[tuple[str, str]] = Counter()
    for report in stats.get("skipped", []):
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        match = _TEXT.search(said)
        key = (match["reason"], match["hint"]) if match else ("undeclared skip", f"{report.nodeid}: {said}")
        found[key] += 1
    return found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    name = collection_path.name if collection_path.parent == TESTS else ""
    return True if any(name in folders for _, folders in _whole(config)) else None


@pytest.hookimpl(tryfirst=True)  # before markers decide what is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        for mark in [mark for mark, folders in WHOLE.items() if folder in folders]:
            item.add_marker(mark)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Runs in each process that collects tests: the only one, or each xdist worker."""
    config = items[0].config
    left = config.stash.setdefault(_LEFT, Counter())
    marks = [mark for mark in BY_MARK if f"not {mark}" in config.option.markexpr]
    for item in items:
        left.update([mark for mark in marks if item.get_closest_marker(mark)][:1])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """An xdist worker has ended; all workers leave out the same tests."""
    node.config.stash[_LEFT] = Counter(getattr(node, "workeroutput", {}).get("left", {}))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Outermost wrapper, so that nothing is printed after it."""
    config = session.config
    left = config.stash.get(_LEFT, Counter())
    if hasattr(config, "workeroutput"):
        config.workeroutput["left"] = dict(left)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.option.collectonly:
        return (yield)
    gaps = left_out(reporter.stats)
    bad = sorted({reason for reason, _ in gaps} - ALLOWED)
    strict = os.environ.get("PLIANT_STRICT_GAPS") == "1"
    if bad and strict and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    result = yield
    count = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    writer = config.get_terminal_writer()
    writer.line()
    for mark, folders in _whole(config) if config.rootpath == TESTS.parent else ():
        names = ",".join(sorted(folders))
        named = f"{{{names}}}" if len(folders) > 1 else names
        writer.line(f"left out: all of tests/{named}: run `{BY_MARK[mark]}`")
    for mark, number in sorted(left.items()):
        writer.line(f"left out: {mark} tests ({_tests(number)}): run `{BY_MARK[mark]}`")
    for (reason, hint), number in sorted(gaps.items()):
        writer.line(f"left out: {reason} ({_tests(number)}): {hint}")
    if bad and strict:
        writer.line(f"failed: PLIANT_STRICT_GAPS=1 does not allow: {', '.join(bad)}")
    failed = count["failed"] + count["error"]
    writer.line(f"{count['passed']} passed, {failed} failed, {count['skipped']} skipped")
    return result


def _whole(config: pytest.Config) -> list[tuple[str, set[str]]]:
    """Markers of folders that a run leaves out, with the folders."""
    return [(mark, folders) for mark, folders in WHOLE.items() if f"not {mark}" in config.option.markexpr]


def _tests(number: int) -> str:
    return f"{number} test" if number == 1 else f"{number} tests"
