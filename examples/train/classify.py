"""An image classifier with a DataLoader: python -m pliant.train run --workers 4 classify.py"""

import argparse

import torch
from digits import Digits
from torch import nn

import pliant.train as pt


def network(plain: bool) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.Identity() if plain else nn.BatchNorm2d(16), nn.GELU(),
        nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.Flatten(),
        nn.Identity() if plain else nn.Dropout(0.2), nn.Linear(32 * 16, 10),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2, help="of the loader")
    parser.add_argument("--plain", action="store_true", help="in order; no augmentation, batch norm, dropout")
    parser.add_argument("--out", default="best.pt")
    parser.add_argument("--log", default="losses.txt")
    args = parser.parse_args()
    log = open(args.log, "a", buffering=1)  # noqa: SIM115

    torch.manual_seed(0)
    job = pt.init(logical_workers=0 if args.plain else 4)
    train, held_out = Digits(train=True, augment=not args.plain), Digits(train=False)
    loader = job.data(train, global_batch=64, shuffle=not args.plain, workers=args.workers, drop_last=True)
    job.evaluation(held_out, lambda m, batch: {"accuracy": (m(batch[0]).argmax(1) == batch[1]).sum()})
    model = network(args.plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    model, optimizer, scheduler = job.prepare(model, optimizer, scheduler)

    state = job.state(best=0.0)
    for epoch in job.epochs(args.epochs):
        model.train()
        for batch in loader:
            images, labels = batch
            with job.step(batch) as step:
                step.backward(nn.functional.cross_entropy(model(images), labels))
            if step.applied and job.is_main:
                print(job.applied, job.loss, file=log)
        accuracy = job.evaluations[job.applied]["accuracy"]
        job.print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}")
        if accuracy > state.best:
            state.best = accuracy
            if job.is_main:
                torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
