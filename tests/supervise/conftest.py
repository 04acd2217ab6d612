"""The supervisors that must keep the contract: in C, in C under the sanitizers, in Python."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.gaps import gap
from tests.supervise.starter import SOURCE, Attempt, compile_c, compiler, python_twin

SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled supervisor, static if libc allows it, like the wheel's."""
    if not compiler():
        gap("no C compiler", "install gcc or clang")
    target = tmp_path_factory.mktemp("native") / "pliant-supervise"
    if compile_c(SOURCE, target, "-O2", "-static").returncode:
        done = compile_c(SOURCE, target, "-O2")
        assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not compiler():
        gap("no C compiler", "install gcc or clang")
    target = tmp_path_factory.mktemp("sanitized") / "pliant-supervise"
    if compile_c(SOURCE, target, *SANITIZE).returncode:
        gap("no sanitizers", "install the compiler's libasan and libubsan")
    return target


LOST_THREAD = re.compile(r"==\d+==Unable to get registers from thread \d+\.")
"""Not a finding: the search for leaks stops all threads, and one of them had just ended."""


@pytest.fixture(params=["native", "sanitized", "python"])
def new_attempt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Attempt]]:
    """Makes attempts under one of the supervisors, and removes them at the end."""
    reports = tmp_path / "sanitizer"
    environment = {}
    if request.param == "python":
        supervisor = python_twin()
    else:
        supervisor = [str(request.getfixturevalue(request.param))]
    if request.param == "sanitized":
        environment = {"ASAN_OPTIONS": f"log_path={reports}", "UBSAN_OPTIONS": f"log_path={reports}"}
    made: list[Attempt] = []

    def make(parent: Path = tmp_path) -> Attempt:
        made.append(Attempt(parent / f"attempt{len(made)}", supervisor, environment))
        return made[-1]

    yield make
    for attempt in made:
        attempt.clear()
    said = [line for path in tmp_path.glob("sanitizer*") for line in path.read_text().splitlines()]
    assert [line for line in said if not LOST_THREAD.fullmatch(line)] == []


@pytest.fixture
def attempt(new_attempt: Callable[..., Attempt]) -> Attempt:
    return new_attempt()
