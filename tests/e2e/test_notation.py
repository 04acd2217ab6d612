"""The notation of the walk-throughs: what it accepts; it detects differences."""

from pathlib import Path

import pytest

from examples.walkthrough import (
    Done,
    PageError,
    Stage,
    editions,
    fits,
    matches,
    parse,
    play,
    says,
    table,
)

PAGE = """
# Page

```console one
$ runai list
```

```console two
$ runai list jobs
```

```rows
NAME  STATUS
a     Running
```

> First line
> and second.

```console
$ runai submit x
```

```fails 5
exists
```
"""


def test_a_command_of_several_lines_is_one() -> None:
    (long, short) = parse("```console\n$ run \\\n    --fast \\\n    --far\n$ list\n```")
    assert (long.text, long.line, short.text) == ("run \\\n    --fast \\\n    --far", 2, "list")


def test_a_folder_of_the_repository_is_entered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    entered, seen, lost = play(parse("```console\n$ cd examples\n$ ls\n$ cd moon\n```"), stage)
    assert not entered.problem and "walkthrough.py" in seen.done.out
    assert "there is no folder" in lost.problem


def test_an_edition_has_its_own_blocks_and_those_of_all() -> None:
    assert editions(PAGE) == ("one", "two")
    one, submit = parse(PAGE, "one")
    assert (one.text, one.notice) == ("runai list", "First line and second.")
    assert one.expected and one.expected.lines == ("NAME  STATUS", "a     Running")
    assert submit.expected and (submit.expected.kind, submit.expected.code) == ("fails", 5)
    assert [command.text for command in parse(PAGE, "two")] == ["runai list jobs", "runai submit x"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```rows\nNAME\n```", "belongs to one command before it"),
        ("```console\nrunai list\n```", "begin with"),
        ("```console\n$ runai delete a\n```\n```rows\nNAME\n```", "is not known to print a table"),
        ("```console\n$ runai list", "has no end"),
    ],
)
def test_a_page_that_could_promise_nothing_is_refused(page: str, said: str) -> None:
    with pytest.raises(PageError, match=said):
        parse(page)


@pytest.mark.parametrize(
    ("expected", "rows", "good"),
    [
        ([], [], True),
        ([["a"]], [["a"]], True),
        ([["a"]], [], False),
        ([["a"]], [["a"], ["b"]], False),
        ([["a"], ["b"]], [["b"], ["a"]], True),
        ([["*"], ["a"]], [["a"], ["b"]], True),
        ([["*"], ["*"]], [["a"]], False),
        ([["a", "1.00 (1.00)"]], [["a", "1.00 (2.00)"]], False),
    ],
)
def test_rows_match_in_any_order_and_none_is_left(expected, rows, good) -> None:
    assert matches(expected, rows) is good


@pytest.mark.parametrize(
    ("pattern", "text", "good"),
    [("a*", "ab", True), ("a", "ab", False), ("1.00", "1x00", False), ("a*c", "abbc", True), ("", "", True)],
)
def test_a_star_stands_for_anything_and_nothing_else_does(pattern, text, good) -> None:
    assert fits(pattern, text) is good


def test_says_looks_at_one_line_and_forgives_spaces() -> None:
    assert says("Tasks running: 0", "Server:  x\nTasks running:    0\n")
    assert says("step=* loss=*", "step=1 loss=2")
    assert not says("Server running", "Server\nrunning")


class Printed:
    """A stage on which every command prints the same."""

    def __init__(self, text: str) -> None:
        self.done = Done(0, text, "")

    def run(self, _: str) -> Done:
        return self.done


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "Showing jobs for project team-a\n"
            "NAME  STATUS   NODE   GPUs Allocated (Requested)  SERVICE URL(S)\n"
            "a     Running  sim-0  2.00 (1.00)\n"
            "bb    Pending         0.00 (2.00)\n",
            [["a", "2.00 (1.00)", "sim-0"], ["bb", "0.00 (2.00)", ""]],
        ),
        (
            "NAME  NODE   GPUs Allocated (Requested)\n───────────────────────\na     sim-0  2.00 (1.00)\n",
            [["a", "2.00 (1.00)", "sim-0"]],
        ),
        ("NAME  NODE  GPUs Allocated (Requested)\n", []),
        ("", []),
    ],
)
def test_a_table_is_read_by_its_header(text, rows) -> None:
    found, _ = table(Printed(text), "runai list", ["NAME", "GPUs Allocated (Requested)", "NODE"])  # type: ignore[arg-type]
    assert found == rows
