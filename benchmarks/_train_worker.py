"""A worker of the training benchmarks: writes the time of every step that it has applied. Not run by itself.

With PLIANT_TRAIN_MASTER it trains through pliant.train, otherwise as a plain script under torchrun does: with
its own process group and DistributedDataParallel. After a restart it starts over, as it keeps no checkpoint.
"""

import os
import time
from pathlib import Path

import torch
from torch import nn

OUT = Path(os.environ["BENCH_OUT"])
PACE = float(os.environ.get("BENCH_PACE", "0.05"))  # the least seconds of a step
STEPS = int(os.environ.get("BENCH_STEPS", "100000"))
SHARED = os.environ.get("BENCH_DIVIDE") == "1"  # the pace is of all records: more workers are faster

torch.set_num_threads(1)
torch.manual_seed(0)
width = int(os.environ.get("BENCH_WIDTH", "64"))
model = nn.Sequential(
    nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(4800, 16)
y = x.sum(1, keepdim=True)


def wrote(log, step, rank, size):
    log.write(f"{step} {time.monotonic():.6f} {rank} {size} {os.getpid()}\n")


def elastic() -> None:
    import pliant.train as pt

    log = (OUT / os.environ["PLIANT_TRAIN_WORKER"]).open("a", buffering=1)
    job = pt.init(device="cpu", on_applied=lambda step, _ids: wrote(log, step, job.rank, job.size))
    net, _, _ = job.prepare(model, optimizer)
    data = job.data((x, y), global_batch=48)
    for _epoch in job.epochs(max(STEPS // 100, 1)):
        for batch in data:
            began = time.monotonic()
            with job.step(batch) as step:
                step.backward(nn.functional.mse_loss(net(batch.x), batch.y))
                wait = PACE * (len(batch) / 48 if SHARED else 1) - (time.monotonic() - began)
                time.sleep(max(wait, 0))


def plain() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    log = (OUT / f"plain-{os.getpid()}").open("a", buffering=1)
    net = nn.parallel.DistributedDataParallel(model)
    for step in range(1, STEPS + 1):
        began = time.monotonic()
        ids = torch.randint(len(x), (48 // size,))
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x[ids]), y[ids]).backward()
        optimizer.step()
        wrote(log, step, rank, size)
        time.sleep(max(PACE - (time.monotonic() - began), 0))


if __name__ == "__main__":
    elastic() if "PLIANT_TRAIN_MASTER" in os.environ else plain()
