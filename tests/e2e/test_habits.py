"""docs/reference/habits.md, typed line by line: what works, and what is refused with the right command."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from examples.walkthrough import Stage
from pliant.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "habits.md"
CLASSES = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: urgent
value: 1000
"""


class Habit(NamedTuple):
    typed: str
    code: int
    cure: str  # what the error contains if it does not work


def habits() -> Iterator[Habit]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            typed, what, cure = (cell.strip() for cell in line.strip("|").split(" | ", 2))
            assert what in ("works", "exit 2", "exit 125"), line
            code = 0 if what == "works" else int(what.removeprefix("exit "))
            yield Habit(typed.strip("`"), code, cure.strip("| `"))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(tmp_path / "stage")
    try:
        for command in (
            "pliant up --simulate 2x2",
            "pliant project create team-a --quota 2",
            "runai config project team-a",
            "pliant submit done -i ubuntu --command -- true",
            "pliant submit t -i ubuntu -g 1 --command -- sleep infinity",
            "pliant wait done",
            "pliant wait t --for running",
        ):
            made = stage.run(command)
            assert made.code == 0, f"{command}: {made.said}"
        for name, value in stage.env.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "classes.yaml").write_text(CLASSES)
        monkeypatch.chdir(tmp_path)
        with open(os.devnull) as nothing:  # stdin: no command may wait for a user
            monkeypatch.setattr(sys, "stdin", nothing)
            yield stage
    finally:
        left = stage.close()
    assert left == {}


def test_every_line_works_or_names_the_command_to_type(
    served: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = list(habits())
    assert len(lines) > 500
    wrong = []
    for habit in lines:
        words = shlex.split(habit.typed)[1:]
        monkeypatch.setattr(sys, "argv", ["/usr/bin/pliant", *words])
        capfd.readouterr()
        code = main(words)
        said = "".join(capfd.readouterr())
        if code != habit.code or habit.cure not in said:
            wrong.append(f"{habit.typed}: exit code {code}, without {habit.cure!r}: {said}")
    assert not wrong, "\n".join(wrong)


def test_no_cell_is_lost() -> None:
    assert all((habit.code == 0) == (habit.cure == "") for habit in habits())
    assert not re.search(r"\| exit \d+ \| *\|", PAGE.read_text())
