"""A script that makes, or meets, one error: `slip` in SPEC says which."""

import json
import os

import torch
from pace import slowly
from torch import nn

import pliant.train as pt

spec = json.loads(os.environ["SPEC"])
torch.set_num_threads(1)
job = pt.init(device="cpu", checkpoint_dir=spec.get("checkpoints", False), checkpoint_every=4)
if spec["slip"] == "main before epochs":
    print(job.is_main)
model = nn.Linear(4, 1)
model, optimizer, _ = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
data = job.data((torch.ones(320, 4), torch.ones(320, 1)), global_batch=32)
state = job.state(name="", best=0.0) if spec["slip"] == "own values" else None
for _epoch in job.epochs(10):
    for batch in data:
        with job.step(batch) as step:
            step.backward(nn.functional.mse_loss(model(batch.x), batch.y))
        if state is not None and job.applied < 5:
            state.name = os.environ["PLIANT_TRAIN_WORKER"]
            state.best = job.loss or 0.0
        slowly(job, spec, len(batch))
