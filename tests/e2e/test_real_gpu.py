"""A real GPU shared in halves by users' programs: each sees and is held to its half, and both compute."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from examples.walkthrough import Stage
from pliant.devices.nvml import NvmlDevices
from tests.e2e.test_elastic_training import TRAINING, applied
from tests.e2e.test_fractions import described, do, running, until
from tests.house.gaps import gap
from tests.shim.stage import MIB

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

GROW = """
import json, os, time, torch
free, total = torch.cuda.mem_get_info()
held, error = [], ""
try:
    while True:
        held.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    error = "out of memory"
got = sum(one.numel() for one in held)
del held
torch.cuda.empty_cache()
x = torch.randn(2048, 2048, device="cuda")
for _ in range(200):
    x = torch.nn.functional.normalize(x @ x)
print(json.dumps({"total": total, "got": got, "error": error, "norm": float(x.norm())}), flush=True)
while not os.path.exists("go"):
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with this machine's GPUs."""
    if not NvmlDevices(lambda pid: True).nodes():
        gap("no GPU", "run on a machine with an NVIDIA GPU and its driver")
    stage = Stage(tmp_path_factory.mktemp("real") / "stage")
    try:
        do(stage, "pliant up")
        do(stage, "pliant project create team-a --quota 1")
        do(stage, "pliant config project team-a")
        (stage.home / "grow.py").write_text(GROW)
        yield stage
    finally:
        left = stage.close()
    assert left == {}, "these processes outlived `pliant down`"


def said(stage: Stage, name: str) -> dict:
    def lines() -> list[str]:
        return [one for one in stage.run(f"pliant logs {name}").out.splitlines() if one.startswith("{")]

    (line,) = until(lines, f"{name} has computed")
    return json.loads(line)


def test_two_halves_of_a_real_gpu_at_the_same_time(site: Stage) -> None:
    for name in ("left", "right"):
        do(site, f"pliant submit {name} -i ubuntu -g 0.5 --command -- {sys.executable} {site.home}/grow.py")
    for name in ("left", "right"):
        running(site, name)
    both = [said(site, name) for name in ("left", "right")]
    print(both)
    smi = "nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits"
    whole = int(subprocess.run(smi.split(), capture_output=True, text=True, check=True).stdout) * MIB
    for one in both:
        assert one["error"] == "out of memory"
        assert 0.45 * whole < one["total"] <= 0.5 * whole
        assert 0.9 * one["total"] < one["got"] <= one["total"]
        assert one["norm"] > 0
    for name in ("left", "right"):
        do(site, f"pliant cancel {name}")
        until(lambda name=name: described(site, name)["phase"] == "Failed", f"{name} has ended")


def test_an_elastic_job_trains_on_two_halves_of_one_gpu(site: Stage) -> None:
    (site.home / "train.py").write_text(TRAINING)
    line = f"{sys.executable} {site.home}/train.py 60 0"
    do(site, f"pliant submit-dist pytorch many -i ubuntu --workers 1 -g 0.5 --command -- {line}")
    until(lambda: described(site, "many")["phase"] in ("Completed", "Failed"), "it ends")
    assert described(site, "many")["phase"] == "Completed", site.run("pliant logs many").out[-3000:]
    records, sizes = applied(site, described(site, "many")["id"])
    assert set(records.values()) == {1} and len(records) == 60 * 8
    assert set(sizes.values()) == {2}
