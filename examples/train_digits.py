"""Handwritten digits, an MLP or a small CNN, elastic.

python examples/train_digits.py                                      # one process
python -m pliant.train run --workers 4 examples/train_digits.py      # four; kill one and watch
pliant submit digits -i ubuntu -g 2 --elastic --command -- python examples/train_digits.py --cnn
"""

import argparse

import torch
from torch import nn

import pliant.train as pt
from pliant.engines.local.images.quickstart.digits import TRAINING, Digits


def load() -> tuple[torch.Tensor, torch.Tensor]:
    digits = Digits(0)
    pixels = torch.tensor(digits._pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return pixels, torch.tensor(digits._labels)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cnn", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    torch.manual_seed(0)
    x, y = load()
    model = cnn() if given.cnn else mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    job = pt.init(checkpoint_every=50)
    model, optimizer, _ = job.prepare(model, optimizer)
    data = job.data((x[:TRAINING], y[:TRAINING]), global_batch=64, max_micro_batch=32)
    held_out = (x[TRAINING:], y[TRAINING:])
    job.evaluation(held_out, lambda m, b: {"accuracy": (m(b[0]).argmax(1) == b[1]).sum()}, every=24)
    for epoch in job.epochs(given.epochs):
        for batch in data:
            with job.step(batch) as step:
                step.backward(nn.functional.cross_entropy(model(batch.x), batch.y))
        if job.rank == 0:
            accuracy = max(job.evaluations.items(), default=(0, {"accuracy": 0.0}))[1]["accuracy"]
            print(
                f"epoch {epoch + 1}: loss {job.loss:.4f}, accuracy {accuracy:.3f}, {job.size} workers",
                flush=True,
            )


if __name__ == "__main__":
    main()
