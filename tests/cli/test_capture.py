"""What a submission captures of the shell in which it is typed, and what it does not."""

import os
from types import SimpleNamespace

import click
import pytest

from pliant.cli.submit import capture


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """A shell with few variables, in an empty folder."""
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def spec(*environment, socket="/state/sock", notes=None, **given):
    """`socket`: the server's socket; None: the server is found by its address."""
    session = SimpleNamespace(
        endpoint=SimpleNamespace(socket=socket), note=(notes if notes is not None else []).append
    )
    said = {"working_dir": None, "export": None, "env_file": (), "secret": ()}
    return capture.spec(session, {**said, "environmentVariables": environment, **given})


def captured(**more):
    return spec(**more).get("capturedEnvironment", {}).get("variables")


def test_a_server_found_by_its_address_is_sent_nothing_that_nobody_named(shell):
    shell.setenv("HF_TOKEN", "secret")
    assert captured(socket=None) is None
    assert captured(socket=None, export="HF_TOKEN") == {"HF_TOKEN": "secret"}


def test_what_belongs_to_a_terminal_or_another_job_is_left_out(shell, tmp_path):
    left_out = (
        "DISPLAY XAUTHORITY SSH_AUTH_SOCK DBUS_SESSION_BUS_ADDRESS XDG_SESSION_ID XDG_RUNTIME_DIR TERM "
        "TERMINFO TMUX TMUX_PANE STY SHLVL PWD OLDPWD _ PS1 LS_COLORS BASH_FUNC_f%% SUDO_USER LD_PRELOAD "
        "PLIANT_URL RUNAI_PROJECT SLURM_JOB_ID CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES RANK WORLD_SIZE "
        "LOCAL_RANK MASTER_ADDR"
    )
    for name in left_out.split():
        shell.setenv(name, "x")
    shell.delenv("PYTEST_CURRENT_TEST")
    shell.setenv("VIRTUAL_ENV", "/venv")
    shell.setenv("MY NAME", "with a space")
    assert captured() == {"HOME": str(tmp_path), "VIRTUAL_ENV": "/venv", "MY NAME": "with a space"}
    assert spec()["capturedEnvironment"]["whole"] is True
    assert captured(export="NONE") is None
    assert captured(export="RANK,A=1") == {"RANK": "x", "A": "1"}
    assert captured(export="ALL,RANK")["RANK"] == "x"


def test_what_is_not_text_stays_behind_and_is_named(shell):
    notes = []
    shell.setenv("BAD", os.fsdecode(b"\xff"))
    assert "BAD" not in captured(notes=notes)
    assert notes == ["Note: BAD is left out: not UTF-8 text."]
    with pytest.raises(click.UsageError, match="the value of BAD is not UTF-8 text"):
        spec("BAD")


def test_the_later_source_wins(shell, tmp_path):
    shell.setenv("SHELL_VALUE", "shell")
    file, key = tmp_path / "env", tmp_path / "key"
    file.write_text("# all of them\n\nA=file\nB=file\nC=file\nSHELL_VALUE\n")
    key.write_text("secret\n")
    made = spec("B=e", "C=e", env_file=(str(file),), secret=(f"C=@{key}",))
    found = {entry["name"]: entry["value"] for entry in made["environmentVariables"]}
    assert found == {"A": "file", "B": "e", "C": "secret", "SHELL_VALUE": "shell"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"environment": ("=1",)}, "-e =1: expected NAME=VALUE."),
        ({"environment": ("NONE",)}, "-e NONE: NONE is not set in this shell."),
        ({"export": "NOBODY"}, "--export NOBODY: NOBODY is not set in this shell."),
        ({"secret": ("K=abc",)}, "other users of this machine can read its value on the command line"),
        ({"secret": ("K=@/none",)}, "--secret /none: No such file or directory."),
        ({"env_file": ("/none",)}, "--env-file /none: No such file or directory."),
        ({"env_file": ("bad",)}, "--env-file bad: not UTF-8 text."),
        ({"working_dir": "none"}, "/none does not exist."),
        ({"working_dir": "bad"}, "/bad is not a directory."),
        ({"working_dir": "bad/below"}, "/bad/below is not accessible: Not a directory."),
    ],
)
def test_what_cannot_be_taken_along(shell, tmp_path, given, said):
    (tmp_path / "bad").write_bytes(b"\xff")
    with pytest.raises(click.UsageError) as caught:
        spec(*given.pop("environment", ()), **given)
    assert said in caught.value.message


def test_an_environment_of_two_megabytes(shell):
    for number in range(20):
        shell.setenv(f"V{number}", "x" * 100_000)
    with pytest.raises(click.UsageError, match="environment is 1953 KiB; at most 128 KiB can"):
        spec()
    assert captured(export="NONE") is None


def test_a_directory_is_named_as_the_shell_names_it(shell, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "link").symlink_to(inner)
    os.chdir(tmp_path / "link")
    shell.setenv("PWD", str(tmp_path / "link"))
    found = inner.stat()
    assert spec()["submittedFrom"]["path"] == str(tmp_path / "link")
    assert (spec()["submittedFrom"]["device"], spec()["submittedFrom"]["inode"]) == (
        found.st_dev,
        found.st_ino,
    )
    shell.setenv("PWD", "/elsewhere")
    assert spec()["submittedFrom"]["path"] == str(inner)
    assert "workingDir" not in spec()
    assert spec(working_dir="..")["workingDir"] == str(tmp_path)
    assert spec(working_dir="~")["workingDir"] == str(tmp_path)
    assert spec(working_dir="@job") == {
        "workingDir": "@job",
        "capturedEnvironment": spec()["capturedEnvironment"],
    }


def test_a_directory_that_was_deleted(shell, tmp_path):
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(click.UsageError, match="the current directory no longer exists"):
        spec()
    os.chdir(tmp_path)


def test_none_and_names_are_those_names_only(run, fake, monkeypatch):
    monkeypatch.setenv("B", "2")
    assert run("pliant submit a -p team-a --export NONE,A=1,B -- true").code == 0
    captured = fake.last.body["spec"]["capturedEnvironment"]
    assert captured == {"variables": {"A": "1", "B": "2"}, "whole": False}
