"""Control characters in other users' texts never reach the terminal."""

import json

import pytest

from pliant.cli.output.plain import LogScreen, plain
from tests.cli.items import workload

BAD = "\x1b]0;title\x07\x1b[2Ja\x9bb\u202egnp.exe\u2066\x7f\x00"


def test_text_is_written_out() -> None:
    said = plain(f"start\tüñ 漢{BAD}\nend")
    assert said.startswith("start\tüñ 漢\\u001b]0;title\\u0007") and said.endswith("\\u0000\nend")
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\x7f", "\x00"} & set(said)


@pytest.mark.parametrize(
    "line", ["pliant list -p team-a", "pliant list -p team-a -o yaml", "pliant list -p team-a -o json"]
)
def test_names_of_others_in_lists(run, fake, line):
    fake.workloads = [workload("t1") | {"submittedBy": f"eve{BAD}", "name": f"t1{BAD}"}]
    said = run(line)
    assert said.code == 0 and "t1" in said.out
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\x7f"} & set(said.out)
    if line.endswith("json"):
        assert json.loads(said.out)[0]["name"] == f"t1{BAD}", "it is the same value for a program"


def test_an_error_that_names_what_was_typed(run, fake):
    said = run("pliant describe job x\x1b[2Jy -p team-a")
    assert said.code == 3 and "\x1b" not in said.err + said.out


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_log_on_a_terminal(size: int) -> None:
    screen = LogScreen()
    colours = b"\x1b[31mred\x1b[0m 50%\r100%\ttab \xc3\xbc\n"
    bad = b"\x1b]0;title\x07\x1b[2J\xc2\x9b\xe2\x80\xae\xe2\x81\xa6\x7f\x00end\n"
    text = colours + bad
    said = b"".join(screen.harmless(text[at : at + size]) for at in range(0, len(text), size))
    assert said.startswith(colours)
    assert said[len(colours) :] == (
        b"\\x1b]0;title\\x07\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae\\xe2\\x81\\xa6\\x7f\\x00end\n"
    )
