"""`make demo`: counts the checks that held, exits 1 if one did not, and leaves nothing running."""

import importlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.walkthrough import PAGES, editions, parse
from tests.e2e.witness import until

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


class Demo:
    """A running demo, in a temporary folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(DEMO), *arguments],
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line)

    def wait(self, limit: float = 250) -> int:
        code = self.process.wait(limit)
        self._reader.join(60)
        return code

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def left(self) -> list[str]:
        """Processes that run in its folder, without the demo itself, and files in it."""
        mark = f"{self.folder}/pliant-demo-".encode()
        found = [str(path) for path in self.folder.iterdir()]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes():
                        found.append((entry / "cmdline").read_text())
                except OSError:
                    continue  # it ended while we looked
        return found


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    started: list[Demo] = []
    yield started
    for demo in started:
        if demo.process.poll() is None:
            demo.process.terminate()
        demo.wait()


def test_a_page_is_played_as_make_demo_does(tmp_path: Path, demos: list[Demo]) -> None:
    demos.append(demo := Demo(tmp_path, "fractions:v1"))
    assert demo.wait() == 0, demo.output
    (count, promised) = map(int, re.findall(r"^(\d+) of (\d+) states as documented$", demo.output, re.M)[0])
    assert count == promised == demo.output.count("✓ as documented") >= 3
    assert "0.50 (0.50)" in demo.output
    assert demo.left() == []


def test_what_make_demo_plays_are_editions_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_walkthroughs.py plays each of them and checks its output."""
    monkeypatch.syspath_prepend(DEMO.parent)
    played = [name.partition(":")[::2] for name in importlib.import_module("demo").PLAYED]
    pages = [(PAGES / f"{page}.md").read_text("utf-8") for page, _ in played]
    assert all(edition in editions(text) for (_, edition), text in zip(played, pages, strict=True))
    commands = [parse(text, edition) for (_, edition), text in zip(played, pages, strict=True)]
    found = [command.expected.kind for page in commands for command in page if command.expected]
    assert found.count("rows") >= 12


def test_one_expectation_turned_over_fails_the_demo(tmp_path: Path, demos: list[Demo]) -> None:
    demos.append(demo := Demo(tmp_path, "--turn-over", "2", "suspend-resume:v1"))
    assert demo.wait() == 1, demo.output
    assert "2 of 3 states as documented" in demo.output
    assert "✗ not as documented" in demo.output
    assert demo.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_demo_leaves_nothing(
    number: signal.Signals, tmp_path: Path, demos: list[Demo]
) -> None:
    demos.append(demo := Demo(tmp_path, "elasticity:2021"))
    until(lambda: "filler1" in demo.output, "a page in the middle")
    os.killpg(demo.process.pid, number)  # a terminal signals the whole group
    assert demo.wait() == 130, demo.output
    assert demo.left() == []
