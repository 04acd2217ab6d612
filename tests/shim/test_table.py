"""Every way to the driver and every kind of memory gets half a card; without the shim, the whole one."""

import sys
from pathlib import Path

import pytest

from tests.house.gaps import gap
from tests.shim.stage import DRIVERS, GIB, HERE, MIB, OOM, SHIM, UUIDS, Stage, compile_c, living, until
from tests.shim.test_cards import KINDS, LIST

ROUTES = ["linked", "soname", "path", "bare", "proc", "proc2", "ptsz"]
HALF = 8 * GIB

PYTHON = """
from cuda.bindings import driver as cu
def ok(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]
ok(cu.cuInit(0))
ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
print(ok(cu.cuDeviceTotalMem(0)), *ok(cu.cuMemGetInfo()))
held = []
while True:
    error, at = cu.cuMemAlloc(256 << 20)
    if error != cu.CUresult.CUDA_SUCCESS:
        break
    held.append(at)
print(len(held), error.name)
for at in held:
    ok(cu.cuMemFree(at))
print(*ok(cu.cuMemGetInfo()))
"""


def named(route: str, stage: Stage) -> str:
    if route == "path":
        return str(DRIVERS / "libcuda.so.1")
    if route == "bare":  # opens the driver by its development name, from another folder
        bare = stage.folder / "libcuda.so"
        bare.symlink_to(DRIVERS / "libcuda.so.1")
        return str(bare)
    return route


@pytest.mark.parametrize("route", ROUTES)
def test_every_way_to_the_driver(stage: Stage, route: str) -> None:
    stage.cards(16 * GIB)
    ops = ("init", "ctx", "total", "fill:alloc:1G", "info", "free")
    said = stage.probe(named(route, stage), *ops, env=stage.grant(HALF))
    assert said == {
        "init": [0],
        "ctx": [0],
        "total": [0, HALF],
        "fill": [OOM, HALF],
        "info": [0, 0, HALF],
        "free": [0],
    }
    assert stage.count().peak == HALF


def test_without_the_preload_the_whole_card(stage: Stage) -> None:
    stage.cards(16 * GIB)
    said = stage.probe("soname", "init", "ctx", "total", "fill:alloc:1G")
    assert (said["total"], said["fill"]) == ([0, 16 * GIB], [OOM, 16 * GIB])


@pytest.mark.parametrize("route", ["linked", "proc2", "ptsz"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_memory(stage: Stage, kind: str, route: str) -> None:
    stage.cards(16 * GIB)
    said = stage.probe(route, "init", "ctx", f"fill:{kind}:64M", "free", "info", env=stage.grant(HALF))
    assert said["fill"] == [OOM, HALF]
    assert said["free"] == [0]
    assert said["info"] == [0, HALF, HALF]
    assert (stage.count().peak, stage.count().used) == (HALF, 0)


def test_mipmaps_host_memory_and_small_change(stage: Stage) -> None:
    stage.cards(GIB)
    env = stage.grant(256 * MIB)
    said = stage.probe("soname", "init", "ctx", "fill:mipmap:16M", "free", "info", env=env)
    assert said["fill"][0] == OOM
    assert said["info"] == [0, 256 * MIB, 256 * MIB]
    assert stage.probe("soname", "init", "ctx", "fill:host:64M:4G", env=env)["fill"] == [0, 4 * GIB]
    said = stage.probe("soname", "init", "ctx", "fill:alloc:1:100K", "info", env=env)
    assert said["info"][1] == 256 * MIB - 102400 * 512  # the driver hands out 512 bytes at least
    assert stage.count().peak <= 256 * MIB


def test_an_amount_that_is_no_whole_piece(stage: Stage) -> None:
    stage.cards(16 * GIB)
    env = stage.grant(5 * 10**9)
    said = stage.probe("soname", "init", "ctx", "total", "fill:alloc:1M", env=env)
    assert said["total"] == [0, 5 * 10**9]
    assert said["fill"] == [OOM, 4768 * MIB]
    assert stage.probe("soname", "init", "ctx", "fill:async:1M", env=env)["fill"][0] == OOM
    assert stage.count().peak <= 5 * 10**9


def test_two_halves_of_one_card(stage: Stage) -> None:
    stage.cards(16 * GIB)
    for name in ("a", "b"):
        said = stage.probe("soname", "init", "ctx", "fill:alloc:64M", env=stage.grant(HALF, name))
        assert said["fill"] == [OOM, HALF]
    assert stage.tag("a")[1] == stage.tag("b")[1] == HALF


def test_contexts_count(stage: Stage) -> None:
    stage.cards(16 * GIB, context=300 * MIB)
    env = stage.grant(HALF)
    said = stage.probe("soname", "init", "ctx", "info", "fill:alloc:4M", env=env)
    assert said["info"] == [0, HALF - 300 * MIB, HALF]
    assert said["fill"] == [OOM, HALF - 300 * MIB]
    assert stage.count().peak == HALF
    said = stage.probe("soname", "init", "ctx", "alloc:1G", "reset", "second:512M", "info", env=env)
    assert said["second"] == [0, 0]
    assert said["info"] == [0, HALF - 300 * MIB, HALF]
    said = stage.probe("soname", "init", "ctx", env=stage.grant(200 * MIB, "small"))
    assert said["ctx"] == [OOM]  # not even the context fits


def test_nvml_shows_the_share(stage: Stage) -> None:
    stage.cards(16 * GIB, 16 * GIB)
    mine, other = stage.grant(HALF, gpu=1), stage.grant(4 * GIB, "other", gpu=1)
    stage.probe("soname", "init", "ctx", "alloc:1G", env=other)  # an earlier run
    own = stage.start(*stage.command("soname", "init", "ctx:0", "ready"), env=mine)
    with living(own):  # the first card belongs to another workload
        assert until(own, "ctx")[-1] == "ctx 2"
    visible = mine | {"CUDA_VISIBLE_DEVICES": UUIDS[1]}
    neighbour = other | {"CUDA_VISIBLE_DEVICES": UUIDS[1]}
    own = stage.start(*stage.command("soname", "init", "ctx", "alloc:3G", "ready"), env=visible)
    theirs = stage.start(*stage.command("soname", "init", "ctx", "alloc:2G", "ready"), env=neighbour)
    with living(own, theirs):
        until(own, "ready")
        until(theirs, "ready")
        shown = stage.run(sys.executable, "-c", LIST, env=visible).splitlines()
        assert shown == [f"{UUIDS[1]} {HALF} {3 * GIB} [({own.pid}, {3 * GIB})]"]
        shown = stage.run(sys.executable, "-c", LIST, env=neighbour).splitlines()
        assert shown == [f"{UUIDS[1]} {4 * GIB} {2 * GIB} [({theirs.pid}, {2 * GIB})]"]


@pytest.mark.parametrize("tool", ["gpustat", "nvitop"])
def test_the_usual_tools(stage: Stage, tool: str) -> None:
    program = Path(sys.executable).with_name(tool)
    if not program.exists():
        gap(f"no {tool}", "make setup")
    stage.cards(16 * GIB, 16 * GIB)
    env = stage.grant(HALF) | {"PYTHONWARNINGS": "ignore", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    own = stage.start(*stage.command("soname", "init", "ctx", "alloc:1G", "ready"), env=stage.grant(HALF))
    with living(own):
        until(own, "ready")
        words = [program, "-1"] if tool == "nvitop" else [program, "--no-color", "--no-header"]
        shown = stage.run(*words, env=env)
    wanted = "1024MiB / 8192MiB" if tool == "nvitop" else "1024 /  8192 MB"
    assert wanted in shown
    assert "16384" not in shown


def test_cuda_python(stage: Stage) -> None:
    stage.cards(16 * GIB)
    try:
        import cuda.bindings.driver  # noqa: F401
    except ImportError:
        gap("no cuda-python", "make setup")
    lines = stage.run(sys.executable, "-c", PYTHON, env=stage.grant(HALF)).splitlines()
    assert lines == [f"{HALF} {HALF} {HALF}", "32 CUDA_ERROR_OUT_OF_MEMORY", f"{HALF} {HALF}"]
    lines = stage.run(sys.executable, "-c", PYTHON).splitlines()
    assert lines[1] == "64 CUDA_ERROR_OUT_OF_MEMORY"


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("route", ["linked", "soname", "proc2"])
def test_a_second_preload(stage: Stage, tools: Path, order: str, route: str) -> None:
    stage.cards(GIB)
    second = tools / "second.so"
    if not second.exists():
        compile_c(second, "-shared", "-fPIC", HERE / "second.c", "-ldl")
    both = [second, SHIM] if order == "before" else [SHIM, second]
    env = stage.grant(256 * MIB) | {"LD_PRELOAD": ":".join(map(str, both))}
    said = stage.probe(route, "init", "ctx", "total", "fill:alloc:64M", "free", "info", env=env)
    assert said["total"] == [0, 256 * MIB]
    assert said["fill"] == [OOM, 256 * MIB]
    assert said["info"] == [0, 256 * MIB, 256 * MIB]
