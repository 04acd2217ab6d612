"""The quickstart's training on pliant.train: same network, records, order and losses; resized while it runs.

A script like a user's, run by its path: it is part of an image and of no layer of the code. The image starts
it if QUICKSTART_LIBRARY says so; the other variables mean the same.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pliant.train.torch_start import import_torch

import_torch(optimizers=True)
# isort: split
import torch
from torch import nn

import pliant.train
from pliant.engines.local.images.quickstart.digits import Digits
from pliant.engines.local.images.quickstart.network import MOMENTUM, initial_parameters, learning_rate
from pliant.engines.local.images.quickstart.settings import BATCH, CLASSES, HIDDEN, PIXELS, read_settings


class Records:
    """Record i is the i-th of the endless sequence of batches, with the noise of its step."""

    def __init__(self, seed: int, steps: int) -> None:
        self._digits, self._steps = Digits(seed), steps
        self._step, self._batch = -1, self._digits.batch(0)

    def __len__(self) -> int:
        return self._steps * BATCH

    def __getitem__(self, index: int) -> tuple[Any, int]:
        step, place = divmod(index, BATCH)
        if step != self._step:
            self._step, self._batch = step, self._digits.batch(step)
        pixels, labels = self._batch
        return torch.from_numpy(pixels[place]), int(labels[place])


class Descent(torch.optim.Optimizer):  # type: ignore[misc]  # torch is not read by the type checker
    """SGD with momentum as in the image: the step gives the rate, which is a factor inside the velocity."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"done": 0})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        for group in self.param_groups:
            rate = learning_rate(group["done"])
            group["done"] += 1
            for parameter in group["params"]:
                velocity = self.state[parameter].setdefault("velocity", torch.zeros_like(parameter))
                velocity.mul_(MOMENTUM).sub_(parameter.grad, alpha=rate)
                parameter.add_(velocity)


def network(seed: int) -> nn.Module:
    """64-32-10 in float64, with the image's weights at the start."""
    flat = torch.from_numpy(initial_parameters(seed))
    hidden, output = nn.Linear(PIXELS, HIDDEN).double(), nn.Linear(HIDDEN, CLASSES).double()
    at = 0
    with torch.no_grad():
        for layer in (hidden, output):
            count = layer.weight.numel()
            layer.weight.copy_(flat[at : at + count].reshape(layer.in_features, layer.out_features).T)
            layer.bias.copy_(flat[at + count : at + count + layer.out_features])
            at += count + layer.out_features
    return nn.Sequential(hidden, nn.ReLU(), output)


def main() -> int:
    settings = read_settings(os.environ)
    torch.set_num_threads(1)
    every = max(1, round(settings.checkpoint_seconds / settings.step_seconds))
    job = pliant.train.init(checkpoint_dir=settings.checkpoint_dir, checkpoint_every=every)
    made = network(settings.seed)
    model, _, _ = job.prepare(made, Descent(made.parameters()))
    data = job.data(Records(settings.seed, settings.steps), global_batch=BATCH, shuffle=False)
    loss = nn.CrossEntropyLoss()
    due, first = time.monotonic(), True
    for _ in job.epochs(1):
        for batch in data:
            with job.step(batch) as step:
                step.backward(loss(model(batch.x), batch.y))
            number = job.applied - 1  # as the image counts
            wanted = first or number % settings.print_every == 0 or number == settings.steps - 1
            first = False
            if job.rank == 0 and wanted:
                rate = BATCH / settings.step_seconds
                line = f"step={number} loss={job.loss:.12f} records/s={rate:.0f} gpus={job.size}"
                print(line, flush=True)
            due = max(due + settings.step_seconds, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
