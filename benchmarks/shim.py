"""What the GPU shim costs on the simulated driver: allocation, launch and look-up of a name, against no shim.

Pairs of runs, bare and with the shim, alternate on one pinned core; the result is the median difference of
the pairs. The driver does next to nothing, so this is the shim's own time. Input: shim_loop.c. Targets:
alloc+free at most 150 ns and a launch at most 3 ns over bare, `dlsym` of other names within 5 %.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pliant.devices import cards, config
from pliant.devices.cards import DRIVERS, Card
from pliant.devices.config import GpuConf, Grant

ROOT = Path(__file__).resolve().parents[1]
UUID = "GPU-00000000-0000-4000-8000-000000000001"
PAIRS, ROUNDS, OPS = 21, 40, 20_000
NAMES = ("alloc+free", "launch", "dlsym")


def measure(program: Path, env: dict[str, str]) -> list[float]:
    """The fastest round of one process, in ns per operation: alloc+free, launch, dlsym."""
    best: list[float] = []
    for mode in ([], ["dlsym"]):
        command = [program, str(ROUNDS), str(OPS), *mode]
        said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        rounds = [[float(number) for number in line.split()] for line in said.splitlines()]
        best += [min(column) for column in zip(*rounds, strict=True)]
    return best


def main() -> int:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        folder = Path(name)
        program = folder / "loop"
        source = ROOT / "benchmarks" / "shim_loop.c"
        driver = DRIVERS / "libcuda.so.1"
        command = ["cc", "-O2", f"-I{ROOT / 'native'}", "-o", program, source, driver, "-ldl"]
        subprocess.run(command, check=True)
        cards.create(folder / "cards", [Card(UUID, "Simulated-GPU", 16 << 30)])
        grant = Grant(UUID, 8 << 30, weight=500, policy="fair", share=folder / "turns")
        config.write(folder / "gpu.conf", GpuConf("w", folder / "ledger", (grant,)), {UUID: 16 << 30})
        env = {"PLIANT_SIM_CARDS": str(folder / "cards"), "LD_LIBRARY_PATH": str(DRIVERS)}
        shim = {
            "LD_PRELOAD": str(DRIVERS.parent / "libpliant-gpu.so"),
            "PLIANT_GPU_CONF": str(folder / "gpu.conf"),
        }
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        bare, held = [], []
        for _ in range(PAIRS):
            bare.append(measure(program, env))
            held.append(measure(program, env | shim))
    result = {}
    for index, what in enumerate(NAMES):
        base = statistics.median(row[index] for row in bare)
        over = statistics.median(h[index] - b[index] for h, b in zip(held, bare, strict=True))
        result[what] = {"bare_ns": round(base, 2), "over_ns": round(over, 2)}
        print(f"{what:<11} bare {base:8.2f} ns   shim {over:+8.2f} ns   x{(base + over) / base:.2f}")
    print(json.dumps(result))
    good = (
        result["alloc+free"]["over_ns"] <= 150
        and result["launch"]["over_ns"] <= 3
        and result["dlsym"]["over_ns"] <= 0.05 * result["dlsym"]["bare_ns"]
    )
    print("targets held" if good else "targets missed: alloc+free 150 ns, launch 3 ns, dlsym 5 %")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
