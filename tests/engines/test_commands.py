"""The check that a command can be started: it caches a command it found for a moment, a missing one never."""

from pathlib import Path

import pytest

from pliant.control.errors import NoCommand, NotExecutable
from pliant.engines.local.launch import commands
from pliant.engines.local.launch.commands import Commands


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_what_was_found_is_looked_for_again_after_a_moment(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(commands.time, "monotonic", lambda: now)
    found, env = Commands(), {"PATH": str(tmp_path)}
    assert found.problem("train", env, "/") is None
    program.chmod(0o644)
    assert found.problem("train", env, "/") is None
    assert isinstance(Commands().problem("train", env, "/"), NotExecutable)
    now += commands.RECENT
    assert isinstance(found.problem("train", env, "/"), NotExecutable)


def test_what_is_missing_is_always_looked_for(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    found, env = Commands(), {"PATH": str(folder)}
    assert isinstance(found.problem("train", env, "/"), NoCommand)
    program.rename(folder / "train")
    assert found.problem("train", env, "/") is None


def test_the_same_word_elsewhere_is_another_command(program: Path, tmp_path: Path) -> None:
    found = Commands()
    assert found.problem("./train", {}, str(tmp_path)) is None
    assert isinstance(found.problem("./train", {}, "/"), NoCommand)
