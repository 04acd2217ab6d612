"""A script that uses every idiom of the interface at once; its output must not depend on the number of
workers."""

import json
import os
import warnings

import torch
from pace import slowly
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import pliant.train as pt
from pliant.train.rendezvous.state import digest

spec = json.loads(os.environ["SPEC"])
warnings.simplefilter("error")
torch.set_num_threads(1)
if "torch_watches_s" in spec:  # interval at which a reading process checks its trainer, else 5 s
    torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = spec["torch_watches_s"]
log = open(os.path.join(spec["out"], os.environ["PLIANT_TRAIN_WORKER"]), "a", buffering=1)  # noqa: SIM115


class Noisy:
    """100 records; with `chance` each epoch draws new noise."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        x = torch.linspace(-1, 1, 6) * (index + 1) / 100
        noise = 0.1 * torch.randn(6) if spec["chance"] else 0.0
        return {"x": x + noise, "y": x.sum().reshape(1) + 40.0}


def collate(records):
    return {name: torch.stack([record[name] for record in records]) for name in ("x", "y")}


job = pt.init(
    logical_workers=spec["logical"], device="cpu", checkpoint_dir=spec.get("checkpoints"), checkpoint_every=3
)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8) if spec["chance"] else nn.Tanh(), nn.Linear(8, 1))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
loader = job.data(Noisy(), global_batch=12, max_micro_batch=2, drop_last=True, collate=collate, workers=1)
model, optimizer, scheduler = job.prepare(
    model, optimizer, scheduler,
    extras={"ema": ema}, scheduler_per="epoch", max_grad_norm=1.0, precision=spec["precision"],
)  # fmt: skip


def score(net, batch):
    error = (net(batch["x"]) - batch["y"]).abs().squeeze(1)
    return {"mean": error.sum(), "errors": job.gather(error)}


job.evaluation(
    Noisy() if not spec["chance"] else [Noisy()[0]] * 7,
    score,
    metric=lambda all: {"median": all["errors"].median(), "count": len(all["errors"])},
    collate=collate,
)
state = job.state(updates=0, best=float("inf"), history=[])
for epoch in job.epochs(4):
    for batch in loader:
        with job.step(batch) as step:
            with job.autocast():
                output = model(batch["x"])
            step.backward(nn.functional.mse_loss(output.float(), batch["y"]))
        state.updates += step.applied
        state.best = min(state.best, job.loss if step.applied else state.best)
        if step.applied:
            ema.update_parameters(model)
            log.write(json.dumps({"step": job.applied, "loss": job.loss, "ids": list(batch.ids)}) + "\n")
        slowly(job, {"batch": 12, **spec}, len(batch))
    state.history.append([epoch, job.loss, job.evaluations[job.applied]["median"]])
end = {
    "end": job.digest(),
    "ema": digest(ema),
    "lr": scheduler.get_last_lr(),
    "state": [state.updates, state.best, state.history],
    "evaluations": job.evaluations,
    "norm": job.grad_norm,
    "skipped": job.skipped_updates,
}
log.write(json.dumps(end) + "\n")
