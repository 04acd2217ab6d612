"""The shim under the sanitizers, and its parsers under random bytes. Minutes: long."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.gaps import gap
from tests.shim.stage import HERE, MIB, NATIVE, Stage, compiler

OWN = [path for path in sorted(NATIVE.glob("shim/*.c")) if path.name != "entry.c"]
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "halt_on_error=1",
}  # the simulated driver never frees handles


@pytest.mark.long
@pytest.mark.parametrize("what", ["address,undefined", "thread"])
def test_eight_threads_and_a_limit_that_changes(stage: Stage, tools: Path, what: str) -> None:
    program = tools / f"threads-{what}"
    flags = ["-std=gnu11", "-g", "-O1", f"-fsanitize={what}", "-fno-sanitize-recover=all", f"-I{NATIVE}"]
    sources = [HERE / "threads.c", HERE / "plain_entry.c", *OWN]
    done = subprocess.run(
        [*compiler(), *flags, "-o", program, *sources, "-ldl", "-pthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in done.stderr:
        gap("no sanitizers", "install libasan and libtsan")
    assert done.returncode == 0, done.stderr
    stage.cards(256 * MIB)
    env = stage.grant(64 * MIB, policy="fair", share=stage.folder / "turns")
    del env["LD_PRELOAD"]
    done = stage.complete(program, 20_000, stage.conf(), env=env | OPTIONS)
    assert (done.returncode, done.stdout) == (0, "left 0\n"), done.stderr[-3000:]
    assert stage.count().peak <= 66 * MIB


@pytest.mark.long
def test_random_bytes_as_config_and_ledger(tools: Path) -> None:
    clang = next((name for name in ("clang", "clang-14", "clang-16", "clang-19") if shutil.which(name)), None)
    if clang is None:
        gap("no clang", "apt install clang")
    program = tools / "fuzz"
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=fuzzer,address,undefined", f"-I{NATIVE}"]
    subprocess.run([clang, *flags, "-o", program, HERE / "fuzz.c"], check=True)
    words = [program, "-max_total_time=20", "-max_len=8192", f"-artifact_prefix={tools}/"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
