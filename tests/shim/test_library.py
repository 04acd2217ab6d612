"""The shim as a library: its dependencies and symbols; programs without GPUs do not notice it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.gaps import gap
from tests.shim.stage import GIB, HERE, MIB, NATIVE, OOM, SHIM, Stage, compile_c, compiler

CEILING = (2, 17)
FORBIDDEN = {
    "sigaction",
    "signal",
    "umask",
    "exit",
    "_exit",
    "abort",
    "fork",
    "pthread_create",
    "malloc",
    "free",
}


def dynamic(kind: str) -> list[str]:
    if not shutil.which("objdump"):
        gap("no objdump", "install binutils")
    return subprocess.check_output(["objdump", kind, SHIM], text=True).splitlines()


def test_it_loads_where_glibc_is_2_17(tools: Path) -> None:
    used = {match for line in dynamic("-T") for match in re.findall(r"GLIBC_(\d+)\.(\d+)", line)}
    assert used
    assert max((int(major), int(minor)) for major, minor in used) <= CEILING
    needed = {line.split()[1] for line in dynamic("-p") if "NEEDED" in line}
    assert needed <= {"libc.so.6", "libdl.so.2", "ld-linux-aarch64.so.1"}


def test_it_exports_what_it_replaces_and_nothing_else(tools: Path) -> None:
    names = {line.split()[-1] for line in dynamic("-T") if " g " in line and "UND" not in line}
    assert {name for name in names if not re.fullmatch(r"(cu[A-Z]|nvml[A-Z])\w+", name)} == {
        "dlsym",
        "dlvsym",
    }
    text = re.sub(r"\\\n", " ", (NATIVE / "shim" / "hooks.h").read_text())
    hooks = text[text.index("#define HOOKS") : text.index("#define NEEDED")]
    listed = set(re.findall(r"X\((cu\w+),", hooks))
    assert len(listed) > 80
    assert listed <= names


def test_it_calls_nothing_that_changes_the_program(tools: Path) -> None:
    wanted = {line.split()[-1] for line in dynamic("-T") if "UND" in line}
    assert wanted & FORBIDDEN == set()


def test_other_programs_do_not_notice(stage: Stage) -> None:
    env = stage.grant(GIB)
    code = "import os, signal; print(os.umask(18), signal.getsignal(10), len(os.listdir('/proc/self/task')))"
    done = stage.complete(sys.executable, "-c", code, env=env)
    assert (done.stdout, done.stderr) == (stage.run(sys.executable, "-c", code), "")
    maps = stage.run("cat", "/proc/self/maps", env=env)
    assert "libpliant-gpu" in maps
    assert "libcuda" not in maps and "libnvidia" not in maps
    assert not stage.ledger().exists()


def test_names_of_other_libraries_are_theirs(stage: Stage, tools: Path) -> None:
    """dlerror, RTLD_NEXT, RTLD_DEFAULT and versions work as without the shim."""
    stage.cards(GIB)
    program = compile_c(tools / "names", HERE / "names.c", "-ldl")
    assert stage.run(program, env=stage.grant(256 * MIB)) == "ok\n"


def test_it_compiles_without_a_warning(tools: Path, tmp_path: Path) -> None:
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fPIC", "-c"]
    for source in sorted([*NATIVE.glob("shim/*.c"), *NATIVE.glob("sim/*.c")]):
        assert len(source.read_text().splitlines()) < 700
        subprocess.run([*compiler(), *flags, source, "-o", tmp_path / "x.o"], check=True)


@pytest.mark.long
def test_on_the_other_processor(tmp_path: Path) -> None:
    """Cross-compiled and run in an emulator, as dlsym's assembly exists for two architectures."""
    cross, run = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if not cross or not run:
        gap("no aarch64 tools", "apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user")
    link = ["-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-O2"]
    shim, cuda, program = tmp_path / "shim.so", tmp_path / "libcuda.so.1", tmp_path / "probe"
    sim = [NATIVE / "sim" / f"{name}.c" for name in ("card", "clock", "device", "memory", "work", "table")]
    own = sorted(NATIVE.glob("shim/*.c"))
    subprocess.run([cross, *link, "-o", shim, *own, "-Wl,--no-as-needed", "-l:libdl.so.2"], check=True)
    subprocess.run([cross, *link, "-Wl,-soname,libcuda.so.1", "-pthread", "-o", cuda, *sim], check=True)
    subprocess.run([cross, f"-I{NATIVE}", "-o", program, HERE / "probe.c", "-ldl"], check=True)
    stage = Stage(tmp_path, tmp_path)
    stage.cards(GIB)
    env = stage.grant(256 * MIB)
    whole = {**os.environ, "PLIANT_SIM_CARDS": str(tmp_path / "cards"), **env}
    del whole["LD_PRELOAD"]
    qemu = [
        run,
        "-L",
        "/usr/aarch64-linux-gnu",
        "-E",
        f"LD_PRELOAD={shim}",
        "-E",
        f"LD_LIBRARY_PATH={tmp_path}",
    ]
    ops = ["init", "ctx", "total", "fill:alloc:64M"]
    for route in ("soname", "proc2", "ptsz"):
        said = subprocess.check_output([*qemu, program, route, *ops], env=whole, text=True)
        assert f"total 0 {256 * MIB}\nfill {OOM} {256 * MIB}" in said
