"""Records per second without any change of the world: pliant.train beside plain DistributedDataParallel.

Two worker processes train an MLP of 2.1 million parameters on CPU with Gloo, in blocks of steps that
alternate within the same processes: five of plain DDP on its own process group, five of ours. So other load
on the machine affects both. The ratio is ours / plain, per pair of blocks; their geometric mean is the
result (noise would raise an arithmetic one), the interval is a bootstrap over the pairs. The processor
time of a step, of all threads of a worker, says how much of the difference is work and how much is waiting.
After the pairs, 50 blocks of ours run under Python's profiler, which says where the time of a step goes.

Input: synthetic, made here. Reference in the same run: plain DistributedDataParallel.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import arguments, environment, head, row

WORKERS, BLOCK, PROFILED = 2, 5, 50
PARTS = {  # of a step of ours: (file, function)
    "the forward pass": ("worker/model.py", "forward"),
    "backward, and the sum of the gradients": ("torch/_tensor.py", "backward"),
    "the optimizer": ("optim/sgd.py", "step"),
    "reading the records": ("worker/loop.py", "_read"),
    "planning the step": ("worker/steps.py", "plan_step"),
    "beginning the agreement": ("worker/loop.py", "begin_agreement"),
    "waiting for the agreement": ("worker/agreement.py", "outcome"),
}


def profiled(run: Callable[[], None], blocks: int) -> dict[str, float]:
    """Milliseconds of one step in each part, and in all."""
    profile = cProfile.Profile()
    for _ in range(blocks):
        profile.runcall(run)
    stats = pstats.Stats(profile)
    each = 1000 / blocks / BLOCK
    found = {
        part: each
        * sum(
            entry[3]  # with what it calls
            for (path, _, name), entry in stats.stats.items()  # type: ignore[attr-defined]
            if path.endswith(file) and name == function
        )
        for part, (file, function) in PARTS.items()
    }
    return {"all": each * stats.total_tt, **found}  # type: ignore[attr-defined]


def worker() -> None:
    """Runs both loops, alternating; rank 0 writes the times."""
    import torch
    import torch.distributed as dist
    from torch import nn

    import pliant.train as pt

    torch.set_num_threads(1)
    pairs, whole = int(os.environ["BENCH_PAIRS"]), int(os.environ["BENCH_BATCH"])
    x = torch.randn(20_000, 512)
    y = torch.randint(0, 10, (20_000,))

    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512)
        )

    def loss_of(net: nn.Module, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(net(a), b)

    job = pt.init(device="cpu")
    mine = model()
    net, _, _ = job.prepare(mine, torch.optim.SGD(mine.parameters(), lr=0.01, momentum=0.9))
    data = job.data((x, y), global_batch=whole)
    epochs = job.epochs(1 + (pairs + PROFILED) * BLOCK * whole // 20_000 + 1)
    next(epochs)
    batches = iter(data)

    def ours() -> None:
        nonlocal batches
        for _ in range(BLOCK):
            batch = next(batches, None)
            if batch is None:
                next(epochs)
                batches = iter(data)
                batch = next(batches)
            with job.step(batch) as step:
                step.backward(loss_of(net, batch.x, batch.y))

    ours()  # joins the job: job.rank is set from here on
    file = os.environ["BENCH_FILE"]
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=job.rank, world_size=WORKERS)
    theirs = model()
    plain = nn.parallel.DistributedDataParallel(theirs)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9)
    order, at = torch.randperm(len(x)), 0

    def reference() -> None:
        nonlocal at
        for _ in range(BLOCK):
            ids = order[at : at + whole // WORKERS]
            at = (at + whole // WORKERS) % (len(x) - whole)
            optimizer.zero_grad()
            loss_of(plain, x[ids], y[ids]).backward()
            optimizer.step()

    reference()
    times = []
    for number in range(pairs):
        both = [0.0, 0.0, 0.0, 0.0]  # seconds of plain DDP and ours, then of processor time
        for which in (0, 1) if number % 2 else (1, 0):
            dist.barrier()
            began, worked = time.perf_counter(), time.process_time()
            (reference, ours)[which]()
            dist.barrier()
            both[which] = time.perf_counter() - began
            both[which + 2] = time.process_time() - worked
        times.append(both)
    parts = profiled(ours, min(pairs, PROFILED))
    if job.rank == 0:
        Path(file + ".json").write_text(json.dumps([times, parts]))
    dist.barrier()
    os._exit(0)  # the job need not reach its end


def main() -> int:
    said = arguments(__doc__, ("--batch", "records of a step: fewer make it shorter", 128))
    pairs = 3 if said.tiny else 200
    from pliant.train.agent.fleet import Fleet, MasterProcess

    folder = Path(tempfile.mkdtemp(prefix="pliant-bench-"))
    file = folder / "store"
    master = MasterProcess(folder / "job", "bench", min_workers=WORKERS)
    env = {**environment(), **master.environment(), "BENCH_FILE": str(file), "BENCH_PAIRS": str(pairs)}
    env["BENCH_BATCH"] = str(said.batch)
    fleet = Fleet([sys.executable, __file__, "--worker"], master.client, folder / "job", env=env, logs=True)
    result = Path(f"{file}.json")
    try:
        fleet.hold([f"cpu-{i}" for i in range(WORKERS)])
        end = time.monotonic() + 600
        while not result.exists() or fleet.devices():
            fleet.poll()
            if time.monotonic() > end or (not fleet.devices() and not result.exists()):
                for log in (folder / "job" / "logs").glob("*"):
                    sys.stderr.write(log.read_text())
                return 1
            time.sleep(0.05)
        times, parts = json.loads(result.read_text())
    finally:
        fleet.close()
        master.close()
        shutil.rmtree(folder, ignore_errors=True)
    ratios = [100 * pair[0] / pair[1] for pair in times]
    dice = random.Random(0)
    means = sorted(statistics.geometric_mean(dice.choices(ratios, k=len(ratios))) for _ in range(4000))
    plain, own, plain_work, own_work = (
        statistics.median(pair[which] for pair in times) / BLOCK * 1000 for which in range(4)
    )
    head(f"throughput on CPU with Gloo, {WORKERS} workers, {said.batch} records, {pairs} pairs of blocks")
    row("a step of plain DDP", plain, "ms", to=(plain, "plain DDP"))
    row("a step of ours", own, "ms", to=(plain, "plain DDP"))
    row("  its processor time", own_work, "ms", to=(plain_work, "that of plain DDP"))
    for part, took in parts.items():
        row(f"  {part} (profiled)", took, "ms", to=(parts["all"], "the profiled step"))
    row("throughput, ours / plain", statistics.geometric_mean(ratios), "%", to=(100.0, "plain DDP"))
    low, high = means[100], means[-101]
    row("  lower bound of the 95 % interval", low, "%", to=(97.0, "the goal of 97 %"))
    row("  upper bound", high, "%", to=(100.0, "plain DDP"))
    return 0


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker()
    sys.exit(main())
