"""Fractions as a user sees them: every program inside sees its share, and gets it to the byte."""

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.walkthrough import Stage
from pliant.engines.local.launch.confinement import writable
from pliant.engines.local.launch.supervisor import command
from tests.shim.stage import DRIVERS, GIB, HERE, MIB, compile_c

PYNVML = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount(), "
PYNVML += "n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).total)"
CUDA_PYTHON = """
from cuda.bindings import driver as d
assert d.cuInit(0)[0] == 0
error, device = d.cuDeviceGet(0)
error, context = d.cuDevicePrimaryCtxRetain(device)
d.cuCtxSetCurrent(context)
print(d.cuDeviceTotalMem(device)[1], d.cuMemAlloc(6 << 30)[0].name)
"""
WITHOUT = "outside of its share: it runs without the shim"
SMI = "nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One card of 16 GiB with two sleeping halves, and a C program that grows until it fails."""
    stage = Stage(tmp_path_factory.mktemp("fractions"))
    del stage.env["XDG_RUNTIME_DIR"]  # ledgers in memory, as for users
    compile_c(stage.folder / "grow", "-DLINKED", HERE / "probe.c", DRIVERS / "libcuda.so.1")
    try:
        do(stage, "pliant up --simulate 1x1:16G")
        do(stage, "pliant project create team-a --quota 1")
        do(stage, "pliant config project team-a")
        for name in ("left", "right"):
            do(stage, f"pliant submit {name} -i ubuntu -g 0.5 --command -- sleep infinity")
        for name in ("left", "right"):
            running(stage, name)
        yield stage
    finally:
        stage.close()


def do(stage: Stage, line: str, code: int = 0) -> str:
    done = stage.run(line)
    assert done.code == code, (line, done)
    return done.out


def until(condition, what: str):
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return value


def described(stage: Stage, name: str) -> dict:
    return json.loads(do(stage, f"pliant describe job {name} -o json"))


def running(stage: Stage, name: str) -> None:
    until(lambda: described(stage, name)["status"] == "Running", f"{name} runs")


def inside(stage: Stage, name: str, line: str, code: int = 0) -> str:
    return do(stage, f"pliant exec {name} -- {line}", code)


def grown(stage: Stage, name: str, ops: str = "fill:alloc:16M") -> list[str]:
    return inside(stage, name, f"{stage.folder}/grow linked init ctx total {ops}").splitlines()


@pytest.mark.parametrize("name", ["left", "right"])
def test_everybody_sees_the_same_numbers(site: Stage, name: str) -> None:
    assert inside(site, name, SMI) == "8192\n"
    assert inside(site, name, f"{sys.executable} -c '{PYNVML}'") == f"1 {8 * GIB}\n"
    assert f"total 0 {8 * GIB}" in grown(site, name)
    said = inside(site, name, f"{sys.executable} -c '{CUDA_PYTHON}'")
    assert said == f"{8 * GIB} CUDA_SUCCESS\n"


def test_monitors_see_the_share_only(site: Stage) -> None:
    assert "/  8192 MB" in inside(site, "left", "gpustat --no-color")
    assert "8192MiB" in inside(site, "left", "nvitop --once --no-unicode --colorful").replace(" ", "")


def test_who_grows_until_it_fails_stops_at_its_limit(site: Stage) -> None:
    """The other half keeps all of its own."""
    do(site, "pliant delete right")
    program = f"{site.folder}/grow linked init ctx fill:alloc:64M ready"
    do(site, f"pliant submit right -i ubuntu -g 0.5 --stdin --command -- {program}")
    until(lambda: "ready" in site.run("pliant logs right").out, "it has taken what it can")
    log = do(site, "pliant logs right")
    assert f"fill 2 {8 * GIB}" in log, "CUDA's own out of memory, at the limit"
    assert "pliant-gpu: out of GPU share" in log and "8 GiB of 8 GiB in use by 1 process" in log
    assert f"fill 2 {8 * GIB}" in grown(site, "left", "fill:alloc:64M")
    until(lambda: [one for one in described(site, "right")["gpuShares"] if one["refused"]], "the node saw it")
    (share,) = described(site, "right")["gpuShares"]
    assert (share["usedBytes"], share["limitBytes"]) == (8 * GIB, 8 * GIB)


def test_without_the_preload_it_is_the_whole_card(site: Stage) -> None:
    """The preload is cooperative: the docs say so, and the node detects its absence."""
    assert inside(site, "left", f"env -u LD_PRELOAD {SMI}") == "16384\n"
    assert inside(site, "left", f"env -u LD_PRELOAD {sys.executable} -c '{PYNVML}'") == f"1 {16 * GIB}\n"
    whole = f"env -u LD_PRELOAD {site.folder}/grow linked init ctx alloc:512M ready"
    seen = site.folder / "seen"
    with ThreadPoolExecutor(1) as beside:
        script = f"(until [ -e {seen} ]; do sleep 0.1; done; echo) | {whole}"
        outside = beside.submit(inside, site, "left", f"sh -c '{script}'")
        try:
            until(
                lambda: WITHOUT in do(site, "pliant describe job left") or outside.done(),
                "the node to notice",
            )
        finally:
            seen.touch()
        outside.result()
    assert WITHOUT in do(site, "pliant describe job left")


def test_an_exact_amount_is_seen_and_gotten(site: Stage) -> None:
    do(site, "pliant delete right")
    do(site, "pliant submit five -i ubuntu --gpu-memory 5G --command -- sleep infinity")
    running(site, "five")
    assert inside(site, "five", SMI) == "4768\n"
    lines = grown(site, "five", "fill:alloc:1M")
    assert f"total 0 {5 * 10**9}" in lines and f"fill 2 {4768 * MIB}" in lines
    do(site, "pliant delete five")


def test_how_it_is_held_is_said(site: Stage) -> None:
    why = writable(command()[0])
    item = described(site, "left")
    assert item["fraction"].startswith(f"cooperative: {why}" if why else "enforced by shim")
    touched = 'touch "$(dirname "$PLIANT_GPU_CONF")/x"'
    inside(site, "left", f"sh -c '{touched}'", 0 if why else 1)
    listed = json.loads(do(site, "pliant list jobs -o json"))
    (share,) = next(row for row in listed if row["name"] == "left")["gpuShares"]
    with urllib.request.urlopen(json.loads(do(site, "pliant status -o json"))["url"] + "/metrics") as answer:
        said = answer.read().decode()
    labels = f'gpu="{share["gpu"]}",pod="left-task-0",project="team-a",workload="left"'
    assert f"pliant_gpu_share_limit_bytes{{{labels}}} 8.589934592e+09" in said


@pytest.mark.parametrize("amount", ["0", "-5G", "nan", "inf", "5Q"])
def test_an_amount_that_is_none_is_refused(site: Stage, amount: str) -> None:
    done = site.run(f"pliant submit bad -i ubuntu --gpu-memory {amount} --command -- true")
    said = (
        f"{amount} of GPU memory" if amount == "0" else f"--gpu-memory {amount}"
    )  # two different checks refuse them
    assert done.code == 2 and said in done.err


def test_more_than_the_card_has_is_said_at_once_and_stays_the_reason(site: Stage) -> None:
    def said() -> bool:
        done = site.run("pliant submit large -i ubuntu --gpu-memory 20G --command -- true")
        assert done.code == 0
        if "the largest eligible node has 16Gi" in done.said:
            return True
        do(site, "pliant delete large")  # the answer waits only 20 ms for the plan, which came later
        return False

    until(said, "the answer to say it")
    assert described(site, "large")["reason"]["code"] == "never-fits"
    do(site, "pliant delete large")


def test_nothing_is_left_in_memory(site: Stage) -> None:
    """Runs last, as it stops the server."""
    place = Path((site.state / "gpu-place").read_text().strip())
    assert place.is_dir()
    found = {one["what"]: one for one in json.loads(do(site, "pliant doctor -o json"))}
    do(site, "pliant down --yes")
    assert not place.exists()
    alone = {one["what"]: one for one in json.loads(do(site, "pliant doctor -o json"))}
    assert alone["memory limits"] == found["memory limits"], "the same without a server"
    assert not place.exists()
