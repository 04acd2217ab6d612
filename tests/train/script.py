"""The script that workers of tests run. SPEC (JSON) says what it trains; it writes a line for each applied
step."""

import json
import os
import signal
import time
import warnings

import torch
from pace import slowly
from torch import nn

import pliant.train as pt
from pliant.train.rendezvous.group import MasterStore

spec = json.loads(os.environ["SPEC"])
warnings.simplefilter("error")
torch.set_num_threads(1)
log = open(os.path.join(spec["out"], os.environ["PLIANT_TRAIN_WORKER"]), "a", buffering=1)  # noqa: SIM115


def applied(step, ids):
    line = {
        "step": step,
        "ids": list(ids),
        "loss": job.loss,
        "size": job.size,
        "rank": job.rank,
        "generation": job.generation,
        "t": time.monotonic(),
    }
    if spec.get("digests"):
        line["digest"] = job.digest()
    log.write(json.dumps(line) + "\n")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width = spec.get("width", 16)
        layers = [nn.Linear(8, width), nn.Tanh()]
        if spec.get("norm"):
            layers.append(nn.BatchNorm1d(width))
        if spec.get("dropout"):
            layers.append(nn.Dropout(0.2))
        for _ in range(spec.get("depth", 0)):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.body = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x)


generator = torch.Generator().manual_seed(7)
x = torch.randn(spec.get("records", 256), 8, generator=generator)
y = x.sin().sum(1, keepdim=True)
torch.manual_seed(1000 + os.getpid() if spec.get("own_start") else 0)  # the job makes all starts equal
model = Net()
total = spec.get("total", 100)
if spec.get("optimizer", "sgd") == "adam":
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=total + 1)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.7)

job = pt.init(
    checkpoint_dir=spec.get("checkpoints"),
    checkpoint_every=spec.get("every", 0),
    logical_workers=spec.get("logical", 0),
    device=spec.get("device", "cpu"),
    on_applied=applied,
)
options = {"bucket_cap_mb": spec["bucket_mb"]} if "bucket_mb" in spec else {}
model, optimizer, scheduler = job.prepare(model, optimizer, scheduler, **options)
if "fault" in spec:
    fault, group, seen = spec["fault"], job._runtime.group, {"step": None, "count": 0}
    start = group._start

    def faulty(name, tensors, opts):
        if seen["step"] != job.applied:
            seen.update(step=job.applied, count=0)
        here = job.generation == 1 and job.rank == fault["rank"] and job.applied + 1 == fault["step"]
        here = here and seen["count"] == fault["collective"]
        seen["count"] += 1
        if here and fault["how"] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        work = start(name, tensors, opts)
        if here:
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
        return work

    group._start = faulty
if "half_told" in spec:  # rank 0 has all addresses and asks no more; rank 1 has sent its own and asks later
    here, ask = os.path.join(spec["out"], ".."), MasterStore._ask

    def later(store, wanted):
        waits = job.generation == 1 and job.rank == 1 and not os.path.exists(os.path.join(here, "told"))
        if wanted and waits:
            ask(store, [])
            open(os.path.join(here, "told"), "w").close()
            while not os.path.exists(os.path.join(here, "go")):
                time.sleep(0.01)
        ask(store, wanted)
        if wanted and job.rank == 0:
            open(os.path.join(here, "knows"), "w").close()

    MasterStore._ask = later
data = job.data(
    (x, y), global_batch=spec.get("batch", 32), max_micro_batch=spec.get("micro", 8), seed=spec.get("seed", 0)
)
if spec.get("evaluate"):
    job.evaluation(
        (x, y), lambda m, b: {"loss": float(((m(b[0]) - b[1]) ** 2).sum())}, every=spec["evaluate"]
    )


for _epoch in job.epochs(spec.get("epochs", 2)):
    for batch in data:
        with job.step(batch) as step:
            if spec.get("break_at") == job.applied and job.rank == 0:
                raise ValueError("the script is wrong")
            loss = nn.functional.mse_loss(model(batch.x), batch.y)
            if spec.get("by_rank"):  # deliberately wrong: every rank and micro-batch has the same weight
                plan = step._running.plan
                loss = loss * plan.count / (job.size * len(plan.parts) * len(batch.ids))
            step.backward(loss)
        slowly(job, spec, len(batch.ids))
log.write(json.dumps({"end": job.digest(), "evaluations": job.evaluations}) + "\n")
