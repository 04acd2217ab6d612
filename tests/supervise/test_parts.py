"""What cannot be provoked from outside: a reused pid, the order in which a record is written to disk."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliant.engines.local.fallback import processes as supervise_processes
from pliant.engines.local.fallback import record as supervise_record
from pliant.engines.local.observe import processes
from tests.house.gaps import gap
from tests.supervise.starter import SOURCE, compile_c, compiler

Kill = Callable[[int, int], object]
"""Sends SIGKILL to a pid whose start is believed to be so many ticks after its true start."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not compiler():
        gap("no C compiler", "install gcc or clang")
    target = tmp_path_factory.mktemp("parts") / "parts"
    done = compile_c(Path(__file__).with_name("parts.c"), target, "-O1", "-Wno-unused", f"-I{SOURCE.parent}")
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def native(parts: Path) -> Kill:
    return lambda pid, ticks: subprocess.run([parts, "kill", str(pid), str(ticks)], check=True)


def python(pid: int, ticks: int) -> None:
    process = supervise_processes.read_process(pid)
    assert process
    process.start += ticks
    supervise_processes.signal_process(process, signal.SIGKILL)


@pytest.mark.parametrize("supervisor", ["native", "python"])
def test_a_process_that_got_the_number_of_another_is_spared(
    parts: Path, sleeper: subprocess.Popen[bytes], supervisor: str
) -> None:
    kill: Kill = python if supervisor == "python" else native(parts)
    kill(sleeper.pid, 1)
    with pytest.raises(subprocess.TimeoutExpired):  # a sent signal arrives at once
        sleeper.wait(0.2)
    kill(sleeper.pid, 0)
    assert sleeper.wait(60) == -signal.SIGKILL


def test_the_engine_opens_no_process_that_got_the_number_of_another(sleeper: subprocess.Popen[bytes]) -> None:
    start = processes.started(sleeper.pid)
    assert start is not None
    assert processes.open_pid(sleeper.pid, start + 1) is None
    opened = processes.open_pid(sleeper.pid, start)
    assert opened is not None
    os.close(opened)


ORDER = ["fsync record", "rename exit.json.tmp exit.json", "fsync folder"]
"""The record is complete before it has its name, and on disk before it is reported: power cuts are safe."""


def test_the_record_is_on_disk_before_it_has_its_name(parts: Path, tmp_path: Path) -> None:
    done = subprocess.run([parts, "record", tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ORDER
    assert (tmp_path / "exit.json").read_bytes() == b'{"code":0}\n'


def test_the_twin_s_record_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []
    sync, rename = os.fsync, os.rename

    def seen_sync(fd: int) -> None:
        seen.append("fsync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "fsync record")
        sync(fd)

    def seen_rename(source: str, target: str, **folders: int) -> None:
        seen.append(f"rename {source} {target}")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "fsync", seen_sync)
    monkeypatch.setattr(os, "rename", seen_rename)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert supervise_record.Record(folder).write(b'{"code":0}\n')
    finally:
        os.close(folder)
    assert seen == ORDER
    assert (tmp_path / "exit.json").read_bytes() == b'{"code":0}\n'
