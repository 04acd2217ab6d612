"""Stages with simulated cards, and their programs, compiled once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.gaps import gap
from tests.shim.stage import DRIVERS, HERE, Stage, compile_c, compiler, on_tmpfs


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler()
    if not (DRIVERS / "libcuda.so.1").exists():
        gap("no native parts", "make native")
    folder = tmp_path_factory.mktemp("tools")
    compile_c(folder / "probe", HERE / "probe.c", "-ldl")
    compile_c(folder / "probe-linked", "-DLINKED", HERE / "probe.c", DRIVERS / "libcuda.so.1")
    return folder


@pytest.fixture
def stage(tools: Path) -> Iterator[Stage]:
    with on_tmpfs() as folder:
        yield Stage(folder, tools)
