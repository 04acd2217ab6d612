"""The simulated drivers alone: the whole card, one counter, no memory left by dead processes."""

import signal
import sys

import pytest

from tests.shim.stage import GIB, MIB, OOM, UUIDS, Stage, go_on, living, until

ROUTES = ["linked", "soname", "proc", "proc2", "ptsz"]
KINDS = [
    "alloc",
    "managed",
    "pitch",
    "async",
    "pool",
    "vmm",
    "vmmrel",
    "vmmretain",
    "array",
    "array2",
    "graph",
]

LIST = """
import pynvml as n
n.nvmlInit()
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    one, two = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
    assert (one.total, one.free) == (two.total, two.free), (str(one), str(two))
    assert two.total == two.reserved + two.used + two.free, str(two)
    apps = [(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h)]
    print(n.nvmlDeviceGetUUID(h), two.total, two.used, apps)
"""


@pytest.mark.parametrize("route", ROUTES)
def test_the_whole_card_is_there(stage: Stage, route: str) -> None:
    stage.cards(4 * GIB)
    said = stage.probe(route, "init", "ctx", "total", "fill:alloc:64M", "free", "info")
    assert said["total"] == [0, 4 * GIB]
    assert said["fill"] == [OOM, 4 * GIB]
    assert said["info"] == [0, 4 * GIB, 4 * GIB]
    assert (stage.count().peak, stage.count().used) == (4 * GIB, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_memory_is_counted_and_comes_back(stage: Stage, kind: str) -> None:
    stage.cards(GIB)
    said = stage.probe("soname", "init", "ctx", f"fill:{kind}:64M", "free", "info")
    assert said["fill"] == [OOM, GIB]
    assert said["free"] == [0]
    assert said["info"] == [0, GIB, GIB]


def test_mipmaps_hosts_contexts_and_resets(stage: Stage) -> None:
    stage.cards(GIB, context=100 * MIB)
    said = stage.probe("soname", "init", "ctx", "info", "fill:mipmap:64M:256M", "fill:host:64M:4G")
    assert said["info"] == [0, GIB - 100 * MIB, GIB]
    assert said["fill"] == [0, 4 * GIB]  # cards do not count host memory
    said = stage.probe("soname", "init", "ctx", "alloc:512M", "reset", "second:512M", "info")
    assert said["second"] == [0, 0]
    assert said["info"] == [0, GIB - 100 * MIB, GIB]


def test_the_dead_hold_nothing(stage: Stage) -> None:
    stage.cards(GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "alloc:768M", "ready"))
    with living(first):
        until(first, "ready")
        assert stage.probe("soname", "init", "ctx", "fill:alloc:64M")["fill"] == [OOM, 256 * MIB]
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert stage.probe("soname", "init", "ctx", "fill:alloc:64M")["fill"] == [OOM, GIB]


def test_nvml_shows_what_runs(stage: Stage) -> None:
    stage.cards(GIB, 2 * GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "alloc:768M", "ready"))
    with living(first):
        until(first, "ready")
        lines = stage.run(sys.executable, "-c", LIST).splitlines()
        assert lines == [
            f"{UUIDS[0]} {GIB} {768 * MIB} [({first.pid}, {768 * MIB})]",
            f"{UUIDS[1]} {2 * GIB} 0 []",
        ]
        go_on(first)
        assert first.wait() == 0
    assert stage.run(sys.executable, "-c", LIST).splitlines()[0] == f"{UUIDS[0]} {GIB} 0 []"


def test_visible_devices(stage: Stage) -> None:
    stage.cards(GIB, 2 * GIB)
    for wanted in (UUIDS[1], "1"):
        said = stage.probe("soname", "init", "total", env={"CUDA_VISIBLE_DEVICES": wanted})
        assert said["total"] == [0, 2 * GIB]
    assert stage.probe("soname", "init", env={"CUDA_VISIBLE_DEVICES": ""})["init"] == [100]  # no device


@pytest.mark.parametrize("virtual", [True, False])
def test_kernels_run_in_the_order_of_their_arrival(stage: Stage, virtual: bool) -> None:
    stage.cards(GIB, virtual_clock=virtual)
    said = stage.probe("soname", "init", "ctx", "launch:2000:5", "sync", "capture")
    assert said["capture"] == [0, 0, 0]
    assert stage.count().busy == 10_000_000
