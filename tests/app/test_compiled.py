"""Which core is loaded: compiled, plain, or plain because the compiled one does not fit this machine."""

import importlib.machinery
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pliant.store.ring import Ring
from tests.control.stage import Stage
from tests.sim.small import written

ROOT = Path(__file__).resolve().parents[2]
ASK = (
    "from pliant.compiled import COMPILED, CORE\n"
    "from pliant.sched import cycle\n"
    "from pliant.sched.settings import Settings\n"
    "from pliant.sched.world.state import World\n"
    "print(COMPILED, CORE)\n"
    "print(cycle.__file__, cycle.decide(World(), 0, Settings()).empty)\n"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the package without anything compiled."""
    ignored = shutil.ignore_patterns("__pycache__", "bin", "*.so", "train", "cli")
    shutil.copytree(ROOT / "src" / "pliant", tmp_path / "pliant", ignore=ignored)
    return tmp_path


def asked(source: Path, what: str = ASK) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", what],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_plain_python_says_so(source: Path) -> None:
    said, where = asked(source)
    assert said.startswith("False plain Python; a wheel built with PLIANT_COMPILE=1")
    assert where == f"{source}/pliant/sched/cycle.py True"


@pytest.mark.parametrize("module", ["sched/cycle", "sched/world/state", "model/workload"])
def test_a_compiled_part_that_does_not_fit_is_passed_over(source: Path, module: str) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (source / "pliant" / f"{module}{suffix}").write_bytes(b"made for another machine")
    (source / "pliant" / "sched" / f"plan{suffix}").write_bytes(b"made for another machine")
    said, where = asked(source)
    assert said.startswith("False plain Python, because the compiled core does not load here: ")
    assert where == f"{source}/pliant/sched/cycle.py True"


@pytest.fixture
def unfit(source: Path) -> Path:
    """The same with compiled parts that do not fit this machine."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    for module in ("model/workload", "sched/plan"):
        (source / "pliant" / f"{module}{suffix}").write_bytes(b"made for another machine")
    return source


PROGRAMS = ["app", "control.decider.process", "sim.__main__", "store.move", "store.redact"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_start_where_a_compiled_part_does_not_fit(unfit: Path, program: str) -> None:
    assert asked(unfit, f"import pliant.{program}") == []


def test_the_simulator_runs_where_a_compiled_part_does_not_fit(unfit: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "pliant.sim", "run", str(written(tmp_path / "trace"))]
    done = subprocess.run(line, env={"PYTHONPATH": str(unfit)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended"] == 6


def test_a_record_is_decided_again_where_a_compiled_part_does_not_fit(unfit: Path, tmp_path: Path) -> None:
    """Runs as `pliant replay` does: a file, with a core that is found by PYTHONPATH."""
    stage = Stage(tmp_path, "1x2")
    ring = stage.loop.recorder = Ring(tmp_path / "replay")
    stage.loop.state.rebuilt = True
    stage.submit("a", 1)
    stage.run(1_000)
    assert ring.drained()
    (tmp_path / "record").write_bytes(ring.record())
    ring.close()
    stage.store.close()
    for core in (unfit, Path()):
        program = unfit / "pliant" / "store" / "rerun.py"
        line = [sys.executable, "-P", str(program), str(tmp_path / "record")]
        env = {"PYTHONPATH": str(core)} if core != Path() else {}
        done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["cycles"] == found["same"] > 0


def test_what_is_wrong_with_the_plain_modules_is_not_hidden(source: Path) -> None:
    (source / "pliant" / "sched" / "plan.py").write_text("import nothing_of_that_name")
    with pytest.raises(AssertionError, match="nothing_of_that_name"):
        asked(source)
