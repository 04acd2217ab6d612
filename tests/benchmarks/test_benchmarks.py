"""Each benchmark runs, at a tiny size whose numbers mean nothing, and leaves nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
RESULT = re.compile(r"\S.* -?\d+\.\d\d (ms|s|MB|%|/s) .*\d+\.\d\d  \S")
ROWS = {"drain": 13, "idle": 7, "listing": 4, "load": 8, "shares": 2, "submit": 5, "supervisor": 3}
"""Benchmark that needs a private folder -> the results that it prints at least."""


def run(name: str, folder: Path, *words: str, seconds: float = 250) -> str:
    """Runs a benchmark; returns what it printed."""
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", "--tiny", *words],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def carriers(folder: Path) -> list[str]:
    """Live processes that were started over this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{folder}/".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_benchmark_prints_its_results_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    lines = run(name, tmp_path).splitlines()
    assert sum(RESULT.match(line) is not None for line in lines) >= ROWS[name], "\n".join(lines)
    assert list(tmp_path.iterdir()) == []
    assert carriers(tmp_path) == []


@pytest.mark.parametrize(("name", "rows"), [("reclaim", 5), ("scale", 5), ("against", 4)])
def test_a_benchmark_of_the_core_prints_times_beside_goals(name: str, rows: int, tmp_path: Path) -> None:
    found = run(name, tmp_path)
    assert len(re.findall(r"^\S.*|^  \S.*", found, re.MULTILINE)) >= rows, found
    assert len(re.findall(r" \d+\.\d{3} .*\d", found)) >= rows, found


def test_what_questions_and_the_record_cost_is_printed(tmp_path: Path) -> None:
    found = run("why", tmp_path)
    for what in ("why, 100 pending: median", "what-if, a rack", "the route besides", "record of 5 cycles"):
        assert re.search(rf"^ *{what}.* \d+\.?\d* (ms|%)", found, re.MULTILINE), found


def test_growth_is_printed_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "growth.png"
    found = run("growth", tmp_path, "--picture", str(picture))
    assert len(re.findall(r" \d+ +\d+\.\d{3} +\d+\.\d", found)) == 7, found
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_elastic_jobs_beside_gangs(tmp_path: Path) -> None:
    """Takes minutes on a busy machine: eight processes import torch, twice."""
    lines = run("elastic_jobs", tmp_path, seconds=500).splitlines()
    assert sum(RESULT.match(line) is not None for line in lines) == 4, "\n".join(lines)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")] == []
    assert carriers(tmp_path) == []


def test_by_itself_the_shared_part_prints_the_references(tmp_path: Path) -> None:
    assert re.search(r"calibrate\(\) [\d.]+ ms, python -c pass [\d.]+ ms", run("measure", tmp_path))


def test_a_server_goes_away_also_when_the_benchmark_fails(tmp_path: Path) -> None:
    code = (
        "from measure import Server, training\n"
        "with Server('1x2') as server, server.client() as client:\n"
        "    client.submit('Training', training('w', 'sleep', 'infinity'))\n"
        "    raise SystemExit(7)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(FOLDER)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False, timeout=250)
    assert done.returncode == 7
    assert list(tmp_path.iterdir()) == []
    assert carriers(tmp_path) == []
