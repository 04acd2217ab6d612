"""The wheel: its contents, and that it works without the source tree."""

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import pliant

pytestmark = pytest.mark.slow  # each wheel compiles all native parts
ROOT = Path(__file__).resolve().parents[2]
SUPERVISOR = "pliant/engines/local/bin/pliant-supervise"
NATIVE = (
    SUPERVISOR,
    "pliant/engines/local/bin/pliant-warden",
    "pliant/devices/bin/libpliant-gpu.so",
    "pliant/devices/bin/pliant-gpu-used",
    "pliant/devices/bin/sim/libcuda.so.1",
    "pliant/devices/bin/sim/libnvidia-ml.so.1",
)


def build_wheel(folder: Path, env: dict[str, str] | None = None) -> tuple[Path, str]:
    """Builds a wheel from a copy of the sources under folder; returns it and the build's output."""
    copy = folder / "source"
    copy.mkdir()
    for name in ("src", "native"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "bin"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this test run, built by the first process that needs it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if base.name.startswith("popen-") else base  # one for each process of pytest-xdist
    done = base / "wheel"
    with (base / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            made = tmp_path_factory.mktemp("wheel")
            build_wheel(made)
            made.rename(done)
    (wheel,) = done.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory)


def test_it_holds_every_file_of_the_package_and_the_native_parts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(("pliant/", "runai/"))}
        mode = archive.getinfo(SUPERVISOR).external_attr >> 16
        heads = {archive.read(name)[:4] for name in NATIVE}
    source = wheel.parent / "source" / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert files.issuperset(NATIVE)
    assert packed == files
    assert mode & 0o111
    assert heads == {b"\x7fELF"}
    assert "-py3-none-linux_" in wheel.name  # bound to a platform, not to one Python


def test_it_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    # The dependencies come from here; .pth files of a folder added like this are not read, hence no pliant.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = subprocess.check_output(
        [python, "-c", "import pliant; print(pliant.__file__)"], text=True, cwd=tmp_path
    )
    assert where.startswith(str(home))
    for name in ("pliant", "runai"):
        said = subprocess.check_output([home / "bin" / name, "--version"], text=True, cwd=tmp_path)
        assert pliant.__version__ in said
    subprocess.run([home / "bin" / "elasticdl", "--help"], check=True, cwd=tmp_path)
    assert (site / SUPERVISOR).stat().st_mode & 0o111


def test_without_a_compiler_it_is_still_built_and_says_so(tmp_path: Path) -> None:
    made, said = build_wheel(tmp_path, {**os.environ, "CC": "no-such-compiler"})
    for name in NATIVE:
        assert f"WARNING: {Path(name).name} was not built: no C compiler" in said
    assert made.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(made) as archive:
        assert not set(NATIVE) & set(archive.namelist())


STORED = """
import sys
from pathlib import Path
from pliant.compiled import CORE
from pliant.control.ports import Batch
from pliant.model.workload import Request
from pliant.sim.openb import Pod, workload_of
from pliant.store import open_store

store = open_store(Path(sys.argv[1]))
row = workload_of(Pod(Request(1, 500), ("A100", "H100")), 7, "default", 1000)
store.commit(store.lead(), Batch(put=[row]))
assert list(store.load().rows) == [row]
print(store.load().rows)
"""
"""Writes and reads a row with tuples of tuples; a compiled class does not know its tuples' item types."""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_compiled_core_decides_byte_for_byte_the_same(tmp_path: Path) -> None:
    wheel, _ = build_wheel(tmp_path, os.environ | {"PLIANT_COMPILE": "1"})
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "compiled")
    (library,) = (tmp_path / "compiled").glob("*__mypyc.*.so")
    assert not hasattr(ctypes.CDLL(str(library)), "CPyDef_cycle___decide"), "what is exported is not inlined"
    told, rows = {}, {}
    for name, source in (("compiled", tmp_path / "compiled"), ("plain", ROOT / "src")):
        env = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
        ask = [sys.executable, "-c", "from pliant.compiled import CORE; print(CORE)"]
        said = subprocess.run(ask, env=env, capture_output=True, text=True, check=True).stdout
        assert said.startswith("compiled" if name == "compiled" else "plain Python"), said
        decide = [sys.executable, "-m", "tests.sched.canon", str(tmp_path / f"{name}.txt"), "--worlds", "200"]
        subprocess.run(decide, env=env, check=True)
        told[name] = (tmp_path / f"{name}.txt").read_bytes()
        stored = subprocess.run(
            [sys.executable, "-c", STORED, str(tmp_path / f"{name}.db")],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        rows[name] = stored.stdout
    assert "pod-7" in rows["compiled"] and rows["compiled"] == rows["plain"]
    assert told["compiled"] == told["plain"] != b""
