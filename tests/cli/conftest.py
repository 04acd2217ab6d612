"""The command line against the fake server, in this process."""

import shlex
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from pliant.cli.main import main
from tests.cli.fake import TOKEN, Fake, serving


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[[str], Result]


@pytest.fixture(autouse=True)
def private(tmp_path, monkeypatch):
    """Hides this user's settings, servers and terminal from every test."""
    for name in ("PLIANT_SERVER", "PLIANT_URL", "PLIANT_TOKEN_FILE", "PLIANT_PROJECT", "PLIANT_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PLIANT_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("LOGNAME", "yaron")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(monkeypatch, capsys) -> Run:
    """Runs one command line as a user types it, `pliant list` or `runai list`."""

    def run(line: str) -> Result:
        program, *words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [f"/usr/bin/{program}", *words])
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def fake(monkeypatch) -> Iterator[Fake]:
    with serving() as server:
        monkeypatch.setenv("PLIANT_SERVER", server.url)
        monkeypatch.setenv("PLIANT_TOKEN", TOKEN)
        yield server
