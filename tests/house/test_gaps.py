"""The last lines of a run are correct, and CI fails on an undeclared skip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.gaps import TESTS, WHOLE, pytest_ignore_collect

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import pytest\nfrom tests.house.gaps import gap\n"


def run_inner(folder: Path, body: str, *more: str, strict: bool = False) -> tuple[int, list[str]]:
    """Runs body as a test file of its own; returns the exit status and the lines of output."""
    (folder / "test_inner.py").write_text(HEAD + body)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    long: minutes\n    slow: seconds\n    kubernetes: more\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PLIANT_STRICT_GAPS": "1" if strict else "0"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # faster; the needed plugins are named
    command = [sys.executable, "-m", "pytest", "-p", "tests.house.gaps", "-m", FAST, *more, "."]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


FAST = "not long and not slow and not kubernetes"  # as `make test-fast` chooses
TWO = ("-p", "xdist", "-n", "2")  # processes, as `make test` has them


@pytest.mark.parametrize("more", [(), TWO], ids=["one process", "two"])
def test_the_last_line_counts_and_the_lines_before_name_the_gaps(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    code, lines = run_inner(
        tmp_path,
        "def test_a(): pass\n"
        "def test_b(): gap('no GPU', 'needs an NVIDIA GPU')\n"
        "def test_c(): gap('no GPU', 'needs an NVIDIA GPU')\n"
        "@pytest.mark.long\n@pytest.mark.slow\ndef test_d(): pass\n"
        "@pytest.mark.slow\ndef test_e(): pass\n"
        "@pytest.mark.slow\ndef test_f(): pass\n",
        *more,
        strict=True,
    )
    assert code == 0
    assert lines[-4:] == [
        "left out: long tests (1 test): run `make test-long`",
        "left out: slow tests (2 tests): run `make test`",
        "left out: no GPU (2 tests): needs an NVIDIA GPU",
        "1 passed, 0 failed, 2 skipped",
    ]


@pytest.mark.parametrize(
    ("body", "named", "more"),
    [
        ("def test_a(): gap('no PostgreSQL', 'apt install postgresql')\n", "no PostgreSQL", ()),
        ("def test_a(): pytest.skip('not today')\n", "undeclared skip", ()),
        ("gap('no nvcc', 'install CUDA')\n", "no nvcc", ()),
        ("gap('no nvcc', 'install CUDA')\n", "no nvcc", TWO),
    ],
    ids=["another gap", "a plain skip", "a whole module", "a whole module, two processes"],
)
def test_strict_runs_fail_on_what_is_not_allowed(
    tmp_path: Path, body: str, named: str, more: tuple[str, ...]
) -> None:
    body += "def test_z(): pass\n"
    code, lines = run_inner(tmp_path, body, *more, strict=True)
    assert code == 1
    assert lines[-2] == f"failed: PLIANT_STRICT_GAPS=1 does not allow: {named}"
    code, lines = run_inner(tmp_path, body, *more)
    assert code in (0, 5)  # exit status 5: the only module was left out and nothing ran
    assert lines[-2].startswith(f"left out: {named} (1 test): ")


def test_a_folder_that_is_left_out_whole_is_not_read(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(chosen: str) -> set[str]:
        monkeypatch.setattr(pytestconfig.option, "markexpr", chosen)
        return {it.name for it in TESTS.iterdir() if pytest_ignore_collect(it, pytestconfig)}

    assert unread(FAST) == WHOLE["slow"] | WHOLE["kubernetes"]
    assert unread("not long and not kubernetes") == {"kubernetes"}, "as `make test` chooses"
    assert unread("not long") == set()


def test_errors_count_as_failures(tmp_path: Path) -> None:
    code, lines = run_inner(
        tmp_path,
        "@pytest.fixture\ndef broken(): raise OSError('no')\n"
        "def test_a(broken): pass\ndef test_b(): assert False\ndef test_c(): pass\n",
    )
    assert code == 1
    assert lines[-1] == "1 passed, 2 failed, 0 skipped"
