"""An image classifier with a DataLoader, without Pliant: python classify_original.py"""

import argparse

import torch
from digits import Digits
from torch import nn
from torch.utils.data import DataLoader


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
    train, held_out = Digits(train=True, augment=not args.plain), Digits(train=False)
    loader = DataLoader(
        train, batch_size=64, shuffle=not args.plain, num_workers=args.workers, drop_last=True
    )
    validation = DataLoader(held_out, batch_size=256)
    model = network(args.plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))

    best, step = 0.0, 0
    for epoch in range(args.epochs):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            print(step, loss.item(), file=log)
        model.eval()
        with torch.no_grad():
            hits = sum((model(images).argmax(1) == labels).sum().item() for images, labels in validation)
        accuracy = hits / len(held_out)
        print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
